"""Files: atomic writes, digests, provenance, one message for a bad file."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import importlib.metadata
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uqsonet import __version__
from uqsonet.errors import DataError, ObservationError, UQSONetError

if TYPE_CHECKING:
    import numpy as np

SCHEMA, FORMAT = 1, "uqsonet"

LARGE = 1 << 28  # bytes of an array that stays on disk, and that no small file holds

PICTURES = (".png", ".pdf", ".svg")

Meta = dict[str, Any]


def system_error(error: BaseException) -> OSError | None:
    """Return the error of the system that a library mentions in its own (HDF5, safetensors)."""
    found = re.search(r"errno = (\d+)|\(os error (\d+)\)", str(error))
    if found is None:
        return None
    code = int(found[1] or found[2])
    return OSError(code, os.strerror(code))


@contextmanager
def readable(path: Path | str, what: str) -> Iterator[None]:
    """Turn whatever libraries raise at a damaged file into a `DataError`: path, `what`, cause.

    They may ask for more memory than there is, or leave the program.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, UQSONetError) and str(path) in str(error):
            raise
        cause: object = system_error(error) or error
        if isinstance(error, KeyError):
            cause = f"it has no {error}"
        if isinstance(error, MemoryError):
            cause = "it holds, or says that it holds, more than memory does"
        text = " ".join(f"{cause}".split()) or type(error).__name__
        raise DataError(f"{path}: {what} ({text[:1000]})") from None


def path_of(name: Path | str, done: str = "read") -> Path:
    """Return the path of a name, ``~`` being the home folder.

    It refuses (`DataError`) a name that the system cannot look up; `done` says what for.
    """
    try:
        path = Path(name).expanduser()
        if "\0" in str(path):
            raise ValueError("embedded null byte")
        path.exists()
    except TypeError:
        raise DataError(f"a path is needed, found {type(name).__name__}") from None
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{str(name)[:200]!r}: no path ({error})") from None
    except OSError as error:
        raise DataError(f"{str(name)[:200]}: cannot be {done}: {error.strerror}") from None
    return path


def text_of(value: object) -> str:
    """Return an attribute of a file as text, whatever it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Digest:
    """SHA-256 of an array's dtype and shape, then its bytes in C order, as they come."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._hash = hashlib.sha256(f"{dtype.str}{shape}".encode())

    def add(self, block: np.ndarray) -> None:
        """Take the next block of rows."""
        import numpy as np  # deferred: `uqsonet --help` is to come at once

        flat = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        self._hash.update(flat.data)  # no copy

    def hex(self) -> str:
        """Return the digest of what was taken so far."""
        return self._hash.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """Return the digest that is stored with an array."""
    digest = Digest(array.dtype, array.shape)
    digest.add(array)
    return digest.hex()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and rename it.

    Raises
    ------
    DataError
        If the disk is full or the folder cannot be written; the old file is untouched.
    """
    path = path_of(path, "written")
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


def require_writable(*paths: Path | None, read: Sequence[object] = ()) -> None:
    """Refuse (`DataError`) paths that cannot be written, before the work that they are for.

    One that is read, or written twice, is refused, too. Nothing is made: no file and no folder.
    """
    taken = {path_of(str(one)).resolve() for one in read if one is not None}
    for path in (path_of(one, "written") for one in paths if one is not None):
        if path.is_dir():
            raise DataError(f"{path}: cannot be written: it is a folder")
        if path.resolve() in taken:
            raise DataError(f"{path}: is read, or written twice: state another file")
        taken.add(path.resolve())
        there = next(one for one in path.absolute().parents if one.exists())
        try:
            tempfile.TemporaryFile(dir=there).close()
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


def require_picture(path: object) -> None:
    """Refuse (`DataError`) a file for a picture of no format that pictures have; None is none."""
    if path is not None and path_of(str(path)).suffix.lower() not in PICTURES:
        raise DataError(f"{path}: pictures end in {', '.join(PICTURES)}")


def require_memory(numbers: int, what: str) -> None:
    """Refuse (`ObservationError`) results of more double-precision numbers than memory holds."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 8 * numbers > memory:
        raise ObservationError(
            f"{what} take {8 * numbers / 1e9:.0f} GB, this machine has {memory / 1e9:.0f} GB: ask "
            "for fewer, or for fewer points at a time"
        )


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system allows opening a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_debris(path: Path) -> None:
    """Remove what writers of `path` left behind that were killed; no other may be at work."""
    chosen = "[a-z0-9_]" * 8  # by `tempfile`
    for part in Path(path).parent.glob(f".{glob.escape(Path(path).name)}.{chosen}.part"):
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
