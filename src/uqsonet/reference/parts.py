"""Sets of an evaluation computed part by part: resumable, and on several cores.

Each set draws from a stream of its own, so parts may come in any order and from any process. A
finished part is a file in a folder of the job's state; a killed job continues from what is there.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.progress import ProgressBar
from uqsonet.storage import (
    ArrayFile,
    Meta,
    of_any_version,
    provenance,
    remove_numbered,
    write_arrays,
)

LOG = logging.getLogger("uqsonet")

SETS = 8
"""Observation sets in a part: two minutes of work where a set is dear."""

Row = dict[str, Tensor]


class Parts:
    """Rows of many observation sets.

    Parameters
    ----------
    folder : Path
        Where finished parts are kept until `remove`.
    identity : dict
        What parts must agree with to be used again; versions of libraries are added.
    workers : int
        Processes at a time; the rows do not depend on it.
    bar : bool
        Draw a progress bar on a terminal.
    """

    def __init__(self, folder: Path, identity: Meta, workers: int = 1, bar: bool = False) -> None:
        self._folder, self._workers, self._bar = folder, workers, bar
        self._identity = json.loads(json.dumps({**identity, **provenance()}))

    def rows(self, count: int, row_of: Callable[[int], Row]) -> list[Row]:
        """Return ``row_of(s)`` for all sets, computing those that are not there."""
        starts = range(0, count, SETS)
        found = {start: rows for start in starts if (rows := self._read(start)) is not None}
        if found:
            LOG.info("continuing: %d of %d parts are there", len(found), len(starts))
        missing = [start for start in starts if start not in found]

        def compute(start: int) -> int:
            rows = [row_of(s) for s in range(start, min(start + SETS, count))]
            arrays = {key: [torch.stack([row[key] for row in rows]).numpy()] for key in rows[0]}
            write_arrays(self._path(start), "reference_part", self._identity, arrays)
            return start

        done, began = len(found), time.monotonic()
        with ProgressBar("sets", len(starts), done, self._bar, "parts") as show:
            for start in _spread(compute, missing, self._workers):
                rows = self._read(start)
                assert rows is not None, "a part was written a moment ago"
                found[start], done = rows, done + 1
                left = (time.monotonic() - began) / (done - len(starts) + len(missing))
                LOG.info(
                    "part %d of %d, %.0f s left", done, len(starts), left * (len(starts) - done)
                )
                show.update(done)
        return [row for start in starts for row in found[start]]

    def remove(self) -> None:
        """Remove the parts: their rows are stored elsewhere."""
        remove_numbered(self._folder, "part")

    def _path(self, start: int) -> Path:
        return self._folder / f"part_{start:05d}.h5"

    def _read(self, start: int) -> list[Row] | None:
        """Return the rows of a finished part, None where it is missing, foreign or damaged."""
        try:
            with ArrayFile(self._path(start), "reference_part") as file:
                if of_any_version(file.meta) != of_any_version(self._identity):
                    return None
                data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
        except DataError:
            return None
        return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]


_ACTION: Callable[[int], int] | None = None
"""What forked workers run: a closure cannot be sent to them, only inherited."""


def _run(item: int) -> int:
    assert _ACTION is not None
    return _ACTION(item)


def _spread(action: Callable[[int], int], items: Iterable[int], workers: int) -> Iterator[int]:
    """Yield ``action(item)`` as they come, computed by forked processes where that helps."""
    global _ACTION
    items = list(items)
    workers = min(workers, len(items))
    if workers <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(action, items)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a process for each core, and no thread pool to fork
    _ACTION = action
    try:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            yield from pool.imap_unordered(_run, items)
    finally:
        _ACTION = None
        torch.set_num_threads(threads)
