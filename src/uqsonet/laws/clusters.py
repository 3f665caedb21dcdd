"""Clusters of Gaussian fields, each of random size, by expectation maximisation.

Clusters are fields of different kinds; scales give heavy tails (a Student-t process is one cluster
with many scales). The law of the scale is nonparametric on a grid (Kiefer & Wolfowitz, Ann. Math.
Statist. 27, 1956). How many clusters there are, and whether they have scales, is chosen by the
likelihood of runs that were held out.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.laws.components import Components, positive_root

CLUSTERS = (1, 2, 3, 4, 6, 8)  # numbers to try, in order, until two do not improve the score
SCALE_POINTS = 32  # points of the grid of scales
STARTS = 4  # random starts of expectation maximisation
FIRST_STEPS, LAST_STEPS = 8, 60  # steps of each start, and of the best one
SHRINKAGE = (0.0, 0.01, 0.05, 0.2)  # weights to try, in order, of an identity in covariances
MAX_RUNS = 5000  # runs that take part in the choice of clusters
HELD_OUT = 0.2  # share of them that is held out, to choose by its likelihood
Choice = tuple[int, bool, float]  # clusters, whether they have scales, and shrinkage


def fitted(a: Tensor, left: Tensor, generator: np.random.Generator, scaled: bool) -> Components:
    """Return the clusters of runs, with scales if they may be `scaled` and runs ask for them.

    Of N runs there are coefficients (N, r) and what the modes leave out of each (N,).
    """
    order = torch.from_numpy(generator.permutation(len(a)))[:MAX_RUNS]
    held, rows = order.tensor_split([round(HELD_OUT * len(order))])
    chosen = _Search(a[rows], generator, scaled).chosen(a[held])
    search = _Search(a, generator, scaled)
    final = search.fitted(*chosen) or search.fitted(1, False, 1.0)
    assert final is not None
    shares = final.joint(a).flatten(2).logsumexp(2).softmax(1)
    level = (shares * left.square()[:, None]).sum(0) / shares.sum(0)
    return final.replaced(remainder=level.sqrt())


@dataclass(frozen=True)
class _Search:
    """Clusters for coefficients `a` (N, r), with scales if they may be `varied`."""

    a: Tensor
    generator: np.random.Generator
    varied: bool

    def chosen(self, held: Tensor) -> Choice:
        """Return the clusters under which held-out coefficients are likeliest."""
        chosen, in_vain = (1, False, 1.0), 0
        best = torch.full((len(held),), -math.inf, dtype=torch.float64)
        for clusters in CLUSTERS:
            rises = False
            for scaled in (False, True) if self.varied else (False,):
                before = -math.inf
                for shrinkage in SHRINKAGE:
                    if (tried := self.fitted(clusters, scaled, shrinkage)) is None:
                        continue
                    likelihood = tried.joint(held).flatten(1).logsumexp(1)
                    if best[0] == -math.inf or better(likelihood, best):
                        chosen, best, rises = (clusters, scaled, shrinkage), likelihood, True
                    if float(likelihood.mean()) < before:  # more shrinkage is worse still
                        break
                    before = float(likelihood.mean())
            in_vain = 0 if rises else in_vain + 1
            if in_vain == 2:
                break
        return chosen

    def fitted(self, clusters: int, scaled: bool, shrinkage: float) -> Components | None:
        """Return the clusters from the best of some starts; None for too few inputs."""
        a, tried = self.a, []
        if len(a) < 4 * clusters or (shrinkage == 0 and len(a) < 3 * clusters * a.shape[1]):
            return None
        for number in range(STARTS if clusters > 1 else 1):
            # A cluster that shrinks to fewer inputs than it has directions ends the start.
            with contextlib.suppress(ArithmeticError):
                start = self._start(clusters, scaled, shrinkage, number == 0 and not self.varied)
                tried.append(self._improved(start, FIRST_STEPS, shrinkage))
        for best, _ in sorted(tried, key=lambda pair: -pair[1]):
            with contextlib.suppress(ArithmeticError):
                return self._improved(best, LAST_STEPS, shrinkage)[0]
        return None

    def _start(
        self, clusters: int, scaled: bool, shrinkage: float, by_roughness: bool
    ) -> Components:
        """Return random clusters, or those of the same roughness (mean log squared coefficient).

        Each training input belongs to the nearest of some random ones.
        """
        a, ones = self.a, torch.ones(1, dtype=torch.float64)
        centre = a[torch.from_numpy(self.generator.choice(len(a), clusters, replace=False))]
        if clusters == 1:
            centre = a.mean(0, keepdim=True)
        nearest = torch.cdist(a, centre).argmin(1)
        if by_roughness:
            rank = a.square().clamp_min(1e-300).log().mean(1).argsort().argsort()
            nearest = rank * clusters // len(a)
        scales = ones
        if scaled:
            sizes = (a - a.mean(0)).square().mean(1).sqrt()
            low, high = (float(sizes.quantile(q)) for q in (0.0005, 0.9995))
            scales = torch.from_numpy(np.geomspace(low / 1.3, high * 1.3, SCALE_POINTS))
        shares = torch.full((len(a), clusters, 1), 0.05 / clusters, dtype=torch.float64)
        shares[torch.arange(len(a)), nearest] += 0.95
        first = _maximised(a, shares, ones, max(shrinkage, 0.01))
        weights = first.log_weights.expand(-1, len(scales)) - math.log(len(scales))
        return first.replaced(log_weights=weights, scales=scales)

    def _improved(
        self, clusters: Components, steps: int, shrinkage: float
    ) -> tuple[Components, float]:
        """Return clusters after so many steps of expectation maximisation, or at convergence.

        And their mean log likelihood.
        """
        before = -math.inf
        for _ in range(steps):
            joint = clusters.joint(self.a)
            total = joint.flatten(1).logsumexp(1)
            now = float(total.mean())
            shares = (joint - total[:, None, None]).exp()
            clusters = _maximised(self.a, shares, clusters.scales, shrinkage)
            if now - before < 1e-5 * abs(now):
                break
            before = now
        return clusters, float(clusters.joint(self.a).flatten(1).logsumexp(1).mean())


def _maximised(a: Tensor, shares: Tensor, scales: Tensor, shrinkage: float) -> Components:
    """Return the parameters of highest likelihood, given shares (N, C, J) of each input."""
    r = a.shape[1]
    weights = shares.sum(0) + 1e-12
    precise = shares @ scales.square().reciprocal()  # (N, C)
    means, roots = [], []
    eye = torch.eye(r, dtype=a.dtype)
    for share, of_cluster in zip(precise.T, weights.sum(1), strict=True):
        mean = share @ a / share.sum()
        centred = a - mean
        covariance = (centred * share[:, None]).T @ centred / of_cluster
        level = covariance.diagonal().mean()
        covariance = (1 - shrinkage) * covariance + shrinkage * level * eye
        means.append(mean)
        roots.append(positive_root(covariance))
    nothing = torch.zeros(1, dtype=torch.float64)
    log_weights = (weights / weights.sum()).log()
    return Components(log_weights, scales, torch.stack(means), torch.stack(roots), nothing)


def better(likelihood: Tensor, other: Tensor) -> bool:
    """Return whether log likelihoods (H,) are higher than others by two standard errors."""
    gain = likelihood - other
    return float(gain.mean()) > 2 * float(gain.std()) / math.sqrt(len(gain))
