"""What laws beyond the Gaussian one share: training inputs, least noise, improbable values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from uqsonet.operator.bases import KarhunenLoeveBases

LEAST_LEVEL = 1e-6
"""Noise of a sensor, relative to the field's standard deviation, that laws reckon with at least:
below it single precision of the data decides."""


def least_noise(bases: KarhunenLoeveBases) -> float:
    """Return the noise of a sensor that laws reckon with at least, in the transformed field."""
    return LEAST_LEVEL * float(bases.input_factor.double().square().sum(1).mean()) ** 0.5


LEAST_STEP = 0.01
"""Noise of a sensor, relative to the law's range or the gap of its classes, from which on a value
that the law cannot have counts as far from it."""


def farthest_tail(off: Tensor, mask: Tensor) -> Tensor | None:
    """Return the probability (B,) that noise puts any of m values as far off as the farthest is.

    Parameters
    ----------
    off : Tensor, shape (B, m)
        How far values are from what a law allows, in standard deviations of their noise.
    mask : Tensor of bool, shape (B, m)
    """
    if not off.shape[1]:
        return None
    least = torch.special.erfc(off.masked_fill(~mask, 0.0) / math.sqrt(2)).amin(-1)
    # The smallest of m probabilities is below p with probability 1 - (1 - p)^m.
    return -torch.expm1(mask.sum(-1).clamp_min(1) * torch.log1p(-least.clamp_max(1 - 1e-15)))


@dataclass(frozen=True)
class InputSample:
    """Training inputs as laws are fitted to them.

    Attributes
    ----------
    bases : KarhunenLoeveBases
    fields : Tensor, shape (N, n), float32
        Transformed inputs on the grid.
    coefficients : Tensor, shape (N, r), float64
        Standardised.
    remainder : Tensor, shape (N,), float64
        Root mean square of what the modes leave out of each input.
    """

    bases: KarhunenLoeveBases
    fields: Tensor
    coefficients: Tensor
    remainder: Tensor
