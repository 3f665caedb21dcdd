"""Damage thousands of files of every kind: each is refused by name, or reads as it was written.

    python -m tests.reliability.fuzz_files --count 6000 --log results/fuzz-files.csv     (make fuzz)

Runs and sensors of other people have no checksums, so that damage may be `read`. Batches are judged
by processes with limits of memory and time, so that a crash or a hang is seen. Files whose content
is wrong under right checksums are in `test_forged.py`.
"""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import uqsonet
from tests.reliability import fuzz
from tests.reliability.files import content, make_files
from tests.workflow.conftest import ROOT
from uqsonet.errors import UQSONetError
from uqsonet.runs import field_runs, guard, stored
from uqsonet_study.check import check_path

FINE = ("refused", "equal", "read")
BATCH, MEMORY, SECONDS, MEGABYTES = 250, 6 << 30, 20, 1000


def damage(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a kind of damage, and the bytes after it. Headers stand early, so half of it does."""
    place = chance.randrange(chance.choice((len(data), min(4096, len(data)))))
    size = chance.randint(1, 4096)
    before, rest = data[:place], data[place + size :]
    ways = {
        "bit": before + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :],
        "zeros": before + bytes(size) + rest,
        "noise": before + chance.randbytes(size) + rest,
        "cut": before,
        "removed": before + rest,
        "appended": data + chance.randbytes(size),
    }
    return chance.choice([*ways.items()])


def bare(path: Path) -> object:
    """Return all that a file of ours holds, comparable."""
    kind, meta, arrays = content(path)
    return kind, meta, {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}


def outcome(good: Path, bad: Path, large: bool = False) -> str:
    """Return what comes of reading a damaged file, with `large` as if its arrays were large."""
    try:
        if bad.suffix in (".h5", ".safetensors"):
            if next(check_path(bad))[1] is not None:
                return "refused"
            return "equal" if bare(bad) == bare(good) else "read, but it differs"
        if bad.suffix == ".csv":
            uqsonet.load(good.with_name("m.safetensors")).condition(bad).mean()
        else:
            with pytest.MonkeyPatch.context() as patch:
                if large:
                    for module in (field_runs, guard, stored):
                        patch.setattr(module, "LARGE", 1 << 10)
                uqsonet.open_runs(bad, "k", "u")
    except UQSONetError as error:
        return "refused" if bad.name in str(error) else f"refused without a name: {error}"
    except Exception as error:  # what a user would see as a traceback
        return f"raised {type(error).__name__}: {str(error)[:200]!r}"
    return "read"


def work(folder: Path, first: int, count: int) -> None:
    """Do a batch, announcing each file before it is read."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for number in range(first, first + count):
            good = files[number % len(files)]
            kind, data = damage(good.read_bytes(), random.Random(number))
            bad = Path(place, good.name)
            bad.write_bytes(data)
            signal.alarm(SECONDS)  # ends the process
            print(f"{good.name}: {kind}", flush=True)
            print(outcome(good, bad, number // len(files) % 2 == 1), end="", flush=True)
            signal.alarm(0)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(f", with {peak} MB" if peak > MEGABYTES else "", flush=True)
            if peak > MEGABYTES:
                return  # the next batch begins anew


def judged(count: int) -> Iterator[fuzz.Case]:
    """Judge damaged files of all kinds in turns, batch by batch."""
    first, command = 0, [sys.executable, "-m", "tests.reliability.fuzz_files"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "files")
        make_files(folder)
        while first < count:
            batch = ["work", str(folder), str(first), str(min(BATCH, count - first))]
            done = subprocess.run([*command, *batch], cwd=ROOT, capture_output=True, text=True)
            lines = done.stdout.splitlines()
            if done.returncode and len(lines) % 2 == 0:
                ended = f"the batch at {first} ended with {done.returncode}"
                raise SystemExit(f"{ended} after {lines[-2:]}:\n{done.stderr[-3000:]}")
            if len(lines) % 2:  # a crash, or SIGALRM after a hang; the next batch goes on behind it
                lines.append(f"ended by signal {-done.returncode}")
            yield from zip(lines[::2], lines[1::2], strict=True)
            first += len(lines) // 2


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        fuzz.main(__doc__ or "", judged, FINE)
