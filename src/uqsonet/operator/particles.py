"""Sequential Monte Carlo: samples of a law that is known, weighted and moved to a posterior.

Samples of a `Source` carry the logarithm of the posterior's density over the source's. The power of
this weight rises from 0 to 1 by steps. After each step samples are resampled, and moved by
Metropolis steps whose proposals leave the source as it is (Del Moral, Doucet and Jasra, J. R. Stat.
Soc. B 68, 2006). Proposals are preconditioned Crank-Nicolson moves (Cotter et al., Stat. Sci. 28,
2013).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet.laws.base import InputPosterior
from uqsonet.laws.truncated import resampled

ISLANDS = 16
"""Parts of the samples that are resampled separately; the spread of their means shows the error."""

EFFECTIVE_SHARE = 0.5
"""Effective share of the samples that one rise of the power leaves."""

MIN_DISTANCE, MIN_LAST_DISTANCE = 0.1, 0.5
"""How far samples move after each rise, and after the last: a sum of accepted squared steps."""

MAX_MOVES = 400
"""Moves after one rise, at most."""

ACCEPTANCE = 0.3
"""Share of accepted moves that the step size is adapted to."""

NEWTON_STEPS = 5
"""Gauss-Newton steps of `Split`, at most."""


@dataclass(frozen=True)
class Particles:
    """Samples of the input's coefficients given readings of both sides.

    Attributes
    ----------
    a : Tensor, shape (size, r), float32
    effective_size : float
        Independent samples that their means are worth, from the spread of the islands' means.
    z : Tensor, shape (size, k)
        What moves of the source would start from.
    """

    a: Tensor
    effective_size: float
    z: Tensor


@dataclass(frozen=True)
class Samples:
    """Samples of a source, and how they stand to the target.

    Attributes
    ----------
    a : Tensor, shape (n, r), float32
        Coefficients of the input.
    weight : Tensor, shape (n,)
        Logarithm of the target's density over the source's.
    z : Tensor, shape (n, r)
        What moves start from.
    """

    a: Tensor
    weight: Tensor
    z: Tensor

    def pick(self, index: Tensor) -> Samples:
        """Return some of the samples."""
        return Samples(self.a[index], self.weight[index], self.z[index])

    def where(self, taken: Tensor, others: Samples) -> Samples:
        """Return the others where a sample is taken from them."""
        kept = taken[:, None]
        a, z = torch.where(kept, others.a, self.a), torch.where(kept, others.z, self.z)
        return Samples(a, torch.where(taken, others.weight, self.weight), z)


class Source(ABC):
    """A law that can be sampled, moved along, and weighted into the target.

    Attributes
    ----------
    effective_share : float
        Effective share of the samples that one rise of the power leaves.
    max_moves : int
        Moves after one rise, at most.
    """

    effective_share, max_moves = EFFECTIVE_SHARE, MAX_MOVES

    @abstractmethod
    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""

    @abstractmethod
    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples by moves that leave the source as it is.

        Parameters
        ----------
        z : Tensor, shape (n, r)
        step : float
            From 0 (stay) to 1 (independent samples).
        generator : torch.Generator
        """

    def proposal(
        self, now: Samples, power: float, step: float, generator: torch.Generator
    ) -> tuple[Samples, Tensor]:
        """Return moved samples, and the logarithm (n,) of the odds to take each."""
        proposed = self.moved(now.z, step, generator)
        return proposed, power * (proposed.weight - now.weight)


