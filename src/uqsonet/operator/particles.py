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
from uqsonet.laws.truncated import resampled

ISLANDS = 16
"""Parts of the samples that are resampled separately; the spread of their means shows the error."""

EFFECTIVE_SHARE = 0.5
"""Effective share of the samples that one rise of the power leaves."""

MIN_DISTANCE, MIN_LAST_DISTANCE = 0.1, 0.5
"""How far samples move after each rise, and after the last: a sum of accepted squared steps."""

FOLLOWED = 128
"""Coordinates that `Following` learns the law of, at most."""

CHANCE_DIVERGENCE = 8.0
"""Divergence of a coordinate from standard normal, times the number of samples, that chance may
have: farther ones are followed."""

SHRUNK = 0.05
"""Share that covariances of followed coordinates are taken to be smaller by."""

SAMPLE_ROWS = 512
"""Samples that are worked on at a time: what readings see of them stays in the cache."""

MAX_RISES = 16
"""Rises of a power, at most: an answer comes in bounded time, and says how little it is worth."""

MAX_MOVES, MAX_SOLVED_MOVES = 400, 20
"""Moves after one rise, at most; the latter of `Split`, each of which solves for all samples."""

ACCEPTANCE = 0.3
"""Share of accepted moves that the step size is adapted to."""

NEWTON_STEPS = 12
"""Gauss-Newton steps of `Split`, at most."""

SHORT = 0.1
"""Length of the last of these steps, in standard deviations of the law that is drawn from."""


@dataclass(frozen=True)
class Samples:
    """Samples of a source, and how they stand to the target.

    Attributes
    ----------
    a : Tensor, shape (n, r), float32
        Coefficients of the input.
    weight : Tensor, shape (n, S)
        Logarithms of what multiplies the source's density to the target's, in the order in which
        samples meet it.
    z : Tensor, shape (n, r)
        What moves start from.
    """

    a: Tensor
    weight: Tensor
    z: Tensor

    def pick(self, index: Tensor) -> Samples:
        """Return some of the samples."""
        return Samples(self.a[index], self.weight[index], self.z[index])

    @property
    def effective_size(self) -> float:
        """Independent samples that means are worth.

        It is seen from the spread of the islands' means, and at most what copies leave.
        """
        parts = self.a.double().view(ISLANDS, -1, self.a.shape[1])
        between = parts.mean(1).var(0).sum() / ISLANDS  # of the mean of all
        means = float(self.a.double().var(0).sum() / between.clamp_min(1e-300))
        told_by = self.z if self.z.shape[1] else self.a  # fields of classes may be the same
        copies = told_by[:, 0].unique(return_counts=True)[1].double() / len(self.a)
        return min(means, 1 / float(copies.square().sum()))

    def where(self, taken: Tensor, others: Samples) -> Samples:
        """Return the others where a sample is taken from them."""
        kept = taken[:, None]
        a, z = torch.where(kept, others.a, self.a), torch.where(kept, others.z, self.z)
        return Samples(a, torch.where(kept, others.weight, self.weight), z)


class Source(ABC):
    """A law that can be sampled, moved along, and weighted into the target.

    Attributes
    ----------
    effective_share : float
        Effective share of the samples that one rise of the power leaves.
    max_moves : int
        Moves after one rise, at most.
    last : float
        How far samples move after the last rise.
    """

    effective_share, max_moves, last = EFFECTIVE_SHARE, MAX_MOVES, MIN_LAST_DISTANCE

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

    def follow(self, now: Samples) -> None:  # noqa: B027
        """Prepare moves for samples that are where these are."""

    def proposal(
        self, now: Samples, powers: Tensor, step: float, generator: torch.Generator
    ) -> tuple[Samples, Tensor]:
        """Return moved samples, and the logarithm (n,) of the odds to take each."""
        proposed = self.moved(now.z, step, generator)
        return proposed, (proposed.weight - now.weight) @ powers


