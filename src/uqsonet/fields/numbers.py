"""Arrays of numbers as people hand them over: read, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError, UQSONetError

MAX_NOISE = 1e30  # largest accepted noise of a sensor; its square still fits in float64


def without_mask(
    value: Any, what: str, missing: bool = False, error: type[UQSONetError] = ObservationError
) -> Any:
    """Return what a caller passed without masks of `numpy.ma`, those of arrays in lists included.

    Masked values become NaN with `missing`, and are refused without; what has none is returned as
    it is. `what` names it in messages.
    """
    masked = _masked(value)
    if masked is None:
        return value
    if (count := int(np.ma.count_masked(masked))) and not missing:
        raise error(f"{what}: {count} of {masked.size} values are masked; leave them out")
    if not count or masked.dtype.kind not in "biufcO":
        return masked.data
    return np.ma.filled(masked.astype(np.float64) if masked.dtype.kind in "biu" else masked, np.nan)


def _masked(value: object) -> np.ma.MaskedArray | None:
    """Return a masked array, or a list of some, as one; None for what has no mask."""
    if isinstance(value, list | tuple) and any(_masked(part) is not None for part in value):
        parts = (part if (own := _masked(part)) is None else own for part in value)
        return np.ma.stack([np.ma.asarray(part) for part in parts])
    return value if isinstance(value, np.ma.MaskedArray) else None


def plain_array(
    value: Any, what: str, missing: bool = False, error: type[UQSONetError] = ObservationError
) -> np.ndarray:
    """Return what a caller passed as an array, without a mask; what is no array is refused."""
    try:
        if not isinstance(value, list | tuple | Tensor):
            value = np.asanyarray(value)  # with its mask, where it has one
        array = np.asarray(without_mask(value, what, missing, error))
    except UQSONetError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as cause:
        raise error(f"{what} must be a numeric array ({cause})") from None
    return array


def real_numbers(
    value: object,
    what: str,
    device: str | None = "cpu",
    missing: bool = False,
    error: type[UQSONetError] = ObservationError,
) -> Tensor:
    """Return a copy of a caller's array as float64; `what` names it in messages.

    A tensor comes to `device`, or with None stays on its own. With `missing`, masked values
    become NaN. It refuses what `plain_array` does, frames, and tensors that ask for gradients.
    """
    require_no_frame(value, what, error)
    if isinstance(value, Tensor) and (value.is_meta or value.is_nested or value.is_sparse):
        raise error(f"{what} must be a plain tensor with values")
    if isinstance(value, Tensor) and value.requires_grad:
        raise error(f"{what}: gradients do not flow through conditioning; pass {what}.detach()")
    if isinstance(value, Tensor) and not value.is_complex():
        return value.to(device, torch.float64, copy=True)
    array = plain_array(value, what, missing, error)
    if array.dtype.kind == "c":
        raise error(f"{what} must be real numbers, found complex ones")
    if array.dtype.kind in "SUMm":
        raise error(f"{what} must be a numeric array, found {array.dtype}")
    try:
        return torch.from_numpy(np.array(array, dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as cause:
        raise error(f"{what} must be a numeric array ({cause})") from None


def is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame, of pandas or another library, or xarray's."""
    return hasattr(value, "to_numpy" if hasattr(value, "columns") else "to_dataframe")


def require_no_frame(value: Any, what: str, error: type[UQSONetError] = ObservationError) -> None:
    """Refuse a DataFrame where nothing has a name that its columns could be taken by."""
    if is_frame(value) and hasattr(value, "columns"):
        names = ", ".join(map(str, value.columns))
        raise error(f"{what}: a table ({names}), but columns have no names here; pass an array")


def require_noise(noise_std: Tensor, what: str = "noise_std") -> None:
    """Refuse levels of noise that are negative or NaN, or whose square may not be finite."""
    wrong = noise_std[~((noise_std >= 0) & (noise_std <= MAX_NOISE))]
    if wrong.numel():
        raise ObservationError(
            f"{what} must be finite, at most {MAX_NOISE:g} and not negative, found "
            f"{float(wrong.flatten()[0]):g}"
        )
