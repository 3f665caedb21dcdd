"""The law of the input: one interface, so that the learned operator serves every law.

A law knows the input field through the bases of a model: at the points of the grid it is
``mean + factor a``, with standardised coefficients a. Given sensors it returns an `InputPosterior`,
whose samples the branch maps to the output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet.gauss.posterior import Narrowing
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.sensors.sensors import Sensors

MEAN_DRAWS = 2048  # samples behind a mean of coefficients that has no closed form

MIN_TAIL_NOISE = 0.01
"""Minimum noise that is assumed for the probability of values that a law cannot have, as a fraction
of the law's range or of the gap between its classes."""

MAX_CLASSES = 6  # values that inputs take to count as classes


def classes_of(fields: Tensor) -> Tensor | None:
    """Return the values (K,) that inputs take, ascending; None where there are too many."""
    few = fields[:20].unique()
    if len(few) > MAX_CLASSES:
        return None
    values = fields.unique()
    return values.double() if 2 <= len(values) <= MAX_CLASSES else None


def farthest_tail(off: Tensor) -> Tensor:
    """Return the probability (1,) that noise moves one of m values as far as the farthest one.

    `off` (m,) is how far each is from what a law allows, in standard deviations of its noise.
    """
    if not len(off):
        return torch.ones(1, dtype=torch.float64)
    least = torch.special.erfc(off / math.sqrt(2)).amin()
    # The smallest of m probabilities is below p with probability 1 - (1 - p)^m.
    return -torch.expm1(len(off) * torch.log1p(-least.clamp_max(1 - 1e-15)))[None]


