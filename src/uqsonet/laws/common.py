"""What the laws of the input share: the noise of sensors, training inputs, improbable values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from uqsonet.operator.bases import KarhunenLoeveBases

SINGLE_PRECISION = 1e-6
"""Rounding error of the data, as a fraction of the field's standard deviation."""

MIN_TAIL_NOISE = 0.01
"""Minimum noise that is assumed for the probability of values that a law cannot have, as a fraction
of the law's range or of the gap between its classes."""


def sensor_noise(
    noise_std: float | Tensor, *errors: float | Tensor, norm: float | Tensor = 1.0
) -> Tensor:
    """Return the noise (standard deviation) that a sensor counts with when a law is conditioned.

    The stated noise and the errors of the values that a sensor reads are independent, so their
    variances add up. Without such errors, close sensors would ask the leading modes to explain
    rounding.

    Parameters
    ----------
    noise_std : float or Tensor, shape (..., m)
        Stated noise, in the transformed field.
    *errors : float or Tensor
        Standard deviations of the errors of the field's values, independent from point to point:
        what the modes leave out (`input_remainder` of the bases), and `rounding_noise`.
    norm : float or Tensor, shape (..., m)
        Euclidean norm of each sensor's weights (`Observations.norm`); 1 for sensors at points.
    """
    variance = torch.as_tensor(noise_std, dtype=torch.float64) ** 2
    for error in errors:
        variance = variance + (error * norm) ** 2
    return variance.sqrt()


def rounding_noise(bases: KarhunenLoeveBases) -> float:
    """Return the rounding error of the data, in the transformed input."""
    return SINGLE_PRECISION * float(bases.input_factor.double().square().sum(1).mean()) ** 0.5


def farthest_tail(off: Tensor, mask: Tensor) -> Tensor | None:
    """Return the probability (B,) that noise moves one of m values as far as the farthest one.

    Parameters
    ----------
    off : Tensor, shape (B, m)
        Distance of each value from what a law allows, in standard deviations of its noise.
    mask : Tensor of bool, shape (B, m)
    """
    if not off.shape[1]:
        return None
    least = torch.special.erfc(off.masked_fill(~mask, 0.0) / math.sqrt(2)).amin(-1)
    # The smallest of m probabilities is below p with probability 1 - (1 - p)^m.
    return -torch.expm1(mask.sum(-1).clamp_min(1) * torch.log1p(-least.clamp_max(1 - 1e-15)))


@dataclass(frozen=True)
class InputSample:
    """Training inputs in the form that laws are fitted to.

    Attributes
    ----------
    bases : KarhunenLoeveBases
    fields : Tensor, shape (N, n), float32
        Transformed inputs on the grid.
    coefficients : Tensor, shape (N, r), float64
        Standardised coefficients of these.
    remainder : Tensor, shape (N,), float64
        Root mean square of what the modes leave out of each input.
    """

    bases: KarhunenLoeveBases
    fields: Tensor
    coefficients: Tensor
    remainder: Tensor