def tempered(source: Source, size: int, generator: torch.Generator) -> Particles:
    """Bring samples of a source to the target, by steps of a rising power of the weight.

    Parameters
    ----------
    source : Source
    size : int
        A multiple of `ISLANDS`.
    generator : torch.Generator
    """
    now, t, step = source.start(size, generator), 0.0, 1.0
    while t < 1:
        rise = _rise(now.weight, 1 - t, source.effective_share)
        t = 1.0 if t + rise > 1 - 1e-9 else t + rise
        index = resampled((rise * now.weight).view(ISLANDS, -1), generator)
        now = now.pick((index + torch.arange(0, size, size // ISLANDS)[:, None]).flatten())
        gone, enough = 0.0, MIN_LAST_DISTANCE if t == 1 else MIN_DISTANCE
        for _ in range(source.max_moves):
            proposed, ratio = source.proposal(now, t, step, generator)
            draw = torch.rand(size, generator=generator, dtype=torch.float64)
            taken = draw.log() < ratio
            now = now.where(taken, proposed)
            share = float(taken.double().mean())
            gone += share * step**2
            if gone >= enough:
                break
            step = min(1.0, step * math.exp(share - ACCEPTANCE))
    return Particles(now.a, _effective_size(now.a), now.z)


def _rise(weight: Tensor, most: float, share: float) -> float:
    """Return the exponent, at most `most`, that leaves a share of the samples effective."""

    def effective(exponent: float) -> float:
        p = torch.softmax(exponent * weight, 0)
        return 1 / float(p.square().sum()) / len(weight)

    if effective(most) >= share:
        return most
    low, high = 0.0, most
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= share else (low, middle)
    return max(low, 1e-4 * most)


def _effective_size(a: Tensor) -> float:
    """Return how many independent samples the means of `ISLANDS` parts are worth."""
    parts = a.double().view(ISLANDS, -1, a.shape[1])
    between = parts.mean(1).var(0).sum() / ISLANDS  # of the mean of all
    return min(float(a.double().var(0).sum() / between.clamp_min(1e-300)), float(len(a)))


class Reweighted(Source):
    """A law of the input given one set of sensors, whose samples are weighted.

    Parameters
    ----------
    law : InputPosterior
    log_weight : callable
        Maps coefficients (n, r), float32, to logarithms of weights (n,), float64.
    """

    def __init__(self, law: InputPosterior, log_weight: Callable[[Tensor], Tensor]) -> None:
        self._law, self.log_weight = law, log_weight

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return samples of the law."""
        a = self._law.sample(size, generator)[0]
        return Samples(a, self.log_weight(a), a)

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples moved by the law itself."""
        a = self._law.moved(z[None], step, generator)[0]
        return Samples(a, self.log_weight(a), a)


class Split(Source):
    """A Gaussian law whose few directions that readings of the output see are solved for.

    In coordinates z ~ N(0, I) of the law given readings of the input, what readings see is split
    off by an orthonormal basis, ``z = rest + Q^T s``. The rest is drawn from N(0, I), and s from
    the normal law about the best s for that rest, found by Gauss-Newton: precise readings are
    matched even if the operator is strongly nonlinear.

    Parameters
    ----------
    given : GaussianLaw
        Of one set.
    values : Tensor, shape (m,)
    noise : Tensor, shape (m, m)
        Covariance of readings given the branch's answer.
    weight : Tensor, shape (m, r)
        The linearised branch, as readings see it.
    answers : callable
        Maps coefficients (n, r), float32, to what readings see of the branch's answers, (n, m).
    """

    def __init__(
        self,
        given: GaussianLaw,
        values: Tensor,
        noise: Tensor,
        weight: Tensor,
        answers: Callable[[Tensor], Tensor],
    ) -> None:
        self._given, self._values, self._answers = given, values, answers
        self._root = torch.linalg.cholesky(noise)
        self._basis = torch.linalg.qr(given.spread(weight).T).Q.T  # (k, r)

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""
        shape = size, self._basis.shape[1]
        return self._completed(self._rest(shape, generator), generator)

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples whose rest is moved, and the seen directions drawn again."""
        rest = z - (z @ self._basis.T) @ self._basis
        rest = math.sqrt(1 - step**2) * rest + step * self._rest(z.shape, generator)
        return self._completed(rest, generator)

    def _rest(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        return normal - (normal @ self._basis.T) @ self._basis

    def _white(self, answers: Tensor) -> Tensor:
        """Return distances (n, m) of readings from answers, in units of their noise."""
        off = self._values - answers
        return torch.linalg.solve_triangular(self._root, off.T, upper=False).T

    def _slopes(self, rest: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return white distances (n, m) of readings, and the slopes (n, m, k) of answers in s."""
        with torch.enable_grad():
            a = self._given.coordinates(rest + s @ self._basis).float().requires_grad_()
            answers = self._answers(a)
            parts = [torch.autograd.grad(c.sum(), a, retain_graph=True)[0] for c in answers.T]
        along = self._given.spread(self._basis)  # the root is symmetric: d a / d s
        slope = torch.stack(parts, 1).double() @ along.T
        white = torch.linalg.solve_triangular(self._root, slope, upper=False)
        return self._white(answers.detach()), white

    def _completed(self, rest: Tensor, generator: torch.Generator) -> Samples:
        """Draw what readings see for each rest (n, r), and weight the samples."""
        n, k = len(rest), len(self._basis)
        s = torch.zeros(n, k, dtype=torch.float64)
        damping = torch.ones(n, 1, dtype=torch.float64)
        best, cost = s, torch.full((n, 1), math.inf, dtype=torch.float64)
        centre, root = s, torch.eye(k, dtype=torch.float64).expand(n, -1, -1)
        for _ in range(NEWTON_STEPS):
            off, slope = self._slopes(rest, s)
            here = (s.square().sum(1) + off.square().sum(1))[:, None]
            better = here < cost
            cost, best = torch.where(better, here, cost), torch.where(better, s, best)
            precision = slope.transpose(1, 2) @ slope
            precision.diagonal(0, 1, 2).add_(1.0)
            found = torch.linalg.cholesky(precision)
            right = (slope.transpose(1, 2) @ off[..., None])[..., 0] - s
            solved = s + torch.cholesky_solve(right[..., None], found)[..., 0]
            centre = torch.where(better, solved, centre)
            root = torch.where(better[..., None], found, root)
            damping = torch.where(better, 1.0, damping / 3)
            s = best + damping * (centre - best)
        normal = torch.randn(n, k, 1, generator=generator, dtype=torch.float64)
        spread = torch.linalg.solve_triangular(root.transpose(1, 2), normal, upper=True)[..., 0]
        s = best + spread
        a = self._given.coordinates(rest + s @ self._basis).float()
        off = self._white(self._answers(a))
        size = root.diagonal(0, 1, 2).log().sum(1)
        weight = normal.square().sum((1, 2)) - s.square().sum(1) - off.square().sum(1)
        return Samples(a, weight / 2 - size, rest + s @ self._basis)
