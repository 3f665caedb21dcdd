"""Files that last: HDF5 for arrays, safetensors for weights, CSV and JSON for results.

Every write goes to a temporary name in the same folder, is flushed to disk and then renamed, so
a killed job leaves the old file or the new one and never half of one. Every array carries a
SHA-256 digest besides HDF5's own fletcher32 checksums. Nothing here unpickles. The layout is
written down in docs/data-format.md.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors
import safetensors.torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.version import __version__

SCHEMA = 1
FORMAT = "uqsonet"
Meta = dict[str, Any]


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and rename it.

    Raises
    ------
    DataError
        If the disk is full or the folder cannot be written; the old file is untouched.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system allows opening a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def provenance() -> Meta:
    """Return versions and platform: what made a file, without times, so that bytes repeat."""
    packages = ("torch", "numpy", "scipy", "h5py")
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["uqsonet"] = __version__
    return {"versions": versions, "python": platform.python_version()}


def _array_digest(array: np.ndarray) -> str:
    header = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()


def _store(file: h5py.File, name: str, blocks: Sequence[np.ndarray]) -> None:
    """Store the concatenation of row blocks, chunked by row, with both checksums."""
    data = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
    options: Meta = {}
    if data.ndim and data.size:
        rows = max(1, min(len(data), (1 << 18) // max(1, data[0].nbytes)))
        options = {"chunks": (rows, *data.shape[1:]), "fletcher32": True}
    stored = file.create_dataset(name, data=data, **options)
    stored.attrs["sha256"] = _array_digest(data)


def write_arrays(
    path: Path, kind: str, meta: Meta, arrays: Mapping[str, Sequence[np.ndarray]]
) -> None:
    """Write an HDF5 file atomically.

    Parameters
    ----------
    path : Path
    kind : str
        What the file is: ``functions``, ``sensors`` or ``reference``.
    meta : dict
        JSON-serialisable attributes: problem, configuration fragment, seeds.
    arrays : dict of list of array
        Row blocks of each array; an array is their concatenation.
    """
    with atomic_path(path) as temporary, h5py.File(temporary, "w", libver="v110") as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema"] = SCHEMA
        file.attrs["kind"] = kind
        file.attrs["meta"] = json.dumps({**meta, **provenance()}, sort_keys=True)
        for name, blocks in arrays.items():
            _store(file, name, blocks)


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
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise DataError(f"{path}: not a readable HDF5 file ({error})") from None
        if attributes.get("format") != FORMAT:
            raise DataError(f"{path}: HDF5, but not written by uqsonet")
        if attributes.get("schema") != SCHEMA:
            found = attributes.get("schema")
            raise DataError(f"{path}: schema {found}, this version reads {SCHEMA}")
        if attributes.get("kind") != kind:
            raise DataError(f"{path}: holds {attributes.get('kind')!r}, expected {kind!r}")
        try:
            self.meta: Meta = json.loads(str(attributes["meta"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: header cannot be read ({error!r})") from None

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

        self._file.visititems(visit)
        return found

    def read(self, name: str, rows: slice | None = None, finite: bool = True) -> np.ndarray:
        """Return one array, or some of its rows.

        Raises
        ------
        DataError
            If it is absent, its checksum is wrong, or (unless `finite` is False) it holds a
            value that is not finite.
        """
        parts = name.split("/")
        try:
            for depth in range(1, len(parts) + 1):  # a group may be a link that leads elsewhere too
                link = self._file.get("/".join(parts[:depth]), getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise DataError(f"{self.path}: has no array {name!r}")
            item = self._file[name]
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: array {name!r} is corrupted ({error})") from None
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub" or item.external:
            raise DataError(f"{self.path}: {name!r} is not a plain numeric array")
        try:
            data: np.ndarray = item[...] if rows is None else item[rows]
        except OSError as error:
            raise DataError(f"{self.path}: array {name!r} is corrupted ({error})") from None
        if rows is None and item.attrs.get("sha256") != _array_digest(data):
            raise DataError(f"{self.path}: array {name!r} does not match its SHA-256 digest")
        if finite and data.dtype.kind == "f" and not np.isfinite(data).all():
            bad = np.argwhere(~np.isfinite(data))[0].tolist()
            raise DataError(f"{self.path}: array {name!r} is not finite at index {bad}")
        return data


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
            return str(file.attrs.get("kind", ""))
    except OSError as error:
        raise DataError(f"{path}: not a readable HDF5 file ({error})") from None


def write_weights(path: Path, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write tensors and a JSON header as safetensors, atomically."""
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {"schema": SCHEMA, "sha256": _tensors_digest(ready, meta), "meta": meta}
    # One key only: safetensors writes several in an order that differs from run to run.
    header = {FORMAT: json.dumps(content, sort_keys=True)}
    with atomic_path(path) as temporary:
        safetensors.torch.save_file(ready, temporary, metadata=header)


def _tensors_digest(tensors: Mapping[str, Tensor], meta: Meta) -> str:
    digests = {name: _array_digest(tensor.numpy()) for name, tensor in tensors.items()}
    return hashlib.sha256(json.dumps([digests, meta], sort_keys=True).encode()).hexdigest()


def read_weights(path: Path | str) -> tuple[dict[str, Tensor], Meta]:
    """Return tensors and header of a weight file.

    Raises
    ------
    DataError
        If the file is missing, damaged or foreign, or holds values that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(FORMAT)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (safetensors.SafetensorError, OSError, RuntimeError, struct.error) as error:
        raise DataError(f"{path}: not a readable safetensors file ({error})") from None
    if header is None:
        raise DataError(f"{path}: safetensors, but not written by uqsonet")
    try:
        content = json.loads(header)
        schema, digest, meta = content["schema"], content["sha256"], content["meta"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: header cannot be read ({error!r})") from None
    if schema != SCHEMA:
        raise DataError(f"{path}: schema {schema}, this version reads {SCHEMA}")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(f"{path}: tensor {name!r} holds a value that is not finite")
    if digest != _tensors_digest(tensors, meta):
        raise DataError(f"{path}: contents do not match their SHA-256 digest")
    return tensors, meta
