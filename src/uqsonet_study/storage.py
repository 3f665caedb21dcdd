"""Arrays in HDF5, written and read block by block, so that memory never has to hold a file.

A file has a kind, a header in JSON, and arrays. Every array carries HDF5's own checksums and a
SHA-256 digest; the seal is the digest of the header and of which array has which digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import (
    FORMAT,
    SCHEMA,
    Digest,
    Meta,
    atomic_path,
    provenance,
    readable,
    system_error,
    text_of,
)
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.runs.functions import Functions
from uqsonet.runs.guard import data_sets

CHUNK_BYTES = 1 << 18
"""Size of a chunk on disk; part of the format, since another would change the bytes of files."""

BLOCK_BYTES = 1 << 24
"""Rows are read about this much at a time where the caller does not say how many."""

_digested: set[tuple[object, ...]] = set()
"""Arrays of files, as they were then, whose digest this process has compared."""


@dataclass(frozen=True)
class Stream:
    """An array that is written while its row blocks are made."""

    shape: tuple[int, ...]  # shape of the whole array
    dtype: np.dtype
    # row blocks of that dtype, in order, any number of rows each; taken once
    blocks: Iterable[np.ndarray]


def write_arrays(
    path: Path, kind: str, meta: Meta, arrays: Mapping[str, Sequence[np.ndarray] | Stream]
) -> dict[str, str]:
    """Write an HDF5 file atomically.

    Parameters
    ----------
    kind : str
        What the file is: ``functions``, ``sensors``, ``reference`` or ``part``.
    meta : dict
        JSON-serialisable attributes: problem, configuration fragment, seeds.
    arrays : dict of list of array, or of Stream
        Row blocks of each array; an array is their concatenation. How it is cut changes no byte.

    Returns
    -------
    dict of str to str
        SHA-256 of each array.

    Raises
    ------
    DataError
        If a stream brings other rows than announced, or the file cannot be written; an old file
        is untouched.
    """
    with atomic_path(path) as temporary:
        with _created(temporary) as file:
            text = json.dumps({**meta, **provenance()}, sort_keys=True)
            file.attrs["schema"] = SCHEMA
            for key, value in (("format", FORMAT), ("kind", kind), ("meta", text)):
                file.attrs[key] = _fixed(value)
            digests = {
                name: _store(path, file, name, _as_stream(blocks))
                for name, blocks in arrays.items()
            }
            file.attrs["seal"] = _fixed(_seal(kind, text, digests))
        with h5py.File(temporary, "r"):  # refuses a file that is shorter than it says
            return digests


@contextmanager
def _created(path: Path) -> Iterator[h5py.File]:
    """Yield a new HDF5 file; raise on a full disk, which HDF5 does not when it closes a file.

    A file that cannot be written would crash HDF5 at its next use. So what is in its cache goes to
    a scratch file in memory.
    """
    with h5py.File(path, "w", libver="v110") as file:
        try:
            yield file
            file.flush()
        except BaseException as error:
            if hasattr(os, "memfd_create"):  # Linux has it
                scratch = os.memfd_create("unwritten")
                os.dup2(scratch, file.id.get_vfd_handle())
                os.close(scratch)
            raise system_error(error) or error from None


def _fixed(text: str) -> np.bytes_:
    """Return a text as HDF5 keeps it in a header, under a checksum.

    Texts of variable length lie in a heap without one, where damage goes unseen.
    """
    return np.bytes_(text.encode())


def _seal(kind: str, meta: str, digests: Mapping[str, str]) -> str:
    """Return the digest of a header and of which array has which digest."""
    content = json.dumps([kind, meta, dict(digests)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _rows_of(shape: tuple[int, ...], dtype: np.dtype, size: int) -> int:
    """Return how many rows of an array take up `size` bytes; at least one."""
    return max(1, size // max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))))


def _as_stream(blocks: Sequence[np.ndarray] | Stream) -> Stream:
    """Return arrays that are there as a stream."""
    if isinstance(blocks, Stream):
        return blocks
    first = blocks[0]
    shape = (sum(map(len, blocks)), *first.shape[1:]) if first.ndim else ()
    return Stream(shape, first.dtype, blocks)


def _aligned(label: str, stream: Stream, rows: int) -> Iterator[np.ndarray]:
    """Yield blocks that are cut anew at multiples of `rows`: each chunk is written once, whole.

    Blocks of another type or width are refused, and any other number of rows than announced.
    """
    rest, count = np.empty((0, *stream.shape[1:]), stream.dtype), 0
    for block in stream.blocks:
        if block.dtype != stream.dtype or block.shape[1:] != stream.shape[1:]:
            raise DataError(
                f"{label}: a block is {block.dtype} {block.shape}, "
                f"the array {stream.dtype} {stream.shape}"
            )
        count += len(block)
        if count > stream.shape[0]:
            raise DataError(f"{label}: expected {stream.shape[0]} rows, got at least {count}")
        joined = np.concatenate([rest, block]) if len(rest) else block
        whole = len(joined) // rows * rows
        if whole:
            yield joined[:whole]
        rest = joined[whole:]
    if count != stream.shape[0]:
        raise DataError(f"{label}: expected {stream.shape[0]} rows, got {count}")
    if len(rest):
        yield rest


def _store(path: Path, file: h5py.File, name: str, stream: Stream) -> str:
    """Store an array, chunked by row, with both checksums; return its digest."""
    shape, digest = stream.shape, Digest(stream.dtype, stream.shape)
    options: Meta = {}
    if shape and np.prod(shape):
        rows = min(shape[0], _rows_of(shape, stream.dtype, CHUNK_BYTES))
        options = {"chunks": (rows, *shape[1:]), "fletcher32": True}
    stored = file.create_dataset(name, shape, stream.dtype, **options)
    if not shape:
        (scalar,) = stream.blocks
        stored[()] = scalar
        digest.add(scalar)
    else:
        first = 0
        rows = options.get("chunks", (1,))[0]
        for block in _aligned(f"{path}: array {name!r}", stream, rows):
            stored[first : first + len(block)] = block
            digest.add(block)
            first += len(block)
    stored.attrs["sha256"] = _fixed(digest.hex())
    stored.flush()  # raises on a full disk
    return digest.hex()


class ArrayFile:
    """A validated HDF5 file of this project, opened for reading.

    Parameters
    ----------
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
        with readable(path, "not a readable HDF5 file"):
            state = self.path.stat()
            self._state = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
            self._file = h5py.File(self.path, "r")
        try:
            with readable(path, "arrays cannot be listed"):
                self._items = dict(data_sets(self._file))
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
            schema = attributes.get("schema")
            raise DataError(f"{path}: schema {schema}, this version reads {SCHEMA}")
        own = text_of(attributes.get("kind"))
        if own != kind:
            raise DataError(f"{path}: holds {own!r}, expected {kind!r}")
        with readable(path, "header cannot be read"):
            meta = json.loads(text_of(attributes["meta"]))
            if not isinstance(meta, dict):
                raise TypeError(f"it holds {type(meta).__name__}")
        if "seal" in attributes:  # files of earlier versions have none
            digests = {name: self._digest_of(name) for name in self.names()}
            if text_of(attributes["seal"]) != _seal(kind, text_of(attributes["meta"]), digests):
                raise DataError(f"{path}: header and arrays do not belong together")
        return meta

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
        """Return the names of all arrays; links are none."""
        return [name for name, item in self._items.items() if isinstance(item, h5py.Dataset)]

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
        digest after the last one, once for an unchanged file: it takes as long as reading does.

        Raises
        ------
        DataError
            As `read`.
        """
        item = self._dataset(name)
        this = *self._state, name
        known = this in _digested
        digest = Digest(item.dtype, item.shape)
        step = rows or _rows_of(item.shape, item.dtype, BLOCK_BYTES)
        bad: list[int] | None = None
        for first in range(0, item.shape[0] if item.ndim else 1, step):
            block = self._part(item, name, slice(first, first + step) if item.ndim else ())
            if not known:
                digest.add(block)
                # Read on after a bad value: the digest tells damage from what was written so.
                bad = bad or (_first_bad(block, first) if finite else None)
            if bad is None:
                yield block
        if known:
            return
        if self._digest_of(name) != digest.hex():
            raise DataError(f"{self.path}: array {name!r} does not match its SHA-256 digest")
        self._require_finite(name, bad)
        if finite:
            _digested.add(this)

    def _digest_of(self, name: str) -> str:
        """Return the digest that is stored with an array."""
        item = self._dataset(name)
        with readable(self.path, f"array {name!r} is corrupted"):
            return text_of(item.attrs.get("sha256"))

    def _dataset(self, name: str) -> h5py.Dataset:
        """Return an array of plain numbers that is in this file as a whole."""
        item = self._items.get(name)
        if item is None:
            raise DataError(f"{self.path}: has no array {name!r}")
        with readable(self.path, f"array {name!r} is corrupted"):
            if isinstance(item, str) or not _is_plain(item):
                raise DataError(f"{self.path}: {name!r} is not a plain numeric array")
            # Nothing is compressed: what promises more than it holds would fill the memory.
            size, chunk = self._state[2], math.prod(item.chunks or ()) * item.dtype.itemsize
            stored = min(item.id.get_storage_size(), size)
            if stored < item.nbytes or max((chunk, *item.shape)) > size:
                raise DataError(f"{self.path}: array {name!r} is not complete")
        return item

    def _part(self, item: h5py.Dataset, name: str, part: slice | tuple[()]) -> np.ndarray:
        """Return some rows of an array."""
        with readable(self.path, f"array {name!r} is corrupted"):
            return np.asarray(item[part])

    def _require_finite(self, name: str, bad: list[int] | None) -> None:
        """Refuse an array by the index of its first value that is not finite."""
        if bad is not None:
            raise DataError(f"{self.path}: array {name!r} is not finite at index {bad}")


def _is_plain(item: h5py.Dataset) -> bool:
    """Return whether an array is of numbers as this machine has them, packed by no filter."""
    numeric = item.dtype.kind in "fiub" and item.dtype.isnative and item.dtype.itemsize <= 8
    plist = item.id.get_create_plist()
    filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
    return item.shape is not None and numeric and filters <= {h5py.h5z.FILTER_FLETCHER32}


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
    with readable(path, "not a readable HDF5 file"), h5py.File(path, "r") as file:
        return text_of(file.attrs.get("kind", ""))


def load_functions(path: Path, split: str, first: int | None = None) -> Functions:
    """Open one split of a functions file; values are read, and checked, when they are used.

    Parameters
    ----------
    first : int, optional
        Take that many pairs from the start: the data set of that size. By default all.

    Raises
    ------
    DataError
        If the file is damaged or has too few pairs; where values are read, if they are damaged,
        not finite, or not positive in a coefficient.
    """
    with ArrayFile(path, "functions") as file:
        fields, (size, _) = file.fields(), file.shape(f"{split}/u")
    points = fields.output.grid.size if split != "training" else fields.training_grid()[0].size
    columns = {"kappa": fields.input.grid.size, "u": points}
    if first is not None and first > size:
        raise DataError(f"{path}: has {size} {split} pairs, asked for {first}")

    def stream(name: str, positive: bool) -> Callable[[int], Iterator[Tensor]]:
        def blocks(rows: int) -> Iterator[Tensor]:
            with ArrayFile(path, "functions") as file:
                for block in file.blocks(f"{split}/{name}", rows):
                    if positive and not (block > 0).all():
                        least = f"must be positive, found {block.min()}"
                        raise DataError(f"{path}: {split}/{name} {least}")
                    yield torch.from_numpy(block)

        return blocks

    kappa = RowBlocks((size, columns["kappa"]), stream("kappa", fields.input.transform.positive))
    u = RowBlocks((size, points), stream("u", False))
    if first is None or first == size:
        return Functions(fields, split, kappa, u)
    return Functions(fields, split, _first_rows(kappa, first), _first_rows(u, first))


def _first_rows(matrix: RowBlocks, size: int) -> RowBlocks:
    """Return the first rows; a pass still reads to the end, where a file's digest is checked."""

    def blocks(rows: int) -> Iterator[Tensor]:
        left = size
        for block in matrix.blocks(rows):
            if left > 0:
                yield block[:left]
            left -= len(block)

    return RowBlocks((size, matrix.shape[1]), blocks)
