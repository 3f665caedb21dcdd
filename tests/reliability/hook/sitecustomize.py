"""Stops a job inside a write, so that the kill harness can kill it there.

Python imports this file at its start wherever this folder is on PYTHONPATH; the package knows
nothing of it. `KILL_AT` is JSON: `phase`, `number` (which write of the run, counted over all
processes) and `folder`, where writes are counted and the place of the stop is reported. The
process then waits to be killed.
"""

import json
import os
import tempfile
import time
from pathlib import Path

PLAN = json.loads(os.environ.get("KILL_AT", "{}"))


def stop(phase: str, path: object) -> None:
    """Report where we are and wait for the end."""
    report = Path(PLAN["folder"]) / "stopped.new"
    report.write_text(json.dumps({"phase": phase, "path": str(path)}))
    report.rename(report.with_suffix(".json"))
    time.sleep(3600)


def half(target: object, content: bytes) -> None:
    """Leave the first half of a file, as a kill between two blocks does."""
    with Path(str(target)).open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
    stop("write", target)


def arm_writers(temporary: str) -> None:
    """Stop in the middle of the content, whoever writes it."""
    import h5py

    store, text, binary = h5py.Dataset.__setitem__, Path.write_text, Path.write_bytes

    def setitem(self, key, value):
        store(self, key, value)
        if self.file.filename == temporary:
            self.file.flush()
            stop("write", temporary)

    def write_text(self, data, *args, **kwargs):
        if str(self) != temporary:
            return text(self, data, *args, **kwargs)
        return half(self, data.encode())

    def write_bytes(self, data):
        return half(self, data) if str(self) == temporary else binary(self, data)

    h5py.Dataset.__setitem__ = setitem
    Path.write_text = write_text
    Path.write_bytes = write_bytes


def arm() -> None:
    """Patch what an atomic write consists of."""
    mkstemp, fsync, replace = tempfile.mkstemp, os.fsync, os.replace
    chosen: list[str] = []

    def counted(*args, suffix=None, **kwargs):
        handle, name = mkstemp(*args, suffix=suffix, **kwargs)
        if suffix == ".part":
            counter = os.open(
                Path(PLAN["folder"]) / "writes", os.O_WRONLY | os.O_CREAT | os.O_APPEND
            )
            os.write(counter, b".")
            number = os.fstat(counter).st_size
            os.close(counter)
            if number == PLAN["number"]:
                chosen.append(name)
                if PLAN["phase"] == "open":
                    stop("open", name)
                if PLAN["phase"] == "write":
                    arm_writers(name)
        return handle, name

    def synced(descriptor):
        if (
            chosen
            and PLAN["phase"] == "sync"
            and str(Path(f"/proc/self/fd/{descriptor}").readlink()) in chosen
        ):
            stop("sync", chosen[0])
        fsync(descriptor)

    def replaced(source, target, **kwargs):
        mine = str(source) in chosen
        if mine and PLAN["phase"] == "rename":
            stop("rename", target)
        replace(source, target, **kwargs)
        if mine and PLAN["phase"] == "renamed":
            stop("renamed", target)

    tempfile.mkstemp, os.fsync, os.replace = counted, synced, replaced


if PLAN:
    arm()
