"""Damage and forge thousands of files of every kind: each is refused by name, or can be read.

    python -m tests.reliability.fuzz_files --count 20000 --log results/fuzz-files.csv  (make attack)

`count` is that of each reader: npz, HDF5, NetCDF, Zarr, CSV, meshes, weights, arrays of the study.
A log that is there is continued. Runs and sensors of other people have no checksums, so that damage
may be `read`; no value may then come from another file. A library may crash, or not come to an end,
at a file that was made for it: batches are judged by forked processes that may be `ended`.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import uqsonet
from tests.reliability import fuzz
from tests.reliability.files import content, make_files, make_zarr, refusal
from tests.reliability.forging import forge, leaked
from uqsonet.errors import UQSONetError
from uqsonet.runs import field_runs, formats, stored
from uqsonet.runs.files import contents

FINE = ("refused", "equal", "read", "ended")
BATCH, MEMORY, SECONDS = 250, 8 << 30, 20

READERS = {
    "npz": (".npz",), "HDF5": (".hdf5",), "NetCDF": (".nc",), "Zarr": (".zarr",), "CSV": (".csv",),
    "mesh": (".vtu", ".vtk"), "weights": (".safetensors",), "study": (".h5",),
}  # fmt: skip
"""Suffixes of the files of each reader."""


def bare(path: Path) -> object:
    """Return all that a file of ours holds, comparable."""
    kind, meta, arrays = content(path)
    return kind, meta, {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}


@cache
def model(path: Path) -> uqsonet.Emulator:
    """Return the fitted model beside the sensors."""
    return uqsonet.load(path)


def read_runs(bad: Path, large: bool) -> bool:
    """Read a damaged file of runs; return whether it has a value of another file."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (formats, field_runs, stored) if large else ():
            patch.setattr(module, "LARGE", 1 << 10)
        text = contents(bad)
        runs = uqsonet.open_runs(bad, "k", "u", missing="drop")
        fields = [*runs.inputs.values(), *runs.outputs.values()]
        arrays = [one.values for one in fields] + [one.domain.points() for one in fields]
        return "1234.5" in text or "1235" in text or any(map(leaked, arrays))


def outcome(good: Path, bad: Path, large: bool = False) -> str:
    """Return what comes of reading a damaged file, with `large` as if its arrays were large."""
    try:
        if bad.suffix in (".h5", ".safetensors"):
            if refusal(bad) is not None:
                return "refused"
            return "equal" if bare(bad) == bare(good) else "read, but it differs"
        if bad.suffix == ".csv":
            mean = model(good.with_name("m.safetensors")).condition(bad).mean()
            return "read" if np.isfinite(mean).all() else "an answer that is not finite"
        if read_runs(bad, large):
            return "read a value of another file"
    except UQSONetError as error:
        text = str(error)
        fine = bad.name in text and len(text) < 20_000 and text.isprintable()
        return "refused" if fine else f"refused without a name, or at length: {text[:300]!r}"
    except Exception as error:  # what a user would see as a traceback
        return f"raised {type(error).__name__}: {str(error)[:200]!r}"
    return "read"


def work(files: list[Path], first: int, count: int, pipe: int) -> None:
    """Do a batch, announcing each file before it is read."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    with (
        os.fdopen(pipe, "w", buffering=1) as out,
        tempfile.TemporaryDirectory(dir=files[0].parents[1]) as place,
    ):
        for number in range(first, first + count):
            good = files[number % len(files)]
            kind, bad = forge(good, Path(place), random.Random(number))
            signal.alarm(SECONDS)  # ends the process
            out.write(f"{number}\n{good.name}: {kind}\n")
            found = outcome(good, bad, number // len(files) % 2 == 1)
            signal.alarm(0)
            out.write(f"{found}\n".replace("\r", ""))


def batch(files: list[Path], first: int, count: int) -> list[tuple[int, str, str]]:
    """Judge a batch in a forked process; the last one of it may have ended the process."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(read)
            work(files, first, count, write)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    if not lines:
        raise SystemExit(f"the batch at {first} ended with {status} before its first file")
    if len(lines) % 3:  # the next batch goes on behind it
        lines.append("ended")
    return [(int(n), kind, found) for n, kind, found in zip(*[iter(lines)] * 3, strict=True)]


def corpus(home: Path) -> None:
    """Write sound files of every kind, in a process of its own: libraries keep threads."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            make_files(home)
            make_zarr(home)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the sound files could not be written")


def files_of(home: Path, reader: str) -> list[Path]:
    """Return the sound files of a reader."""
    return sorted(path for path in home.rglob("*") if path.suffix in READERS[reader])


def judged(count: int, readers: tuple[str, ...] = tuple(READERS)) -> Iterator[fuzz.Case]:
    """Judge `count` damaged files together of all readers that this machine has."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name, "files")
        corpus(home)
        there = [files for reader in readers if (files := files_of(home, reader))]
        for number, files in enumerate(there):
            first, last = 0, (count + number) // len(there)
            while first < last:
                done = batch(files, first, min(BATCH, last - first))
                yield from ((kind, found) for _, kind, found in done)
                first = done[-1][0] + 1


def main() -> None:
    """Judge `--count` files of each reader, and log them batch by batch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    if options.log.exists():
        with options.log.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                counts[row["reader"], row["kind"], row["outcome"]] = int(row["cases"])
    with tempfile.TemporaryDirectory() as name:
        home = Path(name, "files")
        corpus(home)
        readers = [one for one in options.readers.split(",") if files_of(home, one)]
        done = {one: sum(n for key, n in counts.items() if key[0] == one) for one in readers}
        while any(done[one] < options.count for one in readers):
            for reader in readers:
                left = options.count - done[reader]
                if left <= 0:
                    continue
                for number, kind, found in batch(
                    files_of(home, reader), done[reader], min(BATCH, left)
                ):
                    counts[reader, kind, found] += 1
                    done[reader] = number + 1
                    if found not in FINE:
                        print(f"{reader} {number}, {kind}: {found}", flush=True)
                write_log(options.log, counts)
    odd = sum(n for (_, _, found), n in counts.items() if found not in FINE)
    print(f"{counts.total()} files, {odd} of them neither refused by name nor read")
    sys.exit(bool(odd))


def write_log(path: Path, counts: Counter[tuple[str, str, str]]) -> None:
    """Write what was done so far, atomically."""
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("reader", "kind", "outcome", "cases"))
        writer.writerows((*key, number) for key, number in sorted(counts.items()))
    shutil.move(part, path)


if __name__ == "__main__":
    main()