def normals(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return standard normals, float32, where the generator is."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)


Layout = Mapping[str, tuple[str, torch.dtype]]
"""Axes and type of each of a law's tensors. Axes of the same letter have the same length, but for
``?``; those of a model's bases are n (points of the grid) and r (input modes). A name with a star
stands for all that begin so, of which there may be none."""


def require(tensors: Mapping[str, Tensor], layout: Layout, bases: KarhunenLoeveBases) -> None:
    """Refuse tensors that are not laid out so (`ValueError`, with what was found and is needed)."""
    expected = {}
    for name, kind in layout.items():
        start = name.removesuffix("*")
        same = [one for one in tensors if one.startswith(start)] if start != name else [name]
        expected |= dict.fromkeys(same, kind)
    if tensors.keys() != expected.keys():
        raise ValueError(f"it needs {', '.join(expected)}; found {', '.join(tensors) or 'none'}")
    sizes = dict(zip("nr", bases.input_factor.shape, strict=True))
    for name, (axes, dtype) in expected.items():
        shape, kind = tuple(tensors[name].shape), tensors[name].dtype
        fits = len(axes) == len(shape) and 0 not in shape and kind == dtype
        for axis, length in zip(axes, shape, strict=False):
            fits = fits and (axis == "?" or sizes.setdefault(axis, length) == length)
        if not fits:
            needed = ", ".join(f"{axis} = {sizes.get(axis, 'any')}" for axis in axes)
            raise ValueError(f"{name} is {kind} {shape}; allowed is {dtype} ({needed})")


class InputPosterior(ABC):
    """The law of the input's coefficients given B observation sets."""

    @cached_property
    def mean(self) -> Tensor:
        """Mean (B, r) of the coefficients, float64; estimated if it has no closed form."""
        return self.sample(MEAN_DRAWS, torch.Generator().manual_seed(0)).double().mean(1)

    tail: Tensor | None = None
    """Probability (B,), before the measurement, of values as far from the law as these; None where
    a law has no formula for it."""

    @abstractmethod
    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (B, size, r), float32; sets share random numbers.

        The samples of a set are thus the same in any batch.
        """

    def even(self, size: int) -> Tensor:
        """Return coefficients (B, size, r) spread as evenly as the law can, for averages."""
        return self.sample(size, torch.Generator().manual_seed(0))

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield transformed inputs (size, n), float32, on the grid, one set after another."""
        for a in self.sample(size, generator):
            yield torch.addmm(bases.input_mean.float(), a, bases.input_factor.T)

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return mean (B, p) and covariance (B, p, p) of ``weight a`` (p, r), if in closed form."""
        return None

    def moved(self, a: Tensor, step: float, generator: torch.Generator) -> Tensor:
        """Return samples (B, size, r) by moves from `a` (B, size, r) that leave this law as it is.

        The step is from 0 (stay) to 1 (independent of `a`); a law may always take 1.
        """
        return self.sample(a.shape[1], generator)

    latent: int = 0
    """Number of standard normals that fields are made of (`made`); 0 where they are not."""

    def made(self, z: Tensor) -> Tensor:
        """Return transformed inputs (n, points), float32, of standard normals (n, latent)."""
        raise NotImplementedError

    has_coordinates: ClassVar[bool] = False
    """Whether the law is Gaussian within each of some kinds."""

    def coordinates(self, z: Tensor, kinds: Tensor) -> Tensor:
        """Map standard normals (n, r), of kinds (n,), to coefficients (n, r) of the only set."""
        raise NotImplementedError

    def kinds(self, size: int, generator: torch.Generator) -> Tensor:
        """Return what kind (B, size) each of some samples is of."""
        return torch.zeros(len(self.mean), size, dtype=torch.long)


class ClosedForm(InputPosterior):
    """The Gaussian law of the coefficients given sensors."""

    has_coordinates = True

    def __init__(self, law: GaussianLaw) -> None:
        self.law, self.mean = law, law.mean
        self._single = GaussianLaw(
            law.mean.float(), law.directions.float(), law.std_reduction.float()
        )

    def narrowing(self) -> Narrowing:
        """Return the moments of the coefficients, whose prior is standard normal."""
        directions = self.law.variance_reduction.sqrt()[..., None] * self.law.directions
        return Narrowing(self.mean, None, directions)

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw coefficients of the input (B, size, r): Algorithm 1's a = mean + root z."""
        z = normals((1, size, self.mean.shape[1]), generator)
        return self._single.coordinates(z.to(self._single.mean))

    def coordinates(self, z: Tensor, kinds: Tensor) -> Tensor:
        """Map standard normals (n, r) to coefficients, float64; there is one kind."""
        return self.law.coordinates(z)[0]

    def even(self, size: int) -> Tensor:
        """Return coefficients from quasi-random normals, the same for every set."""
        from uqsonet.gauss.posterior import even_normals

        z = even_normals(size, self.mean.shape[1])
        return self._single.coordinates(z.to(self._single.mean))

    def moved(self, a: Tensor, step: float, generator: torch.Generator) -> Tensor:
        """Return samples by preconditioned Crank-Nicolson moves."""
        mean, z = self._single.mean[:, None, :], normals((1, *a.shape[1:]), generator).to(a)
        return mean + (1 - step**2) ** 0.5 * (a - mean) + step * self._single.spread(z)

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of ``weight a``, exactly."""
        root = self.law.spread(weight)
        return self.mean @ weight.T, root @ root.transpose(-1, -2)


class InputLaw(ABC):
    """A law of the transformed input, fitted to training inputs.

    Laws are worked out on the CPU in double precision, wherever the networks of the model are.
    """

    name: ClassVar[str]

    misfit: ClassVar[str] = "it has no answer to a held-out pair"
    """Why inputs may have no such law."""

    separate: ClassVar[bool] = False
    """How many random numbers a sample takes depends on the sensors, so that it is conditioned on
    one set at a time. With sensors of the output this takes so long that `fit` compares nothing."""

    whole: ClassVar[bool] = False
    """Samples are fields beyond what the modes hold: answers about the input take them as they are
    (`InputPosterior.fields`), classes with their jumps and values within their range."""

    made: bool = False
    """Fields are made of standard normals (`InputPosterior.made`)."""

    ends: Tensor | None = None
    """Ends (n, 2) that the transformed field does not leave at each point, where a law has some."""

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self | None:
        """Return the law of training inputs; None where it does not fit them."""
        raise NotImplementedError

    @abstractmethod
    def condition(self, bases: KarhunenLoeveBases, sensors: Sensors) -> InputPosterior:
        """Return the law of the coefficients given sensors.

        Parameters
        ----------
        bases : KarhunenLoeveBases
            Bases of the model that the law belongs to.
        sensors : Sensors
            Their noise is stated for each of them.
        """

    def condition_linear(
        self, rows: Tensor, residual: Tensor, mask: Tensor, noise_std: Tensor, direct: int
    ) -> InputPosterior | None:
        """Return the law given linear functionals of the coefficients; None if not in closed form.

        Readings `residual` (B, m) are ``rows a + noise`` where there is one (`mask`), float64, with
        rows (B, m, r) and positive noise. The first `direct` of them are values of the field
        itself, less its mean: what the modes leave out is added to their noise.
        """
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Return what the law is made of, to be stored."""
        raise NotImplementedError

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> Self:
        """Return the law that `tensors` were taken of; ValueError if there is no such law."""
        raise NotImplementedError
