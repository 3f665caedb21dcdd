"""Where tensors may live."""

from __future__ import annotations

import re

import torch

from uqsonet.errors import ConfigError


def require_device(name: str) -> str:
    """Return `name` if torch can use that device.

    Raises
    ------
    ConfigError
        Saying what there is.
    """
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise ConfigError(f"jobs.device = {name!r}, allowed are 'cpu', 'cuda' and 'cuda:<number>'")
    if name.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = int(name.partition(":")[2] or 0)
        if index >= count:
            raise ConfigError(
                f"jobs.device = {name!r}, but torch sees {count} CUDA devices; use 'cpu'"
            )
    return name
