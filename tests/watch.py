"""Waiting that gives up when nothing moves any more, however slow the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
SILENCE = 1800.0
"""Seconds without a sign of life after which a process counts as hanging."""


def written(*paths: Path) -> tuple[int, int, int]:
    """Return what changes whenever a file is written: number, bytes and latest time of files.

    Parameters
    ----------
    paths : Path
        Files, or folders with all that lies below.
    """
    number, size, latest = 0, 0, 0
    for path in paths:
        for file in [path, *path.rglob("*")]:
            try:
                found = file.stat()
            except OSError:  # removed between two looks at it
                continue
            number, size = number + 1, size + found.st_size
            latest = max(latest, found.st_mtime_ns)
    return number, size, latest


def wait_for(
    find: Callable[[], T | None],
    sign: Callable[[], object],
    explain: Callable[[], str] = str,
    pause: float = 0.05,
) -> T:
    """Return what a function finds; fail when nothing has moved for half an hour.

    Parameters
    ----------
    find : callable
        Returns None as long as there is nothing.
    sign : callable
        Returns a value that changes as long as there is progress.
    explain : callable
        Returns what to say in the end.
    pause : float
        Seconds between two looks.
    """
    seen, since, look = sign(), time.monotonic(), 0.0
    while (found := find()) is None:
        now = time.monotonic()
        if now >= look:
            current = sign()
            if current != seen:
                seen, since = current, now
            if now - since > SILENCE:
                raise AssertionError(f"nothing moved for {SILENCE:.0f} s\n{explain()}")
            look = now + 5
        time.sleep(pause)
    return found


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *results: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as long as it prints or writes anything.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    folder : Path
        Where it runs.
    environment : mapping
        Its environment.
    results : Path
        Where it writes.
    """
    with tempfile.TemporaryDirectory() as name:
        output, errors = Path(name, "output"), Path(name, "errors")
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )
        try:
            wait_for(process.poll, lambda: written(output, errors, *results), errors.read_text)
        finally:
            if process.poll() is None:  # with the jobs that it started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return subprocess.CompletedProcess(
            command, process.returncode, output.read_text(), errors.read_text()
        )
