"""Files in general: atomic writes, digests of files, provenance; all of `common` beside them."""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uqsonet.errors import DataError
from uqsonet.storage.common import (
    FORMAT,
    SCHEMA,
    Digest,
    Meta,
    array_digest,
    system_error,
)
from uqsonet.version import __version__

__all__ = [
    "FORMAT",
    "SCHEMA",
    "Digest",
    "Meta",
    "array_digest",
    "atomic_path",
    "file_digest",
    "provenance",
    "remove_debris",
    "system_error",
    "write_text",
]


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
        umask = os.umask(0o077)  # there is no way to read it but to set it
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
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


def remove_debris(path: Path) -> None:
    """Remove what writers of `path` left behind that were killed; no other may be at work."""
    for part in Path(path).parent.glob(f".{glob.escape(Path(path).name)}.*.part"):
        part.unlink(missing_ok=True)


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
    packages = ("torch", "numpy", "h5py")
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["uqsonet"] = __version__
    return {"versions": versions, "python": platform.python_version()}
