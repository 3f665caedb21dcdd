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
from uqsonet.files import FORMAT, SCHEMA, Digest, Meta, atomic_path, provenance, system_error

CHUNK_BYTES = 1 << 18
"""Size of a chunk on disk; part of the format, since another would change the bytes of files."""


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


def _fixed(text: str) -> np.bytes_:
    """Return a text as HDF5 keeps it in a header, under a checksum.

    Texts of variable length lie in a heap without one, where damage goes unseen or makes HDF5
    search for ever.
    """
    return np.bytes_(text.encode())


def seal_of(kind: str, meta: str, digests: Mapping[str, str]) -> str:
    """Return the digest of a header and of which array has which digest."""
    content = json.dumps([kind, meta, dict(digests)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def rows_of(shape: tuple[int, ...], dtype: np.dtype, size: int) -> int:
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
    shape, digest = stream.shape, Digest(stream.dtype, stream.shape)
    options: Meta = {}
    if shape and np.prod(shape):
        rows = min(shape[0], rows_of(shape, stream.dtype, CHUNK_BYTES))
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
        with _written(temporary) as file:
            text = json.dumps({**meta, **provenance()}, sort_keys=True)
            file.attrs["schema"] = SCHEMA
            for key, value in (("format", FORMAT), ("kind", kind), ("meta", text)):
                file.attrs[key] = _fixed(value)
            digests = {
                name: _store(path, file, name, _as_stream(blocks))
                for name, blocks in arrays.items()
            }
            file.attrs["seal"] = _fixed(seal_of(kind, text, digests))
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
