"""Clusters of Gaussian fields, each of random size: a Gaussian mixture in closed form.

The coefficients are ``a = m_c + s R_c xi`` with ``xi ~ N(0, I)``, a cluster c and a scale s.
Clusters are fields of different kinds; scales give heavy tails (a Student-t process is one cluster
with many scales). Given c and s everything is Gaussian, so sensors of any number, place and noise
are conditioned on in closed form, and the weights of (c, s) follow from the evidence at the
sensors.

Clusters and scales come from expectation maximisation on the training inputs; the law of s is
nonparametric on a grid (Kiefer & Wolfowitz, Ann. Math. Statist. 27, 1956). How many clusters, and
whether they have scales, is chosen by the likelihood of training inputs that were held out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.seeds import numpy_generator, restarted
from uqsonet.laws.base import InputLaw, InputPosterior, normals
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases, rounding_noise
from uqsonet.sensors.sensors import Sensors

CLUSTERS = (1, 2, 3, 4, 6, 8)  # numbers to try, in order, until two do not improve the score
SCALE_POINTS = 32  # points of the grid of scales
STARTS = 4  # random starts of expectation maximisation
FIRST_STEPS, LAST_STEPS = 8, 60  # steps of each start, and of the best one
SHRINKAGE = (0.0, 0.01, 0.05, 0.2)  # weights to try, in order, of an identity in covariances
NEGLIGIBLE_WEIGHT = 1e-14  # clusters of a smaller weight given the sensors are left out of moments
MAX_INPUTS = 5000  # training inputs that take part in the choice of clusters
HELD_OUT = 0.2  # share of them that is held out, to choose by its likelihood
Choice = tuple[int, bool, float]  # clusters, whether they have scales, and shrinkage


@dataclass
class Clusters:
    """Parameters of C clusters of J scales."""

    log_weights: Tensor  # (C, J)
    scales: Tensor  # (J,)
    means: Tensor  # (C, r)
    roots: Tensor  # (C, r, r), lower triangular

    def joint(self, a: Tensor) -> Tensor:
        """Return log densities (N, C, J) of coefficients (N, r) with each cluster and scale."""
        r = a.shape[1]
        densities = []
        for mean, root in zip(self.means, self.roots, strict=True):
            white = torch.linalg.solve_triangular(root, (a - mean).T, upper=False)
            distance = white.square().sum(0)
            size = root.diagonal().log().sum() + r * self.scales.log()
            densities.append(-size - distance[:, None] / (2 * self.scales.square()))
        return torch.stack(densities, 1) + self.log_weights - r / 2 * math.log(2 * math.pi)


def _maximised(a: Tensor, shares: Tensor, scales: Tensor, shrinkage: float) -> Clusters:
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
    return Clusters((weights / weights.sum()).log(), scales, torch.stack(means), torch.stack(roots))


def positive_root(covariance: Tensor) -> Tensor:
    """Return the Cholesky root; directions without variance get that of rounding."""
    floor = 1e-12 * covariance.diagonal().amax()
    for _ in range(8):
        jitter = floor * torch.eye(len(covariance), dtype=covariance.dtype)
        root, failed = torch.linalg.cholesky_ex(covariance + jitter)
        if not int(failed):
            return root
        floor = floor * 10
    raise ArithmeticError("a covariance of coefficients is not positive")


def _better(likelihood: Tensor, other: Tensor) -> bool:
    """Return whether log likelihoods (H,) are higher than others by two standard errors."""
    gain = likelihood - other
    return float(gain.mean()) > 2 * float(gain.std()) / math.sqrt(len(gain))


class MixtureLaw(InputLaw):
    """A Gaussian mixture of clusters and scales (this module's text)."""

    name = "mixture"
    layout: ClassVar = {
        "log_weights": ("CJ", torch.float64),
        "scales": ("J", torch.float64),
        "means": ("Cr", torch.float64),
        "roots": ("Crr", torch.float64),
        "remainder": ("C", torch.float64),
    }

    def __init__(self, clusters: Clusters, remainder: Tensor) -> None:
        self.clusters, self.remainder = clusters, remainder

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Sequence[Self]:
        """Fit clusters to training inputs: with scales where these are likelier, and without.

        One scale for all modes gives fields that differ in roughness too much variance.
        """
        found = cls._of(sample, seed, True)
        return [found, cls._of(sample, seed, False)] if len(found.clusters.scales) > 1 else [found]

    def refitted(self, sample: InputSample, seed: int) -> Self | None:
        """Return clusters of other inputs, without scales if these have none."""
        return self._of(sample, seed, len(self.clusters.scales) > 1)

    @classmethod
    def _of(cls, sample: InputSample, seed: int, varied: bool) -> Self:
        """Return clusters, with scales if they may vary."""
        generator, a = numpy_generator(seed, "law", cls.name), sample.coefficients
        order = torch.from_numpy(generator.permutation(len(a)))[:MAX_INPUTS]
        held, rows = order.tensor_split([round(HELD_OUT * len(order))])
        chosen = _Search(a[rows], generator, varied).chosen(a[held])
        search = _Search(a, generator, varied)
        final = search.fitted(*chosen) or search.fitted(1, False, 1.0)
        assert final is not None
        shares = final.joint(a).flatten(2).logsumexp(2).softmax(1)
        left = (shares * sample.remainder.square()[:, None]).sum(0) / shares.sum(0)
        return cls(final, left.sqrt())

    def tensors(self) -> dict[str, Tensor]:
        """Return parameters and remainders."""
        return vars(self.clusters) | {"remainder": self.remainder}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> MixtureLaw:
        """Return the law that `tensors` were taken of."""
        rest = dict(tensors)
        if not bool((rest["scales"] > 0).all() & (rest["roots"].diagonal(0, 1, 2) > 0).all()):
            raise ValueError("scales, and diagonals of roots, must be positive")
        remainder = rest.pop("remainder")
        return cls(Clusters(**rest), remainder)

    def condition(self, bases: KarhunenLoeveBases, sensors: Sensors) -> InputPosterior:
        """Return the mixture given sensors: each cluster and scale in closed form."""
        noise = sensor_noise(sensors.noise(), rounding_noise(bases))
        rows, residual = (seen.cpu() for seen in bases.at_sensors(sensors))
        return self.condition_linear(rows, residual, sensors.mask, noise, noise.shape[1])

    def condition_linear(
        self, rows: Tensor, residual: Tensor, mask: Tensor, noise_std: Tensor, direct: int
    ) -> InputPosterior:
        """Return the mixture given linear functionals of the coefficients."""
        return MixturePosterior(self, rows, residual, mask, noise_std, direct)


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
                    if best[0] == -math.inf or _better(likelihood, best):
                        chosen, best, rises = (clusters, scaled, shrinkage), likelihood, True
                    if float(likelihood.mean()) < before:  # more shrinkage is worse still
                        break
                    before = float(likelihood.mean())
            in_vain = 0 if rises else in_vain + 1
            if in_vain == 2:
                break
        return chosen

    def fitted(self, clusters: int, scaled: bool, shrinkage: float) -> Clusters | None:
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

    def _start(self, clusters: int, scaled: bool, shrinkage: float, by_roughness: bool) -> Clusters:
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
        return Clusters(weights, scales, first.means, first.roots)

    def _improved(self, clusters: Clusters, steps: int, shrinkage: float) -> tuple[Clusters, float]:
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


class MixturePosterior(InputPosterior):
    """The mixture given sensors (arguments of `InputLaw.condition_linear`)."""

    has_coordinates = True

    def __init__(
        self, law: MixtureLaw, rows: Tensor, residual: Tensor, mask: Tensor, noise_std: Tensor,
        direct: int,
    ) -> None:  # fmt: skip
        self._law, c = law, law.clusters
        scales = c.scales
        self._directions: list[Tensor] = []
        means, reductions, evidences, farther = [], [], [], []
        half = mask.sum(-1, keepdim=True).double() / 2
        for mean, root, remainder, weight in zip(
            c.means, c.roots, law.remainder, c.log_weights, strict=True
        ):
            level = noise_std.clone()
            level[:, :direct] = sensor_noise(level[:, :direct], remainder)
            level = torch.where(mask, level, torch.ones_like(level))
            seen = (rows @ root) / level[..., None] * mask[..., None]
            left = torch.where(mask, (residual - rows @ mean) / level, torch.zeros_like(level))
            u, s, v = torch.linalg.svd(seen, full_matrices=False)
            along = (u.transpose(-1, -2) @ left[..., None])[..., 0]
            scaled = s[:, None, :] * scales[:, None]  # (B, J, k)
            total = scaled.square() + 1
            outside = (left.square().sum(-1) - along.square().sum(-1)).clamp_min(0)
            distance = (along.square()[:, None] / total).sum(-1) + outside[:, None]
            size = total.log().sum(-1) + 2 * level.log().sum(-1, keepdim=True)
            count = mask.sum(-1, keepdim=True) * math.log(2 * math.pi)
            evidences.append(weight - (distance + size + count) / 2)
            if mask.shape[1]:
                beyond = torch.special.gammaincc(half.clamp_min(0.5), distance / 2)
                farther.append(weight.exp() * beyond)  # without sensors the distance is zero
            self._directions.append(v)
            means.append(scaled / total * along[:, None])
            reductions.append(1 - total.rsqrt())
        joint = torch.stack(evidences, 1)  # (B, C, J)
        self.tail = torch.stack(farther, 1).flatten(1).sum(1) if farther else None
        self.log_evidence = joint.flatten(1).logsumexp(1)
        self._weights = (joint - self.log_evidence[:, None, None]).exp()
        self._means, self._reductions = torch.stack(means, 1), torch.stack(reductions, 1)

    @cached_property
    def mean(self) -> Tensor:
        """Mean (B, r) of the coefficients, float64."""
        eye = torch.eye(self._law.clusters.means.shape[1], dtype=torch.float64)
        return self.linear_moments(eye)[0]

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and covariance of ``weight a``, exactly."""
        c, weight = self._law.clusters, weight.double()
        batch = len(self.log_evidence)
        mean = torch.zeros(batch, len(weight), dtype=torch.float64)
        second = torch.zeros(batch, len(weight), len(weight), dtype=torch.float64)
        for k, v in enumerate(self._directions):
            shares = self._weights[:, k]  # (B, J)
            if float(shares.amax()) < NEGLIGIBLE_WEIGHT:
                continue
            seen = weight @ c.roots[k]
            through = v @ seen.T  # (B, k, p)
            places = c.scales[:, None] * self._means[:, k]  # (B, J, k)
            means = weight @ c.means[k] + places @ through  # (B, J, p)
            mean += (shares[..., None] * means).sum(1)
            squares = shares * c.scales.square()
            lost = self._reductions[:, k] * (2 - self._reductions[:, k])
            lost = (squares[..., None] * lost).sum(1)
            second += squares.sum(1)[:, None, None] * (seen @ seen.T)
            second -= through.transpose(1, 2) @ (lost[..., None] * through)
            second += (shares[..., None] * means).transpose(1, 2) @ means
        return mean, second - mean[:, :, None] * mean[:, None, :]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients: a cluster and a scale for each draw, then a Gaussian draw."""
        picked = self.kinds(size, generator)
        return self._placed(normals((1, size, self.mean.shape[1]), generator), picked)

    def coordinates(self, z: Tensor, kinds: Tensor) -> Tensor:
        """Map standard normals (n, r) to coefficients of these clusters and scales, of one set."""
        return self._placed(z[None], kinds[None])[0]

    def kinds(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw a cluster and a scale (B, size), as one number."""
        sets = restarted(generator, self._weights.flatten(1).float().split(1))
        picked = [torch.multinomial(w, size, True, generator=generator) for w in sets]
        return torch.cat(picked)

    def _placed(self, z: Tensor, picked: Tensor) -> Tensor:
        """Map standard normals (1, n, r) to coefficients (B, n, r) of clusters and scales."""
        c = self._law.clusters
        cluster, scale = picked // len(c.scales), picked % len(c.scales)
        samples = z.new_zeros(*picked.shape, z.shape[2])
        sizes, reductions, places = c.scales.to(z), self._reductions.to(z), self._means.to(z)
        for k, v in enumerate(self._directions):
            root, mean = c.roots[k].to(z).T, c.means[k].to(z)
            for b, direction in enumerate(v.to(z)):
                rows = (cluster[b] == k).nonzero()[:, 0]
                of = scale[b, rows]
                along = places[b, k, of] - reductions[b, k, of] * (z[0, rows] @ direction.T)
                white = (z[0, rows] + along @ direction) * sizes[of, None]
                samples[b, rows] = mean + white @ root
        return samples
