"""What all readers share: format, digests, one message for a bad file. Every model loads it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import DataError, UQSONetError

SCHEMA = 1
FORMAT = "uqsonet"
LARGE, EXTENTS = 1 << 28, 1000
"""Bytes from which on a file must not be hollow; stretches of it that are looked at."""
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
    """Turn what a damaged or forged file raises into a `DataError`: path, `what`, cause."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, UQSONetError) and str(path) in str(error):
            raise
        cause = system_error(error) or error
        cause = f"it has no {error}" if isinstance(error, KeyError) else cause
        text = " ".join(f"{cause}".split()) or type(error).__name__
        text = text[:1000].encode("utf-8", "backslashreplace").decode()
        raise DataError(f"{path}: {what} ({text})") from None


def require_solid(path: Path) -> None:
    """Refuse a large file that is nearly all holes: it claims what was never written.

    Raises
    ------
    DataError
        If less than an eighth of it is there.
    """
    size, held, place = path.stat().st_size, 0, 0
    if size < LARGE or not hasattr(os, "SEEK_HOLE"):
        return
    with path.open("rb") as file:
        for _ in range(EXTENTS):
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no file system that knows holes
                    return
                break  # no data behind this place
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            held += place - start
            if held >= size // 8:
                return
    raise DataError(f"{path}: says it has {size} bytes, but nearly all of it is a hole")


class Digest:
    """SHA-256 of an array's dtype and shape, then its bytes in C order, as they come."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._hash = hashlib.sha256(f"{dtype.str}{shape}".encode())

    def add(self, block: np.ndarray) -> None:
        """Take the next block of rows."""
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
