"""Finished parts of a long computation on disk, so that a killed job continues with the next one.

A part is an array file of kind ``part``. Parts may be computed in any order and by several
processes, since each has random streams of its own. The header says what made a part: one that
belongs to another run, or is damaged, is refused with the reason and made again.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.files import Meta, provenance, remove_debris
from uqsonet.networks.progress import ProgressBar
from uqsonet_study.jobs import draws_bar
from uqsonet_study.storage import ArrayFile, write_arrays

LOG = logging.getLogger("uqsonet")

LOG_SECONDS = 30.0  # time between log lines
SETS = 8  # observation sets in a part: two minutes of work where a set takes long

Arrays = dict[str, np.ndarray]
Row = dict[str, Tensor]


@dataclass(frozen=True)
class Part:
    """One part of a computation."""

    group: str  # parts are counted within a group; the groups of a data set are its splits
    number: int  # counted from zero
    # rows that are computed, and how many of them, from the first on, are stored
    size: int
    kept: int


def cut(sizes: dict[str, int], size: int) -> list[Part]:
    """Return the parts of all groups in order, given the rows of each group.

    The last part of a group is computed whole even where fewer rows are stored. So the first rows
    of a group do not depend on how many follow.
    """
    return [
        Part(group, number, size, min(size, total - first))
        for group, total in sizes.items()
        for number, first in enumerate(range(0, total, size))
    ]


class PartStore:
    """The folder of finished parts of one computation.

    Parameters
    ----------
    identity : dict
        What the result depends on, JSON-serialisable. Versions of libraries are added; that of
        this package is not, because the digest of the source tells more.
    workers : int
        Processes at a time. The parts do not depend on it.
    """

    def __init__(self, folder: Path, identity: Meta, workers: int = 1) -> None:
        self._folder, self._workers = Path(folder), workers
        versions = provenance()["versions"]
        libraries = {name: version for name, version in versions.items() if name != "uqsonet"}
        self._identity: Meta = json.loads(json.dumps({**identity, "libraries": libraries}))

    def complete(
        self, parts: list[Part], make: Callable[[Part], Arrays], unit: str
    ) -> tuple[float, int]:
        """Compute and store the parts that are not there.

        Parameters
        ----------
        make : callable
            Returns the arrays of a part, each with `kept` rows.
        unit : str
            What a row is, for progress and log.

        Returns
        -------
        seconds : float
            That all parts took, those of earlier sessions too.
        reused : int
            Number of parts of earlier sessions.
        """
        took = {part: seconds for part in parts if (seconds := self._seconds(part)) is not None}
        reused = len(took)
        if reused:
            LOG.info("continuing: %d of %d parts are there", reused, len(parts))

        def timed(part: Part) -> tuple[Part, float]:
            start = time.monotonic()
            arrays = make(part)
            seconds = time.monotonic() - start
            self._write(part, arrays, seconds)
            return part, seconds

        total, done = sum(part.size for part in parts), sum(part.size for part in took)
        logged = time.monotonic()
        missing = [part for part in parts if part not in took]
        with ProgressBar(unit, total, done, draws_bar(), unit) as show:
            for part, seconds in _spread(timed, missing, self._workers):
                took[part] = seconds
                done += part.size
                show.update(done, f"part {len(took)} of {len(parts)}")
                if time.monotonic() - logged > LOG_SECONDS or done == total:
                    logged = time.monotonic()
                    LOG.info(
                        "part %d of %d, %.4g %s/s, %.0f s left",
                        *(len(took), len(parts), show.rate(done), unit, show.left(done)),
                    )
        return sum(took.values()), reused

    def blocks(self, parts: list[Part], name: str) -> Iterator[np.ndarray]:
        """Yield row blocks of one array of finished parts, part after part."""
        for part in parts:
            with ArrayFile(self._path(part), "part") as file:
                yield from file.blocks(name)

    def rows(self, count: int, row_of: Callable[[int], Row]) -> list[Row]:
        """Return ``row_of(s)`` for all `count` sets, computing those that are not there."""
        parts = [replace(part, size=part.kept) for part in cut({"sets": count}, SETS)]

        def make(part: Part) -> Arrays:
            first = part.number * SETS
            rows = [row_of(s) for s in range(first, first + part.kept)]
            return {key: torch.stack([row[key] for row in rows]).numpy() for key in rows[0]}

        self.complete(parts, make, "sets")
        found: list[Row] = []
        for part in parts:
            with ArrayFile(self._path(part), "part") as file:
                data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
            found += [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
        return found

    def remove(self) -> None:
        """Delete the parts, and the folder if nothing else is in it."""
        for pattern in ("*_[0-9]*.h5", ".*_[0-9]*.h5.*.part"):
            for path in self._folder.glob(pattern):
                path.unlink(missing_ok=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, part: Part) -> Path:
        return self._folder / f"{part.group}_{part.number:06d}.h5"

    def _write(self, part: Part, arrays: Arrays, seconds: float) -> None:
        path = self._path(part)
        remove_debris(path)
        meta = {**self._identity, **vars(part), "seconds": seconds}
        write_arrays(path, "part", meta, {name: [array] for name, array in arrays.items()})

    def _seconds(self, part: Part) -> float | None:
        """Return what a finished part took to make, or None where it has to be made."""
        path = self._path(part)
        if not path.exists():
            return None
        try:
            with ArrayFile(path, "part") as file:
                found = dict(file.meta)
                for key in provenance():  # what every file has; `libraries` is compared instead
                    found.pop(key, None)
                seconds = float(found.pop("seconds", 0.0))
                expected = {**self._identity, **vars(part)}
                keys = sorted({*found, *expected})
                if changed := [key for key in keys if found.get(key) != expected.get(key)]:
                    raise DataError(f"{path}: of another run: {', '.join(changed)} changed")
                for name in file.names():
                    if sum(map(len, file.blocks(name))) != part.kept:
                        raise DataError(f"{path}: {name} has not {part.kept} rows")
        except DataError as error:
            LOG.warning("a part is made again: %s", error)
            return None
        return seconds


Timed = tuple[Part, float]

_action: Callable[[Part], Timed] | None = None
"""What forked workers run: a closure cannot be sent to them, only inherited."""


def _run(part: Part) -> Timed:
    assert _action is not None
    return _action(part)


def _spread(action: Callable[[Part], Timed], parts: list[Part], workers: int) -> Iterator[Timed]:
    """Yield ``action(part)`` as they come, computed by forked processes where that helps."""
    global _action
    workers = min(workers, len(parts))
    if workers <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(action, parts)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a process for each core, and no thread pool to fork
    _action = action
    try:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            yield from pool.imap_unordered(_run, parts)
    finally:
        _action = None
        torch.set_num_threads(threads)