def tempered(source: Source, size: int, generator: torch.Generator) -> tuple[Samples, float]:
    """Bring samples of a source to the target, by steps of a rising power of the weights.

    Returned are samples and the size of the last moves' steps.

    Parameters
    ----------
    source : Source
    size : int
        A multiple of `ISLANDS`.
    generator : torch.Generator
    """
    now, step = source.start(size, generator), 1.0
    powers = torch.zeros(now.weight.shape[1], dtype=torch.float64)
    for stage in range(len(powers)):
        rises = 0
        while (t := float(powers[stage])) < 1:
            weight, rises = now.weight[:, stage], rises + 1
            rise = 1 - t if rises == MAX_RISES else _rise(weight, 1 - t, source.effective_share)
            powers[stage] = t = 1.0 if t + rise > 1 - 1e-9 else t + rise
            index = resampled((rise * weight).view(ISLANDS, -1), generator)
            now = now.pick((index + torch.arange(0, size, size // ISLANDS)[:, None]).flatten())
            last = t == 1 and stage == len(powers) - 1
            source.follow(now)
            enough = source.last if last else MIN_DISTANCE
            now, step = _moved(source, now, powers, step, enough, generator)
    return now, step


def _moved(
    source: Source, now: Samples, powers: Tensor, step: float, enough: float,
    generator: torch.Generator,
) -> tuple[Samples, float]:  # fmt: skip
    """Return samples that have moved far enough, and the size of the next step."""
    gone = 0.0
    for _ in range(source.max_moves):
        proposed, ratio = source.proposal(now, powers, step, generator)
        draw = torch.rand(len(ratio), generator=generator, dtype=torch.float64)
        taken = draw.log() < ratio
        now = now.where(taken, proposed)
        share = float(taken.double().mean())
        gone += share * step**2
        if gone >= enough:
            break
        step = min(1.0, step * math.exp(share - ACCEPTANCE))
    return now, step


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


class Split(Source):
    """A Gaussian law whose few directions that readings of the output see are solved for.

    In coordinates z ~ N(0, I) of the law given readings of the input, what readings see is split
    off by an orthonormal basis Q, ``z = rest + Q^T s``. The rest is normal, and s has the normal
    law about the best s for that rest, found by Gauss-Newton: precise readings are matched even if
    the operator is strongly nonlinear. Moves keep the normals v ~ N(0, I) that both are made of:
    ``s = best(rest) + L^-T Q v``, with the precision L L^T of that law.

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
    slopes : callable
        Maps coefficients and directions (k, r) to the derivatives (n, m, k) of these answers.
    """

    max_moves = MAX_SOLVED_MOVES

    def __init__(
        self,
        given: GaussianLaw,
        values: Tensor,
        noise: Tensor,
        weight: Tensor,
        answers: Callable[[Tensor], Tensor],
        slopes: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        self._given, self._values, self._answers = given, values, answers
        self._root = torch.linalg.cholesky(noise)
        self._basis = torch.linalg.qr(given.spread(weight).T).Q.T  # (k, r)
        self._along = given.spread(self._basis)  # (k, r), the root being symmetric: d a / d s
        self._slopes_of = slopes

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""
        shape = size, self._basis.shape[1]
        return self._made(torch.randn(shape, generator=generator, dtype=torch.float64))

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples whose normals (n, r) are moved."""
        fresh = torch.randn(z.shape, generator=generator, dtype=torch.float64)
        return self._made(math.sqrt(1 - step**2) * z + step * fresh)

    def _made(self, normals: Tensor) -> Samples:
        """Return the samples of normals (n, r), and their weights."""
        seen = normals @ self._basis.T
        rest = normals - seen @ self._basis
        all_seen = len(self._basis) == self._basis.shape[1]  # every rest is zero, so one is enough
        best, root = self._solved(rest[:1] if all_seen else rest)
        upper = root.transpose(1, 2)
        s = best + torch.linalg.solve_triangular(upper, seen[..., None], upper=True)[..., 0]
        a = self._given.coordinates(rest + s @ self._basis).float()
        off = self._white(self._answers(a))
        size = root.diagonal(0, 1, 2).log().sum(1)
        weight = seen.square().sum(1) - s.square().sum(1) - off.square().sum(1)
        return Samples(a, (weight / 2 - size)[:, None], normals)

    def _white(self, answers: Tensor) -> Tensor:
        """Return distances (n, m) of readings from answers, in units of their noise."""
        off = self._values - answers
        return torch.linalg.solve_triangular(self._root, off.T, upper=False).T

    def _slopes(self, rest: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return white distances (n, m) of readings, and the slopes (n, m, k) of answers in s."""
        a = self._given.coordinates(rest + s @ self._basis).float()
        slope = self._slopes_of(a, self._along)
        white = torch.linalg.solve_triangular(self._root, slope, upper=False)
        return self._white(self._answers(a)), white

    def _solved(self, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best s (n, k) for each rest (n, r), and the root L (n, k, k) there.

        Steps are damped, and end for a rest once one is short in units of L.
        """
        n, k = len(rest), len(self._basis)
        best = torch.zeros(n, k, dtype=torch.float64)
        root = torch.eye(k, dtype=torch.float64).repeat(n, 1, 1)
        step, s = torch.zeros_like(best), best.clone()
        cost = torch.full((n,), math.inf, dtype=torch.float64)
        damping, left = torch.ones_like(cost), torch.arange(n)
        for _ in range(NEWTON_STEPS):
            if not len(left):
                break
            off, slope = self._slopes(rest[left], s[left])
            here = s[left].square().sum(1) + off.square().sum(1)
            better = here < cost[left]
            damping[left] = torch.where(better, 1.0, damping[left] / 3)
            some, off, slope = left[better], off[better, :, None], slope[better]
            precision = slope.transpose(1, 2) @ slope
            precision.diagonal(0, 1, 2).add_(1.0)
            best[some], cost[some] = s[some], here[better]
            root[some] = lower = torch.linalg.cholesky(precision)
            right = slope.transpose(1, 2) @ off - s[some][..., None]
            step[some] = torch.cholesky_solve(right, lower)[..., 0]
            s = best + damping[:, None] * step
            length = (root[left].transpose(1, 2) @ step[left][..., None]).square().sum((1, 2))
            near = length < SHORT**2
            best[left[near]] = s[left[near]]
            left = left[~near]
        return best, root


class Following(Source):
    """Standard normal coordinates, whose moves follow where samples are.

    Moves keep a Gaussian law with the samples' mean and (shrunk) covariance in the coordinates that
    readings see, and N(0, I) in the others: ``z' = m + sqrt(1 - s^2) (z - m) + s L xi`` (Rudolf and
    Sprungk, Found. Comput. Math. 18, 2018). No slope is needed, so classes may jump.

    Parameters
    ----------
    weigh : callable
        Maps coordinates z (n, k), float64, and a generator to coefficients (n, r), and to
        logarithms of weights (n, S), as `Samples` has them.
    count : int
        Number k of coordinates.
    """

    def __init__(
        self, weigh: Callable[[Tensor, torch.Generator], tuple[Tensor, Tensor]], count: int
    ) -> None:
        self._weigh, self._count = weigh, count

    def _normals(self, size: int, generator: torch.Generator) -> Tensor:
        return torch.randn(size, self._count, generator=generator, dtype=torch.float64)

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""
        return self._at(self._normals(size, generator), generator)

    def _at(self, z: Tensor, generator: torch.Generator) -> Samples:
        parts = [self._weigh(rows, generator) for rows in z.split(SAMPLE_ROWS)]
        a, weight = (torch.cat(part) for part in zip(*parts, strict=True))
        return Samples(a, weight, z)

    def follow(self, now: Samples) -> None:
        """Learn the law of the coordinates that are farthest from standard normal."""
        mean = now.z.mean(0)
        variance = (now.z - mean).square().mean(0)
        away = (mean.square() + variance - 1 - variance.log()) / 2
        order = away.argsort(descending=True)[:FOLLOWED]
        self._seen = seen = order[away[order] > CHANCE_DIVERGENCE / len(now.z)]
        covariance = torch.cov(now.z[:, seen].T).reshape(len(seen), len(seen))
        covariance = (1 - SHRUNK) * covariance + SHRUNK * covariance.diagonal().diag()
        self._mean, self._root = mean[seen], torch.linalg.cholesky(covariance)

    def _white(self, z: Tensor) -> Tensor:
        off = (z[:, self._seen] - self._mean).T
        return torch.linalg.solve_triangular(self._root, off, upper=False).T

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples by moves that leave the law that was learned as it is."""
        stay, fresh = math.sqrt(1 - step**2), self._normals(len(z), generator)
        after = stay * z + step * fresh
        white = stay * self._white(z) + step * fresh[:, self._seen]
        after[:, self._seen] = self._mean + white @ self._root.T
        return self._at(after, generator)

    def proposal(
        self, now: Samples, powers: Tensor, step: float, generator: torch.Generator
    ) -> tuple[Samples, Tensor]:
        """Return moved samples, and the logarithm (n,) of the odds to take each."""
        proposed, ratio = super().proposal(now, powers, step, generator)
        before, after = (
            self._white(z).square().sum(1) - z[:, self._seen].square().sum(1)
            for z in (now.z, proposed.z)
        )
        return proposed, ratio + (after - before) / 2
