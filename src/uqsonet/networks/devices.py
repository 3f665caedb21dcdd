"""Where tensors may live, and on what machine."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path

from uqsonet.errors import ConfigError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h

KEPT_BYTES = 2**25  # freed blocks of memory above this size go back to the system at once


def require_device(name: str) -> str:
    """Return `name` if torch can use that device; else a `ConfigError` says what there is."""
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", str(name)):
        raise ConfigError(f"jobs.device = {name!r}, allowed are 'cpu', 'cuda' and 'cuda:<number>'")
    if name.startswith("cuda"):
        import torch  # deferred: reports ask for the processor and need no torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(name.partition(":")[2] or 0)
        if index >= count:
            found = f"jobs.device = {name!r}, but torch sees {count} CUDA devices; use 'cpu'"
            if torch.version.cuda is None:
                found += f". This torch ({torch.__version__}) is a build without CUDA; in a clone "
                found += "`make env GPU=1` installs one with it"
            raise ConfigError(found)
    return name


def keep_freed_memory() -> None:
    """Let the C library keep what tensors give back, instead of returning it to the system.

    A training step frees and asks for the same few MiB again and again; fresh pages from the system
    have to be filled with zeros and mapped each time, which can take longer than the mathematics.
    Blocks of more than KEPT_BYTES are still given back: small tensors that outlive them would take
    a piece of each, and the memory of a process would grow with every one. Only glibc has this
    setting; elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def processor() -> str:
    """Return the processor's name: the same seed gives the same bytes on the same one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()
