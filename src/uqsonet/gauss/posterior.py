"""What conditioning returns: the law of u given an observation set, to be asked anywhere.

Every method's posterior lives in the span of a basis, ``u(y) = offset(y) + sum_n c_n t_n(y)``, so
moments need only those of the coefficients and a sample is a coherent function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.fields.numbers import real_numbers
from uqsonet.fields.stacked import Domain
from uqsonet.gauss.seeds import restarted

Basis = Callable[[Tensor], tuple[Tensor, Tensor]]  # (M, d) to offset (M,) and basis (M, p)
MOMENT_SAMPLES = 4096  # latent draws behind `mean` and `std` where there is no closed form
SPREAD_POINTS = 256  # points whose spread is worked out at a time: products stay in the cache
MOMENT_SEED = 20_260_101  # of the draws behind `std` and quantiles: repeated calls agree
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


class Posterior(ABC):
    """The conditional distribution of u for one observation set or a batch of B sets.

    Results for a single set have no batch dimension: `mean` and `std` are (M,) or (B, M),
    `sample` is (n, M) or (B, n, M). Units are those of u.
    """

    whole: Callable[[int, torch.Generator], Iterator[Tensor]] | None = None
    """Maps a size and a generator to functions (size, n) on the grid of each set, one after
    another, where a law has functions beyond the span of its basis."""

    def __init__(self, grid: Domain, basis: Basis, single: bool) -> None:
        self._grid, self._basis, self.single = grid, basis, single

    @abstractmethod
    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of the coefficients c, not of u.

        Where there is no closed form they are those of `size` samples; without a generator of these
        a fixed seed is used, and repeated calls agree.
        """

    def even_moments(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the same from `size` evenly spread (quasi-random) draws, where a law has them."""
        return self.coefficient_moments(size)

    def narrowing(self) -> Narrowing | None:
        """Return the moments with covariances as one less a few directions, if they are that."""
        return None

    @abstractmethod
    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return samples (B, size, p) of the coefficients c, not of u; `sample` gives functions.

        Sets share random numbers: the samples of a set are the same in any batch.
        """

    def basis(self, queries: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return offset (M,) and basis (M, p) of the expansion at queries (M, d)."""
        if queries is None:
            points = self._grid.points()
        else:
            points = real_numbers(queries, "queries", None)
            points = points[:, None] if points.ndim == 1 else points
            if points.ndim != 2 or points.shape[1] != self._grid.dim:
                raise ObservationError(
                    f"queries must have shape (M, {self._grid.dim}), found {tuple(points.shape)}"
                )
            if not bool(points.isfinite().all()):
                raise ObservationError("queries must be finite (found NaN or inf)")
            self._grid.require_inside(points, "query")
        return self._basis(points)

    def _strip(self, batch: Tensor) -> Tensor:
        return batch[0] if self.single else batch

    def mean(self, queries: Tensor | None = None) -> Tensor:
        """Return the posterior mean at queries (M, d); by default on the problem's grid."""
        offset, basis = self.basis(queries)
        mean, _ = self.coefficient_moments()
        return self._strip(offset + mean @ basis.T)

    def std(self, queries: Tensor | None = None) -> Tensor:
        """Return the posterior standard deviation of u (no decoder noise is added)."""
        _, basis = self.basis(queries)
        _, covariance = self.coefficient_moments()
        return self._strip(spread(basis, covariance))

    def sample(
        self, size: int, queries: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw `size` functions from the posterior (Algorithm 1, inference).

        Parameters
        ----------
        size : int
        queries : Tensor, shape (M, d), optional
        generator : torch.Generator, optional
            Without one, a fixed seed is used and repeated calls agree.
        """
        size = count_of(size)
        offset, basis = self.basis(queries)
        return self._strip(offset + self.coefficient_samples(size, generator or _fixed()) @ basis.T)


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(MOMENT_SEED)


class SampledPosterior(Posterior):
    """A law of the coefficients that is known through samples; it keeps its moments."""

    def __init__(self, grid: Domain, basis: Basis, single: bool) -> None:
        super().__init__(grid, basis, single)
        self._cache: dict[int, tuple[Tensor, Tensor]] = {}

    def estimate(self, size: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return moments from `size` draws; without a generator even ones where a law has them."""
        return moments_of(self.coefficient_samples(size, generator or _fixed()))

    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return moments from `size` draws; without a generator from a fixed seed, and kept."""
        size = count_of(size, 2)
        if generator is not None:
            return self.estimate(size, generator)
        if size not in self._cache:
            self._cache[size] = self.estimate(size, _fixed())
        return self._cache[size]

    def even_moments(self, size: int) -> tuple[Tensor, Tensor]:
        """Return moments from `size` even draws where the law has them, else from a fixed seed."""
        return self.estimate(count_of(size, 2), None)


class LatentPosterior(SampledPosterior):
    """The law of coefficients ``b(z)`` with ``z ~ N(0, I)``.

    It pickles where `draw` and `moments` do: methods and partial functions, no closures. `draw`
    maps a size and a generator to coefficients (B, size, p); `moments` is in place of `estimate`
    where a method knows part of them in closed form.
    """

    def __init__(
        self, grid: Domain, basis: Basis, single: bool,
        draw: Callable[[int, torch.Generator], Tensor],
        moments: Callable[[int, torch.Generator | None], tuple[Tensor, Tensor]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(grid, basis, single)
        self._draw, self._known = draw, moments
        self.narrowed: Callable[[], Narrowing] | None = None  # `narrowing`, where it is known

    def narrowing(self) -> Narrowing | None:
        """Return what `narrowed` does, if anything."""
        return None if self.narrowed is None else self.narrowed()

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return ``b(z)`` for `size` draws of z."""
        return self._draw(size, generator)

    def estimate(self, size: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return moments from `size` draws, or those that are known."""
        return self._known(size, generator) if self._known else super().estimate(size, generator)


class GaussianPosterior(Posterior):
    """A Gaussian law of the coefficients, in closed form."""

    def __init__(
        self, grid: Domain, basis: Basis, single: bool, mean: Tensor, root: Tensor
    ) -> None:
        super().__init__(grid, basis, single)
        self._mean, self._root = mean, root

    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the exact moments; `size` and `generator` have no influence."""
        return self._mean, self._root @ self._root.transpose(-1, -2)

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return Gaussian coefficients."""
        shape = (1, size, self._root.shape[-1])
        normal = torch.randn(shape, generator=generator, dtype=self._mean.dtype)
        return self._mean[:, None, :] + normal @ self._root.transpose(-1, -2)


class SeparatePosterior(Posterior):
    """The laws of sets, each by itself: samples of one take more numbers than of another."""

    def __init__(self, single: bool, laws: Sequence[Posterior]) -> None:
        super().__init__(laws[0]._grid, laws[0]._basis, single)
        self.laws = laws

    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the moments of each set."""
        return _together(law.coefficient_moments(size, generator) for law in self._from(generator))

    def even_moments(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the moments of each set from even draws."""
        return _together(law.even_moments(size) for law in self.laws)

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the samples of each set."""
        laws = self._from(generator)
        return torch.cat([law.coefficient_samples(size, generator) for law in laws])

    def _from(self, generator: torch.Generator | None) -> Iterable[Posterior]:
        return self.laws if generator is None else restarted(generator, self.laws)


def _together(moments: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    means, covariances = zip(*moments, strict=True)
    return torch.cat(means), torch.cat(covariances)


class PointPosterior(Posterior):
    """A prediction without uncertainty: everything but the mean raises `NoUncertaintyError`."""

    def __init__(self, grid: Domain, basis: Basis, single: bool, mean: Tensor, method: str) -> None:
        super().__init__(grid, basis, single)
        self._mean, self._method = mean, method

    @property
    def coefficients(self) -> Tensor:
        """Coefficients (B, p) of the prediction."""
        return self._mean

    def mean(self, queries: Tensor | None = None) -> Tensor:
        """Return the prediction at queries (M, d)."""
        offset, basis = self.basis(queries)
        return self._strip(offset + self._mean @ basis.T)

    def coefficient_moments(
        self, size: int = MOMENT_SAMPLES, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Raise `NoUncertaintyError`."""
        raise NoUncertaintyError(f"{self._method} is deterministic: it has a mean and no spread")

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Raise `NoUncertaintyError`."""
        raise NoUncertaintyError(f"{self._method} is deterministic: it cannot be sampled")


@lru_cache(maxsize=2)
def even_normals(size: int, dimension: int) -> Tensor:
    """Return `size` scrambled Sobol points as standard normals (size, dimension), float32.

    They fill the space of latent draws evenly, so that averages of smooth functions have a smaller
    error than with as many independent draws (Owen, SIAM J. Numer. Anal. 34, 1997). Mean and std of
    section 4.1 from 2,048 of them are as near as from 10,000 independent ones.
    """
    engine = torch.quasirandom.SobolEngine(dimension, scramble=True, seed=MOMENT_SEED)
    points = engine.draw(size, dtype=torch.float64).clamp(MIN_FROM_ENDS, 1 - MIN_FROM_ENDS)
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


def levels_of(levels: object) -> np.ndarray:
    """Return levels of quantiles that a caller asks for, checked."""
    q = real_numbers(levels, "levels").numpy()
    if q.ndim > 1 or not q.size or not bool(((q >= 0) & (q <= 1)).all()):
        raise ObservationError(f"levels must be numbers in [0, 1], found {levels!r}")
    return q
