"""Arrays in HDF5, written and read block by block, so that memory never has to hold a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from uqsonet.errors import DataError
from uqsonet.storage.files import FORMAT, SCHEMA, Meta, atomic_path, provenance, system_error

CHUNK_BYTES = 1 << 18
"""Size of a chunk on disk; part of the format, since another would change the bytes of files."""

BLOCK_BYTES = 1 << 24
"""Rows are read about this much at a time where the caller does not say how many."""


@dataclass(frozen=True)
class Stream:
    """An array that is written while its row blocks are made.

    Attributes
    ----------
    shape : tuple of int
        Shape of the whole array.
    dtype : dtype
    blocks : iterable of array
        Row blocks of that dtype, in order, any number of rows each; taken once.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    blocks: Iterable[np.ndarray]


_UNREADABLE = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError)
"""What h5py raises for a damaged file, depending on where the damage is."""


def _cause(error: Exception) -> str:
    """Return the reason in one line: the system's where there is one, else HDF5's."""
    return " ".join(str(system_error(error) or error).split())


class _Digest:
    """SHA-256 of an array's dtype and shape, then its bytes in C order, as they come."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._hash = hashlib.sha256(f"{dtype.str}{shape}".encode())

    def add(self, block: np.ndarray) -> None:
        flat = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        self._hash.update(flat.data)  # no copy

    def hex(self) -> str:
        return self._hash.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """Return the digest that is stored with an array."""
    digest = _Digest(array.dtype, array.shape)
    digest.add(array)
    return digest.hex()


def _fixed(text: str) -> np.bytes_:
    """Return a text as HDF5 keeps it in a header, under a checksum.

    Texts of variable length lie in a heap without one, where damage goes unseen or makes HDF5
    search for ever.
    """
    return np.bytes_(text.encode())


def _text(value: object) -> str:
    """Return an attribute as text, whatever it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _seal(kind: str, meta: str, digests: Mapping[str, str]) -> str:
    """Return the digest of a header and of which array has which digest."""
    content = json.dumps([kind, meta, dict(digests)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _rows(shape: tuple[int, ...], dtype: np.dtype, size: int) -> int:
    """Return how many rows of an array take up `size` bytes; at least one."""
    return max(1, size // max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))))


def _as_stream(blocks: Sequence[np.ndarray] | Stream) -> Stream:
    if isinstance(blocks, Stream):
        return blocks
    first = blocks[0]
    shape = (sum(map(len, blocks)), *first.shape[1:]) if first.ndim else ()
    return Stream(shape, first.dtype, blocks)


def _aligned(blocks: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Cut blocks anew at multiples of `rows`: each chunk is written once, whole, in order."""
    rest: np.ndarray | None = None
    for block in blocks:
        joined = block if rest is None or not len(rest) else np.concatenate([rest, block])
        whole = len(joined) // rows * rows
        if whole:
            yield joined[:whole]
        rest = joined[whole:]
    if rest is not None and len(rest):
        yield rest


def _checked(label: str, stream: Stream) -> Iterator[np.ndarray]:
    """Yield the blocks; refuse those of another dtype or width, and any other number of rows."""
    found = 0
    for block in stream.blocks:
        if block.dtype != stream.dtype or block.shape[1:] != stream.shape[1:]:
            raise DataError(
                f"{label}: a block is {block.dtype} {block.shape}, "
                f"the array {stream.dtype} {stream.shape}"
            )
        found += len(block)
        if found > stream.shape[0]:
            break
        yield block
    if found != stream.shape[0]:
        at_least = "at least " if found > stream.shape[0] else ""
        raise DataError(f"{label}: expected {stream.shape[0]} rows, got {at_least}{found}")


def _store(path: Path, file: h5py.File, name: str, stream: Stream) -> str:
    """Store an array, chunked by row, with both checksums; returns its digest."""
    shape, digest = stream.shape, _Digest(stream.dtype, stream.shape)
    options: Meta = {}
    if shape and np.prod(shape):
        rows = min(shape[0], _rows(shape, stream.dtype, CHUNK_BYTES))
        options = {"chunks": (rows, *shape[1:]), "fletcher32": True}
    stored = file.create_dataset(name, shape, stream.dtype, **options)
    if not shape:
        (scalar,) = stream.blocks
        stored[()] = scalar
        digest.add(scalar)
    else:
        first = 0
        for block in _aligned(
            _checked(f"{path}: array {name!r}", stream), options.get("chunks", (1,))[0]
        ):
            stored[first : first + len(block)] = block
            digest.add(block)
            first += len(block)
    stored.attrs["sha256"] = _fixed(digest.hex())
    stored.flush()  # raises if the disk is full; see `_written`
    return digest.hex()


def write_arrays(
    path: Path, kind: str, meta: Meta, arrays: Mapping[str, Sequence[np.ndarray] | Stream]
) -> dict[str, str]:
    """Write an HDF5 file atomically.

    Parameters
    ----------
    path : Path
    kind : str
        What the file is: ``functions``, ``shard``, ``sensors`` or ``reference``.
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
        with _written(temporary) as file:
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
def _written(temporary: Path) -> Iterator[h5py.File]:
    """Yield a new HDF5 file; on a full disk raise, which HDF5 at its closing does not.

    Blocks wait in HDF5's cache, and what fails while an array or a file is closed is printed and
    forgotten: without the flushes here and in `_store` a full disk would look like success.
    """
    file: h5py.File | None = None
    try:
        file = h5py.File(temporary, "w", libver="v110")
        yield file
        file.flush()
    except BaseException as error:
        if file is not None:
            _give_up(file)
        raise system_error(error) or error from None
    finally:
        if file is not None:
            file.close()


def _give_up(file: h5py.File) -> None:
    """Lead what the cache still holds into memory that is thrown away.

    HDF5 cannot close a file that it cannot write: it complains at every turn and crashes at exit.
    """
    if not hasattr(os, "memfd_create"):  # Linux has it
        return
    spare = os.memfd_create("unwritten")
    os.dup2(spare, file.id.get_vfd_handle())
    os.close(spare)


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
            self._file = h5py.File(self.path, "r")
            attributes = dict(self._file.attrs)
        except _UNREADABLE as error:
            raise DataError(f"{path}: not a readable HDF5 file ({_cause(error)})") from None
        # Compared as text: a foreign file may hold anything here, arrays included.
        if _text(attributes.get("format")) != FORMAT:
            raise DataError(f"{path}: HDF5, but not written by uqsonet")
        if _text(attributes.get("schema")) != str(SCHEMA):
            found = attributes.get("schema")
            raise DataError(f"{path}: schema {found}, this version reads {SCHEMA}")
        found = _text(attributes.get("kind"))
        if found != kind:
            raise DataError(f"{path}: holds {found!r}, expected {kind!r}")
        try:
            found = json.loads(_text(attributes["meta"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: header cannot be read ({error!r})") from None
        if not isinstance(found, dict):
            raise DataError(f"{path}: header cannot be read (found {type(found).__name__})")
        self.meta: Meta = found
        if "seal" in attributes:  # files of earlier versions have none
            seal = _seal(kind, _text(attributes["meta"]), self._digests())
            if _text(attributes["seal"]) != seal:
                raise DataError(f"{path}: header and arrays do not belong together")

    def _digests(self) -> dict[str, str]:
        return {name: self._digest_of(self._dataset(name), name) for name in self.names()}

    def _digest_of(self, item: h5py.Dataset, name: str) -> str:
        try:
            return _text(item.attrs.get("sha256"))
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

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
        digest after the last one: who stops early has not checked the array.

        Raises
        ------
        DataError
            As `read`.
        """
        item = self._dataset(name)
        digest = _Digest(item.dtype, item.shape)
        step = rows or _rows(item.shape, item.dtype, BLOCK_BYTES)
        bad: list[int] | None = None
        for first in range(0, item.shape[0] if item.ndim else 1, step):
            part = slice(first, first + step) if item.ndim else ()
            block = self._part(item, name, part)
            digest.add(block)
            # Read on after a bad value: the digest tells damage from what was written so.
            bad = bad or (_first_bad(block, first) if finite else None)
            if bad is None:
                yield block
        if self._digest_of(item, name) != digest.hex():
            raise DataError(f"{self.path}: array {name!r} does not match its SHA-256 digest")
        self._require_finite(name, bad)

    def _dataset(self, name: str) -> h5py.Dataset:
        parts = name.split("/")
        try:
            for depth in range(1, len(parts) + 1):  # a group may be a link that leads elsewhere too
                link = self._file.get("/".join(parts[:depth]), getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise DataError(f"{self.path}: has no array {name!r}")
            item = self._file[name]
            plain = isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub"
            plain = plain and item.dtype.isnative
            plain = plain and not item.external and not item.is_virtual
            # Nothing is compressed: what promises more than it holds would fill the memory.
            whole = plain and item.id.get_storage_size() >= item.nbytes
        except _UNREADABLE as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None
        if not plain:
            raise DataError(f"{self.path}: {name!r} is not a plain numeric array")
        if not whole:
            raise DataError(f"{self.path}: array {name!r} is not complete")
        return item

    def _part(self, item: h5py.Dataset, name: str, part: slice | tuple[()]) -> np.ndarray:
        try:
            return np.asarray(item[part])
        except _UNREADABLE as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({_cause(error)})") from None

    def _require_finite(self, name: str, bad: list[int] | None) -> None:
        if bad is not None:
            raise DataError(f"{self.path}: array {name!r} is not finite at index {bad}")


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
            return _text(file.attrs.get("kind", ""))
    except _UNREADABLE as error:
        raise DataError(f"{path}: not a readable HDF5 file ({_cause(error)})") from None
