"""What laws beyond the Gaussian one share: classes, improbable values, and samples set by set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from uqsonet.gauss.seeds import restarted
from uqsonet.laws.base import InputLaw, InputPosterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.sensors.sensors import Sensors

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


class Separately(InputPosterior):
    """The laws of several sets, each by itself: samples of one may take more random numbers."""

    def __init__(self, laws: Sequence[InputPosterior]) -> None:
        self._laws = laws
        tails = [law.tail for law in laws if law.tail is not None]
        self.tail = torch.cat(tails) if tails else None

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the samples of each set."""
        return torch.cat([law.sample(size, generator) for law in restarted(generator, self._laws)])


class WholeFields(InputPosterior):
    """A law that is sampled as fields on the grid, of which the modes hold a part."""

    def __init__(self, bases: KarhunenLoeveBases) -> None:
        self._bases = bases

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the coefficients of sampled fields."""
        every = self.fields(self._bases, size, generator)
        return torch.stack([self._bases.coefficients_of(fields) for fields in every])


class SeparateLaw(InputLaw):
    """A law that is conditioned on one set of sensors at a time."""

    separate = True

    posterior: ClassVar[Any]
    """Makes the law of the coefficients of this law, bases, and one set of sensors."""

    def condition(self, bases: KarhunenLoeveBases, sensors: Sensors) -> InputPosterior:
        """Return the law of the coefficients given sensors (`InputLaw.condition`)."""
        every = [self.posterior(self, bases, sensors.alone(b)) for b in range(len(sensors))]
        return every[0] if len(every) == 1 else Separately(every)
