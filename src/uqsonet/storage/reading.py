"""Arrays in HDF5, read: whole, by rows or as a stream of blocks, and checked in each case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.operator_fields import OperatorFields
from uqsonet.storage.arrays import rows_of, seal_of, text_of
from uqsonet.storage.files import FORMAT, SCHEMA, Digest, Meta, system_error

BLOCK_BYTES = 1 << 24
"""Rows are read about this much at a time where the caller does not say how many."""

_UNREADABLE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)
"""What h5py raises for a damaged file, depending on where the damage is."""

_checked: set[tuple[object, ...]] = set()
"""Arrays of files, as they were then, that this process has read to the end and found whole."""


def _cause(error: Exception) -> str:
    """Return the reason in one line: the system's where there is one, else HDF5's."""
    return " ".join(str(system_error(error) or error).split())


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
        try:
            state = self.path.stat()
            self._state = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
            self._file = h5py.File(self.path, "r")
            attributes = dict(self._file.attrs)
        except _UNREADABLE as error:
            raise DataError(f"{path}: not a readable HDF5 file ({_cause(error)})") from None
        # Compared as text: a foreign file may hold anything here, arrays included.
        if text_of(attributes.get("format")) != FORMAT:
            raise DataError(f"{path}: HDF5, but not written by uqsonet")
        if text_of(attributes.get("schema")) != str(SCHEMA):
            found = attributes.get("schema")
            raise DataError(f"{path}: schema {found}, this version reads {SCHEMA}")
        found = text_of(attributes.get("kind"))
        if found != kind:
            raise DataError(f"{path}: holds {found!r}, expected {kind!r}")
        try:
            found = json.loads(text_of(attributes["meta"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: header cannot be read ({error!r})") from None
        if not isinstance(found, dict):
            raise DataError(f"{path}: header cannot be read (found {type(found).__name__})")
        self.meta: Meta = found
        if "seal" in attributes:  # files of earlier versions have none
            seal = seal_of(kind, text_of(attributes["meta"]), self._digests())
            if text_of(attributes["seal"]) != seal:
                raise DataError(f"{path}: header and arrays do not belong together")

    def _digests(self) -> dict[str, str]:
        return {name: self._digest_of(self._dataset(name), name) for name in self.names()}

    def _digest_of(self, item: h5py.Dataset, name: str) -> str:
        try:
            return text_of(item.attrs.get("sha256"))
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None

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
        try:
            return OperatorFields.from_dict(self.meta.get("fields"))
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None

    def names(self) -> list[str]:
        """Return the names of all arrays."""
        found: list[str] = []

        def visit(name: str, item: h5py.HLObject) -> None:
            if isinstance(item, h5py.Dataset):
                found.append(name)

        try:
            self._file.visititems(visit)
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: arrays cannot be listed ({_cause(error)})") from None
        return found

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
        try:
            for depth in range(1, len(parts) + 1):  # a group may be a link that leads elsewhere too
                link = self._file.get("/".join(parts[:depth]), getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise DataError(f"{self.path}: has no array {name!r}")
            item = self._file[name]
            if not isinstance(item, h5py.Dataset) or not _is_plain(item):
                raise DataError(f"{self.path}: {name!r} is not a plain numeric array")
            # Nothing is compressed: what promises more than it holds would fill the memory.
            if item.id.get_storage_size() < item.nbytes:
                raise DataError(f"{self.path}: array {name!r} is not complete")
        except DataError:
            raise
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None
        return item

    def _part(self, item: h5py.Dataset, name: str, part: slice | tuple[()]) -> np.ndarray:
        try:
            return np.asarray(item[part])
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None

    def _require_finite(self, name: str, bad: list[int] | None) -> None:
        if bad is not None:
            raise DataError(f"{self.path}: array {name!r} is not finite at index {bad}")


def _is_plain(item: h5py.Dataset) -> bool:
    """Whether an array is of numbers as this machine has them, all in this file."""
    numeric = item.dtype.kind in "fiub" and item.dtype.isnative
    return numeric and not item.external and not item.is_virtual


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
    try:
        with h5py.File(path, "r") as file:
            return text_of(file.attrs.get("kind", ""))
    except _UNREADABLE as error:
        raise DataError(f"{path}: not a readable HDF5 file ({_cause(error)})") from None
