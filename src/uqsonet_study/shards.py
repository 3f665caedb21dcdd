"""Finished shards of a generation on disk, so that a killed job continues with the next one.

A shard is an array file of kind ``shard`` with `kappa` and `u`. Its header says what made it;
one that belongs to another generation, or is damaged, is refused with the reason and made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uqsonet.errors import DataError
from uqsonet.storage import (
    ArrayFile,
    Meta,
    of_any_version,
    provenance,
    remove_debris,
    remove_numbered,
    write_arrays,
)

LOG = logging.getLogger("uqsonet")


@dataclass(frozen=True)
class Shard:
    """One shard of a split.

    Attributes
    ----------
    split : str
    number : int
        Counted from zero; with the split the place in the seed tree.
    drawn, kept : int
        Pairs drawn, and how many of them, from the first on, the data set takes.
    """

    split: str
    number: int
    drawn: int
    kept: int


def cut(sizes: dict[str, int], size: int) -> list[Shard]:
    """Return the shards of all splits in order.

    A whole shard is drawn even where only a part is kept: prefixes stay prefixes.
    """
    return [
        Shard(split, number, size, min(size, total - first))
        for split, total in sizes.items()
        for number, first in enumerate(range(0, total, size))
    ]


class ShardStore:
    """The folder of finished shards of one generation.

    Parameters
    ----------
    folder : Path
    identity : dict
        What makes all shards, JSON-serialisable: problem, seed, types, digest of the source.
        Library versions are added.
    """

    def __init__(self, folder: Path, identity: Meta) -> None:
        self._folder, self._identity = Path(folder), identity

    def _path(self, shard: Shard) -> Path:
        return self._folder / f"{shard.split}_{shard.number:06d}.h5"

    def seconds(self, shard: Shard) -> float | None:
        """Return what a finished shard took to make, or None where it has to be made."""
        path = self._path(shard)
        if not path.exists():
            return None
        try:
            with ArrayFile(path, "shard") as file:
                meta = of_any_version(file.meta)
                took = float(meta.pop("seconds", 0.0))
                expected = {**self._identity, **vars(shard), **of_any_version(provenance())}
                changed = sorted(
                    key for key in {*meta, *expected} if meta.get(key) != expected.get(key)
                )
                if changed:
                    raise DataError(f"{path}: of another run: {', '.join(changed)} changed")
                for name in ("kappa", "u"):
                    if sum(len(block) for block in file.blocks(name)) != shard.kept:
                        raise DataError(f"{path}: {name} has not {shard.kept} rows")
        except DataError as error:
            LOG.warning("a shard is made again: %s", error)
            return None
        return took

    def write(self, shard: Shard, kappa: np.ndarray, u: np.ndarray, seconds: float) -> None:
        """Store a finished shard atomically."""
        path = self._path(shard)
        remove_debris(path)
        meta = {**self._identity, **vars(shard), "seconds": seconds}
        write_arrays(path, "shard", meta, {"kappa": [kappa], "u": [u]})

    def read(self, shards: list[Shard], name: str) -> Iterator[np.ndarray]:
        """Yield `kappa` or `u` of shards, one after the other."""
        for shard in shards:
            with ArrayFile(self._path(shard), "shard") as file:
                yield from file.blocks(name)

    def remove(self) -> None:
        """Delete the shards, and the folder if nothing else is in it."""
        remove_numbered(self._folder, "*")
