"""Laws of coefficients given sensors: drawn, and asked for moments, whatever they are made of.

A sample of a law is coefficients c of functions ``u(y) = offset(y) + sum_n c_n t_n(y)``, of an
input or an output (`uqsonet.gauss.posterior.Posterior`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet.gauss.seeds import restarted

Moments = tuple[Tensor, Tensor]  # mean (B, q) and covariance (B, q, q)
Whole = Callable[[int, torch.Generator], Iterator[Tensor]]
MOMENT_SAMPLES = 2048  # draws behind moments where there is no closed form
SPREAD_POINTS = 256  # points whose spread is worked out at a time: products stay in the cache
MOMENT_SEED = 20_260_101  # of draws where a caller gives no generator: repeated calls agree
MIN_FROM_ENDS = 2.0**-32  # of even points from 0 and 1, whose normal quantile is infinite


@dataclass(frozen=True)
class Narrowing:
    """Means and covariances ``prior - directions[b].T @ directions[b]`` of B sets."""

    mean: Tensor  # (B, p)
    prior: Tensor | None  # (p, p); None is the identity
    directions: Tensor  # (B, k, p)

    def prior_variance(self, basis: Tensor) -> Tensor:
        """Return pointwise variances (M,) of `prior` from basis (M, p)."""
        if self.prior is None:
            return basis.square().sum(-1)
        return spread(basis, self.prior).square()

    def variance(self, basis: Tensor, prior: Tensor) -> Tensor:
        """Return pointwise variances (B, M) from basis (M, p) and those of `prior` (M,).

        Where little of the prior's variance is left, they are rounding.
        """
        return torch.stack([prior - (basis @ one.T).square().sum(-1) for one in self.directions])


class Given(ABC):
    """The law of coefficients (q,) given B sets of sensors.

    Sets share random numbers: the samples of a set are the same in any batch.
    """

    tail: Tensor | None = None
    """Probability (B,), before the measurement, of values as far from the law as these; None where
    a law has no formula for it."""

    gaussian: GaussianLaw | None = None
    """The law itself, where it is Gaussian in standard normal coordinates."""

    normals: int = 0
    """Number of standard normals that `made` maps to a sample."""

    whole_made: Callable[[Tensor], Tensor] | None = None
    """Maps the same normals (n, `normals`) to functions (n, points), where samples are of such."""

    @property
    def functions(self) -> Whole | None:
        """Maps a size and a generator to functions (size, n) on the grid of each set.

        They come one set after another. Only laws of functions beyond the span of modes have them.
        """
        return None

    @abstractmethod
    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (B, size, q)."""

    def even(self, size: int) -> Tensor:
        """Return coefficients (B, size, q) spread as evenly as the law can, for averages."""
        return self.sample(size, fixed())

    def linear_moments(self, weight: Tensor) -> Moments | None:
        """Return mean (B, p) and covariance (B, p, p) of ``weight c`` (p, q), if in closed form."""
        return None

    def moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> Moments:
        """Return mean (B, q) and covariance (B, q, q) of the coefficients.

        Where there is no closed form they are those of `size` samples: of even ones without a
        generator. These are kept.
        """
        size = count_of(size, 2)
        if generator is not None:
            return self.estimate(size, generator)
        if size not in self._kept:
            self._kept[size] = self.estimate(size, None)
        return self._kept[size]

    @cached_property
    def _kept(self) -> dict[int, Moments]:
        return {}

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return what `moments` does, worked out anew."""
        return moments_of(self.sample(size, generator) if generator else self.even(size))

    @cached_property
    def mean(self) -> Tensor:
        """Mean (B, q) of the coefficients, float64; estimated if it has no closed form."""
        return self.moments()[0]

    def narrowing(self) -> Narrowing | None:
        """Return the moments with covariances as one less a few directions, if they are that."""
        return None

    def cross(self, other: Given) -> Tensor:
        """Return the covariance (k, q) of another law's coefficients with these, of the only set.

        Samples of both that belong together show it.
        """
        both = torch.cat([law.sample(MOMENT_SAMPLES, fixed()).double() for law in (other, self)], 2)
        count = both.shape[2] - self.mean.shape[-1]
        return moments_of(both)[1][0, :count, count:]

    def each(self, change: Callable[[Given], Given]) -> Given:
        """Return what a change makes of the law: of each set's own where sets stand alone."""
        return change(self)

    def parts(self) -> Iterator[tuple[slice, Given]]:
        """Yield the laws that can be worked on alone, and of which sets they are."""
        yield slice(None), self

    def made(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return samples (n, q) of the only set: of standard normals z (n, `normals`), or new ones.

        Where a law is no map of normals, there are none, and samples are independent of z.
        """
        return self.sample(len(z), generator)[0]


class ClosedForm(Given):
    """Standard normal coordinates x given sensors (`GaussianLaw`), or ``weight x`` (q, r) of them.

    The precision is that of the law; samples of the coordinates alone are in single precision.
    """

    def __init__(self, law: GaussianLaw, weight: Tensor | None = None) -> None:
        self._law, self._weight, self.normals = law, weight, law.mean.shape[-1]
        self.gaussian = law if weight is None else None

    @cached_property
    def _single(self) -> GaussianLaw:
        law = self._law
        return GaussianLaw(law.mean.float(), law.directions.float(), law.std_reduction.float())

    def _of(self, x: Tensor) -> Tensor:
        return x if self._weight is None else x.to(self._weight) @ self._weight.T

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Mean (B, q), float64."""
        return self._of(self._law.mean)

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw coefficients (B, size, q): Algorithm 1's a = mean + root z."""
        z = normals((1, size, self.normals), generator)
        return self._of(self._single.coordinates(z.to(self._single.mean)))

    def even(self, size: int) -> Tensor:
        """Return coefficients from quasi-random normals, the same for every set."""
        z = even_normals(size, self.normals)
        return self._of(self._single.coordinates(z.to(self._single.mean)))

    def linear_moments(self, weight: Tensor) -> Moments:
        """Return mean (B, p) and covariance (B, p, p) of ``weight c``, exactly."""
        rows = weight if self._weight is None else weight @ self._weight
        root = self._law.spread(rows)
        return self._law.mean @ rows.T, root @ root.transpose(-1, -2)

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the exact moments; `size` and `generator` have no influence."""
        return self.linear_moments(torch.eye(self.mean.shape[-1]).to(self.mean))

    def narrowing(self) -> Narrowing:
        """Return the moments of the coefficients, whose prior is standard normal in x."""
        directions = self._law.variance_reduction.sqrt()[..., None] * self._law.directions
        prior = None if self._weight is None else self._weight @ self._weight.T
        return Narrowing(self.mean, prior, self._of(directions))

    def made(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Map standard normals (n, r), float64, to samples of the only set."""
        return self._of(self._law.coordinates(z)[0])


class Gaussian(Given):
    """A Gaussian law in closed form: mean (B, q) and a root (B, q, k) of the covariance."""

    def __init__(self, mean: Tensor, root: Tensor) -> None:
        self._mean, self._root, self.normals = mean, root, root.shape[-1]

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Mean (B, q)."""
        return self._mean

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return Gaussian coefficients."""
        shape = 1, size, self.normals
        return self._at(torch.randn(shape, generator=generator, dtype=self._mean.dtype))

    def even(self, size: int) -> Tensor:
        """Return coefficients from quasi-random normals, the same for every set."""
        return self._at(even_normals(size, self.normals).to(self._mean))

    def _at(self, z: Tensor) -> Tensor:
        return self._mean[:, None, :] + z @ self._root.transpose(-1, -2)

    def linear_moments(self, weight: Tensor) -> Moments:
        """Return mean (B, p) and covariance (B, p, p) of ``weight c``, exactly."""
        root = weight @ self._root
        return self._mean @ weight.T, root @ root.transpose(-1, -2)

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the exact moments; `size` and `generator` have no influence."""
        return self._mean, self._root @ self._root.transpose(-1, -2)


class Drawn(Given):
    """A law that is known by its draws: `draw` maps a size and a generator to (B, size, q)."""

    def __init__(self, draw: Callable[[int, torch.Generator], Tensor]) -> None:
        self._draw = draw

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return draws."""
        return self._draw(size, generator)


class Sampled(Given):
    """A law that is known by samples (B, n, q).

    Of one set, `whole` maps numbers of samples to their functions, where these are known.
    """

    def __init__(self, c: Tensor, whole: Callable[[Tensor], Tensor] | None = None) -> None:
        self._c, self._whole = c, whole

    @property
    def functions(self) -> Whole | None:
        """Whole of some of the samples, if they are known."""
        return None if self._whole is None else self._functions

    def _functions(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        assert self._whole is not None
        yield self._whole(self._some(size, generator))

    def _some(self, size: int, generator: torch.Generator) -> Tensor:
        """Return numbers of samples, each at most once as long as they last."""
        kept = self._c.shape[1]
        rounds = -(-size // kept)
        drawn = torch.rand(rounds, kept, generator=generator, dtype=torch.float32)
        return drawn.argsort(-1).flatten()[:size]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return some of the samples, each at most once as long as they last."""
        return self._c[:, self._some(size, generator)]

    def even(self, size: int) -> Tensor:
        """Return all samples (B, n, q), however many are asked for: they are there already."""
        return self._c

    def linear_moments(self, weight: Tensor) -> Moments:
        """Return mean (B, p) and covariance (B, p, p) of ``weight c`` over the samples."""
        return moments_of(self._c.double() @ weight.double().T)

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return those of all samples; `size` and `generator` have no influence."""
        return moments_of(self._c)


class Separate(Given):
    """The laws of sets, each by itself: samples of one take more numbers than of another."""

    def __init__(self, laws: Sequence[Given]) -> None:
        self.laws = list(laws)
        tails = [law.tail for law in self.laws if law.tail is not None]
        self.tail = torch.cat(tails) if len(tails) == len(self.laws) else None

    @property
    def functions(self) -> Whole | None:
        """Whole of each set, where all have them."""
        return None if any(one.functions is None for one in self.laws) else self._functions

    def _functions(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        for law in restarted(generator, self.laws):
            assert law.functions is not None
            yield from law.functions(size, generator)

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the samples of each set."""
        return torch.cat([law.sample(size, generator) for law in restarted(generator, self.laws)])

    def even(self, size: int) -> Tensor:
        """Return even samples of each set."""
        return torch.cat([law.even(size) for law in self.laws])

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the moments of each set."""
        laws = self.laws if generator is None else restarted(generator, self.laws)
        means, covariances = zip(*(law.moments(size, generator) for law in laws), strict=True)
        return torch.cat(means), torch.cat(covariances)

    def each(self, change: Callable[[Given], Given]) -> Given:
        """Return what a change makes of each set's law."""
        return Separate([change(law) for law in self.laws])

    def parts(self) -> Iterator[tuple[slice, Given]]:
        """Yield the law of each set."""
        for row, law in enumerate(self.laws):
            yield slice(row, row + 1), law


class Point(Given):
    """A prediction (B, q) without uncertainty: everything but the mean is refused."""

    def __init__(self, mean: Tensor, method: str) -> None:
        self._mean, self._method = mean, method

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """The prediction, float64."""
        return self._mean.double()

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Raise `NoUncertaintyError`."""
        raise NoUncertaintyError(f"{self._method} is deterministic: it has a mean and no spread")

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Raise `NoUncertaintyError`."""
        raise NoUncertaintyError(f"{self._method} is deterministic: it cannot be sampled")


def fixed() -> torch.Generator:
    """Return a generator of the seed of repeated calls."""
    return torch.Generator().manual_seed(MOMENT_SEED)


def normals(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return standard normals, float32, where the generator is."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)


def sobol_engine(dimension: int) -> torch.quasirandom.SobolEngine:
    """Return the source of evenly spread points, scrambled by the seed of repeated calls."""
    return torch.quasirandom.SobolEngine(dimension, scramble=True, seed=MOMENT_SEED)


@lru_cache(maxsize=2)
def even_normals(size: int, dimension: int) -> Tensor:
    """Return `size` scrambled Sobol points as standard normals (size, dimension), float32.

    They fill the space of latent draws evenly, so that averages of smooth functions have a smaller
    error than with as many independent draws (Owen, SIAM J. Numer. Anal. 34, 1997). Mean and std of
    section 4.1 from 2,048 of them are as near as from 10,000 independent ones.
    """
    points = (
        sobol_engine(dimension)
        .draw(size, dtype=torch.float64)
        .clamp(MIN_FROM_ENDS, 1 - MIN_FROM_ENDS)
    )
    return torch.special.ndtri(points).float()


def spread(basis: Float[Tensor, "M p"], covariance: Float[Tensor, "B p p"]) -> Float[Tensor, "B M"]:
    """Return pointwise standard deviations (B, M) from basis (M, p) and covariance (B, p, p)."""
    variance = [((rows @ covariance) * rows).sum(-1) for rows in basis.split(SPREAD_POINTS)]
    return torch.cat(variance, -1).clamp_min(0).sqrt()


def moments_of(
    samples: Float[Tensor, "B n p"],
) -> tuple[Float[Tensor, "B p"], Float[Tensor, "B p p"]]:
    """Return mean (B, p) and unbiased covariance (B, p, p) of samples (B, n, p), float64."""
    samples = samples.to(torch.float64)
    mean = samples.mean(1)
    centred = samples - mean[:, None, :]
    return mean, centred.transpose(1, 2) @ centred / (samples.shape[1] - 1)


def count_of(size: object, least: int = 1) -> int:
    """Return a number of samples that a caller asks for, checked."""
    whole = isinstance(size, int | np.integer) or (isinstance(size, float) and size.is_integer())
    if isinstance(size, bool) or not whole or not least <= int(size) < 2**31:  # type: ignore[call-overload]
        raise ObservationError(
            f"size must be a whole number from {least} to 2^31, found {size!s:.40}"
        )
    return int(size)  # type: ignore[call-overload]
