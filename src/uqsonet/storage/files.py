"""Files in general: atomic writes, digests, provenance."""

from __future__ import annotations

import glob
import hashlib
import importlib.metadata
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def system_error(error: BaseException) -> OSError | None:
    """Return the error of the system that a library mentions in its own (HDF5, safetensors)."""
    found = re.search(r"errno = (\d+)|\(os error (\d+)\)", str(error))
    if found is None:
        return None
    code = int(found[1] or found[2])
    return OSError(code, os.strerror(code))


def remove_numbered(folder: Path, stem: str) -> None:
    """Remove the files ``<stem>_<number>.h5`` of a folder, and it if nothing else is in it."""
    for pattern in (f"{stem}_[0-9]*.h5", f".{stem}_[0-9]*.h5.*.part"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


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


def of_any_version(meta: Meta) -> Meta:
    """Return a header without the version of this package: whether it counts, its source tells."""
    versions = dict(meta.get("versions", {}))
    versions.pop(FORMAT, None)
    return {**meta, "versions": versions}


def provenance() -> Meta:
    """Return versions and platform: what made a file, without times, so that bytes repeat."""
    packages = ("torch", "numpy", "scipy", "h5py")
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["uqsonet"] = __version__
    return {"versions": versions, "python": platform.python_version()}
