"""Arrays in HDF5, read: whole, by rows or as a stream of blocks, and checked in each case."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import FORMAT, SCHEMA, Digest, Meta, readable, require_solid
from uqsonet.runs.guard import elsewhere, text_of
from uqsonet_study.storage.arrays import rows_of, seal_of

BLOCK_BYTES = 1 << 24
"""Rows are read about this much at a time where the caller does not say how many."""


DEEPEST, MOST = 3, 10_000
"""Groups within each other, and arrays, of one file; ours have one level and some hundreds."""


_checked: set[tuple[object, ...]] = set()
"""Arrays of files, as they were then, that this process has read to the end and found whole."""


class ArrayFile:
    """A validated HDF5 file of this project, opened for reading.

    Parameters
    ----------
    path : Path
    kind : str
        Expected kind.

    Raises
    ------
    DataError
        If the file is missing, truncated, foreign, of another kind or schema.
    """

    def __init__(self, path: Path | str, kind: str) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"{path}: no such file")
        require_solid(self.path)
        with readable(path, "not a readable HDF5 file"):
            state = self.path.stat()
            self._state = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
            self._file = h5py.File(self.path, "r")
        try:
            self.meta: Meta = self._accepted(kind)
        except BaseException:
            self._file.close()
            raise

    def _accepted(self, kind: str) -> Meta:
        """Return the header of a file that is what it should be."""
        path = self.path
        with readable(path, "not a readable HDF5 file"):
            attributes = dict(self._file.attrs)
        # Compared as text: a foreign file may hold anything here, arrays included.
        if text_of(attributes.get("format")) != FORMAT:
            raise DataError(f"{path}: HDF5, but not written by uqsonet")
        if text_of(attributes.get("schema")) != str(SCHEMA):
            found = attributes.get("schema")
            raise DataError(f"{path}: schema {found}, this version reads {SCHEMA}")
        found = text_of(attributes.get("kind"))
        if found != kind:
            raise DataError(f"{path}: holds {found!r}, expected {kind!r}")
        with readable(path, "header cannot be read"):
            meta = json.loads(text_of(attributes["meta"]))
            if not isinstance(meta, dict):
                raise TypeError(f"found {type(meta).__name__}")
        if "seal" in attributes:  # files of earlier versions have none
            seal = seal_of(kind, text_of(attributes["meta"]), self._digests())
            if text_of(attributes["seal"]) != seal:
                raise DataError(f"{path}: header and arrays do not belong together")
        return meta

    def _digests(self) -> dict[str, str]:
        return {name: self._digest_of(self._dataset(name), name) for name in self.names()}

    def _digest_of(self, item: h5py.Dataset, name: str) -> str:
        with readable(self.path, f"array {name!r} is corrupted"):
            return text_of(item.attrs.get("sha256"))

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fields(self) -> OperatorFields:
        """Return the fields that the header describes.

        Raises
        ------
        DataError
            If there are none, or they cannot be read.
        """
        with readable(self.path, "header cannot be read"):
            return OperatorFields.from_dict(self.meta.get("fields"))

    def names(self) -> list[str]:
        """Return the names of all arrays; links that lead elsewhere are none."""
        with readable(self.path, "arrays cannot be listed"):
            return list(self._names(self._file, "", DEEPEST))

    def _names(self, group: h5py.Group, above: str, levels: int) -> Iterator[str]:
        # Not by `visititems`, which goes as deep as a file says.
        if len(group) > MOST or not levels:
            raise ValueError(f"more than {MOST} in a group, or {DEEPEST} groups within each other")
        for key in group:
            if not isinstance(key, str):  # bytes that are no text
                raise TypeError(f"a name is {key!r}")
            name = above + key
            name.encode()  # raises what one that is no text would raise when it is printed
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                continue
            item = group[key]
            if isinstance(item, h5py.Dataset):
                yield name
            elif isinstance(item, h5py.Group):
                yield from self._names(item, f"{name}/", levels - 1)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array without reading it."""
        return self._dataset(name).shape

    def read(self, name: str, rows: slice | None = None, finite: bool = True) -> np.ndarray:
        """Return one array, or some of its rows; takes the memory of the array and of a block.

        Raises
        ------
        DataError
            If it is absent, its checksum is wrong, or (unless `finite` is False) it holds a
            value that is not finite.
        """
        item = self._dataset(name)
        if rows is not None:
            data = self._part(item, name, rows)
            self._require_finite(name, _first_bad(data) if finite else None)
            return data
        data, first = np.empty(item.shape, item.dtype), 0
        for block in self.blocks(name, finite=finite):
            if not block.ndim:
                return block
            data[first : first + len(block)] = block
            first += len(block)
        return data

    def blocks(
        self, name: str, rows: int | None = None, finite: bool = True
    ) -> Iterator[np.ndarray]:
        """Yield one array in blocks of `rows` rows; what `read` refuses is refused here.

        Chunk checksums and finiteness are checked before a block is handed out, the SHA-256
        digest after the last one: who stops early has not checked the array. Who reads an
        unchanged file again has its chunk checksums checked alone: the digest takes as long as
        reading does.

        Raises
        ------
        DataError
            As `read`.
        """
        item = self._dataset(name)
        this = *self._state, name
        known = this in _checked
        digest = Digest(item.dtype, item.shape)
        step = rows or rows_of(item.shape, item.dtype, BLOCK_BYTES)
        bad: list[int] | None = None
        for first in range(0, item.shape[0] if item.ndim else 1, step):
            part = slice(first, first + step) if item.ndim else ()
            block = self._part(item, name, part)
            if known:
                yield block
                continue
            digest.add(block)
            # Read on after a bad value: the digest tells damage from what was written so.
            bad = bad or (_first_bad(block, first) if finite else None)
            if bad is None:
                yield block
        if known:
            return
        if self._digest_of(item, name) != digest.hex():
            raise DataError(f"{self.path}: array {name!r} does not match its SHA-256 digest")
        self._require_finite(name, bad)
        if finite:
            _checked.add(this)

    def _dataset(self, name: str) -> h5py.Dataset:
        parts = name.split("/")
        with readable(self.path, f"array {name!r} is corrupted"):
            for depth in range(1, len(parts) + 1):  # a group may be a link that leads elsewhere too
                link = self._file.get("/".join(parts[:depth]), getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise DataError(f"{self.path}: has no array {name!r}")
            item = self._file[name]
            if not isinstance(item, h5py.Dataset) or not _is_plain(item):
                raise DataError(f"{self.path}: {name!r} is not a plain numeric array")
            # Nothing is compressed: what promises more than it holds would fill the memory, and
            # rows of no bytes would be counted for ever.
            size, chunk = self._state[2], math.prod(item.chunks or ()) * item.dtype.itemsize
            stored = min(item.id.get_storage_size(), size)
            if stored < item.nbytes or max((chunk, *item.shape)) > size:
                raise DataError(f"{self.path}: array {name!r} is not complete")
        return item

    def _part(self, item: h5py.Dataset, name: str, part: slice | tuple[()]) -> np.ndarray:
        with readable(self.path, f"array {name!r} is corrupted"):
            return np.asarray(item[part])

    def _require_finite(self, name: str, bad: list[int] | None) -> None:
        if bad is not None:
            raise DataError(f"{self.path}: array {name!r} is not finite at index {bad}")


def _is_plain(item: h5py.Dataset) -> bool:
    """Whether an array is of numbers as this machine has them, all in this file."""
    there = item.shape is not None and not elsewhere(item)
    numeric = item.dtype.kind in "fiub" and item.dtype.isnative and item.dtype.itemsize <= 8
    plist = item.id.get_create_plist()
    filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
    return there and numeric and filters <= {h5py.h5z.FILTER_FLETCHER32}


def _first_bad(block: np.ndarray, first: int = 0) -> list[int] | None:
    """Return the index of the first value that is not finite; row `first` opens the block."""
    if block.dtype.kind != "f" or np.isfinite(block).all():
        return None
    row, *rest = np.argwhere(~np.isfinite(np.atleast_1d(block)))[0].tolist()
    return [first + row, *rest] if block.ndim else []


def array_kind(path: Path) -> str:
    """Return what an HDF5 file of this project says it holds, or an empty string.

    Raises
    ------
    DataError
        If it is not a readable HDF5 file.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    require_solid(path)
    with readable(path, "not a readable HDF5 file"), h5py.File(path, "r") as file:
        return text_of(file.attrs.get("kind", ""))
