"""Laws of the noise of readings that are not Gaussian (`uqsonet.Emulator.condition`).

Laws of single readings (`Student`, `Laplace`, `Uniform`) take their scale from each sensor's
`noise_std`, in the transformed field. `MeanAbsolute` is a law of all readings together, in the
field's own units, and so is any function ``f(predicted (S, m), readings (m,)) -> (S,)``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from uqsonet.errors import ObservationError

WALL = 1000.0
"""Beyond a hard end a likelihood falls by a factor of e each thousandth of the width: samples can
then be led there from afar."""


def _require_positive(name: str, value: object) -> None:
    if not isinstance(value, int | float) or not value > 0:
        raise ObservationError(f"{name} must be positive, found {value!r}")


class ReadingLaw(ABC):
    """The law of the noise of single readings, in units of their `noise_std`."""

    walled: ClassVar[bool] = False
    """Whether there are ends."""

    @abstractmethod
    def log_density(self, off: Tensor) -> Tensor:
        """Return logarithms (S, m) of the density, up to a constant, of distances (S, m)."""

    def nearest(self, square: Tensor) -> Tensor:
        """Return the std (m,) of the nearest Gaussian for mean squared distances (m,)."""
        return torch.ones_like(square)


@dataclass(frozen=True)
class Student(ReadingLaw):
    """Student's t: a few readings may be far off. `noise_std` is the scale, not the std.

    Attributes
    ----------
    df : float
        Degrees of freedom, positive; the fewer, the more outliers.
    """

    df: float = 4.0

    def __post_init__(self) -> None:
        _require_positive("df", self.df)

    def log_density(self, off: Tensor) -> Tensor:
        """Return the logarithm of the density."""
        return -(self.df + 1) / 2 * (off.square() / self.df).log1p()

    def nearest(self, square: Tensor) -> Tensor:
        """Return the std that expectation maximisation gives."""
        return ((self.df + square) / (self.df + 1)).sqrt()


@dataclass(frozen=True)
class Laplace(ReadingLaw):
    """Two-sided exponential noise of standard deviation `noise_std`."""

    def log_density(self, off: Tensor) -> Tensor:
        """Return the logarithm of the density."""
        return -math.sqrt(2) * off.abs()

    def nearest(self, square: Tensor) -> Tensor:
        """Return the std that expectation maximisation gives."""
        return (square / 2).sqrt().clamp_min(1e-4).sqrt()


@dataclass(frozen=True)
class Uniform(ReadingLaw):
    """Noise that is as likely anywhere within sqrt(3) times `noise_std`, its standard deviation."""

    walled = True

    def log_density(self, off: Tensor) -> Tensor:
        """Return zero within the ends, and what is practically nothing beyond (`WALL`)."""
        return -WALL * (off.abs() / math.sqrt(3) - 1).clamp_min(0)


@dataclass(frozen=True)
class MeanAbsolute:
    """The weight ``exp(-M^2 / (2 sigma^2))`` of the mean absolute misfit M of all readings.

    Attributes
    ----------
    sigma : float
        In units of the field, positive.
    cut : float
        Nothing beyond this misfit; by default there is no such end.
    """

    sigma: float
    cut: float = math.inf
    walled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_positive("sigma", self.sigma)
        _require_positive("cut", self.cut)

    def __call__(self, predicted: Any, readings: Any) -> Any:
        """Return log-likelihoods (S,) of predicted readings (S, m)."""
        misfit = abs(predicted - readings).mean(-1)
        beyond = (misfit / self.cut - 1).clip(min=0)
        return -((misfit / self.sigma) ** 2) / 2 - WALL * beyond

    def nearest(self, off: Tensor, white: Tensor) -> float:
        """Return the factor by which noise comes nearer, of misfits (S, m) under Gaussian noise.

        Of k directions that readings see, misfits are ``M^(k - 1)`` times the weight: that is
        where the Gaussian ones should be. `white` are misfits in units of the noise.
        """
        seen = max(2.0, float(white.square().mean(0).sum()))
        likeliest = min(self.sigma * math.sqrt(seen - 1), self.cut * (1 - 1 / seen))
        return likeliest / float(off.abs().mean())


Likelihood = ReadingLaw | Callable[[Any, Any], Any]
"""A law of single readings, or a function of all of them."""

NAMED = {"student": Student(), "laplace": Laplace(), "uniform": Uniform()}


def likelihood_of(stated: object) -> Likelihood | None:
    """Return the likelihood that a user stated by name, as an object or a function.

    Raises
    ------
    ObservationError
        If it is none.
    """
    if stated is None or stated == "gaussian":
        return None
    if isinstance(stated, str) and stated in NAMED:
        return NAMED[stated]
    if isinstance(stated, type) or not (isinstance(stated, ReadingLaw) or callable(stated)):
        raise ObservationError(
            f"likelihood must be one of {', '.join(NAMED)}, an object such as Student(df=4), or a "
            f"function f(predicted, readings); found {stated!r:.60}"
        )
    return stated
