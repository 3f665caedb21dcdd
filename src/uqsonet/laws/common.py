"""What laws beyond the Gaussian one share: training inputs and improbable values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from uqsonet.laws.bases import KarhunenLoeveBases

MIN_TAIL_NOISE = 0.01
"""Minimum noise that is assumed for the probability of values that a law cannot have, as a fraction
of the law's range or of the gap between its classes."""

MAX_CLASSES = 6
"""Maximum number of values that inputs take to count as classes."""


def classes_of(fields: Tensor) -> Tensor | None:
    """Return the values (K,) that inputs take, ascending; None where there are too many."""
    few = fields[:20].unique()
    if len(few) > MAX_CLASSES:
        return None
    values = fields.unique()
    return values.double() if 2 <= len(values) <= MAX_CLASSES else None


def farthest_tail(off: Tensor) -> Tensor:
    """Return the probability (1,) that noise moves one of m values as far as the farthest one.

    Parameters
    ----------
    off : Tensor, shape (m,)
        Distance of each value from what a law allows, in standard deviations of its noise.
    """
    if not len(off):
        return torch.ones(1, dtype=torch.float64)
    least = torch.special.erfc(off / math.sqrt(2)).amin()
    # The smallest of m probabilities is below p with probability 1 - (1 - p)^m.
    return -torch.expm1(len(off) * torch.log1p(-least.clamp_max(1 - 1e-15)))[None]


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
