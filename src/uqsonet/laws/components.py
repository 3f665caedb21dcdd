"""Gaussian components in closed form: what mixtures are made of, and their law given sensors.

The coefficients are ``a = m_c + s R_c xi`` with ``xi ~ N(0, I)``, a component c and a scale s.
Given c and s everything is Gaussian, so sensors of any number, place and noise are conditioned on
in closed form, and the weights of (c, s) follow from the evidence at the sensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import Given, Moments, normals
from uqsonet.gauss.seeds import restarted

TOGETHER = 1 << 21  # values that are worked on at a time
NEGLIGIBLE_WEIGHT = 1e-14  # components of a smaller weight given the sensors are left out


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


@dataclass(frozen=True)
class Components:
    """C components of J scales. Means, roots and remainders may be one that all of them share."""

    log_weights: Tensor  # (C, J)
    scales: Tensor  # (J,)
    means: Tensor  # (C or 1, r)
    roots: Tensor  # (C or 1, r, r)
    remainder: Tensor  # (C or 1,), what the modes leave out of fields, root mean square

    def __post_init__(self) -> None:
        count, scales = self.log_weights.shape
        r = self.means.shape[1]
        shapes = {"scales": (scales,), "means": (r,), "roots": (r, r), "remainder": ()}
        for name, shape in shapes.items():
            found = tuple(getattr(self, name).shape)
            if found not in ((shape,) if name == "scales" else ((count, *shape), (1, *shape))):
                raise ValueError(f"{name} is {found}; of {count} components it is {shape} for each")
        if not bool((self.scales > 0).all() & (self.roots.diagonal(0, 1, 2) > 0).all()):
            raise ValueError("scales, and diagonals of roots, must be positive")

    def replaced(self, **tensors: Tensor) -> Components:
        """Return the components with some other tensors."""
        return Components(**(vars(self) | tensors))

    def times(self, share: float) -> Components:
        """Return the components with weights times a share."""
        return self.replaced(log_weights=self.log_weights + math.log(share))

    def some(self, which: Tensor | slice) -> Self:
        """Return some of the components."""
        count, own = len(self.log_weights), {}
        for name, one in vars(self).items():
            shared = name in ("scales", "runs") or len(one) != count
            own[name] = one if shared else one[which]
        return type(self)(**own)

    def dense(self) -> Tensor:
        """Return the roots (C or 1, r, r), float64."""
        return self.roots.double()

    def seen(self, rows: Tensor) -> Tensor:
        """Return a root (C or 1, m, k) of what sensors with rows (m, r) see of each covariance."""
        return rows @ self.dense()

    def parts(self, values: int) -> Iterator[slice]:
        """Yield components that are worked on at a time, with so many values for each."""
        count = len(self.log_weights)
        step = max(1, count if len(self.roots) == 1 else TOGETHER // max(values, 1))
        yield from (slice(first, first + step) for first in range(0, count, step))

    def joint(self, a: Tensor) -> Tensor:
        """Return log densities (N, C, J) of coefficients (N, r) with each component and scale."""
        r, found = a.shape[1], []
        for c in range(len(self.log_weights)):
            one = self.some(slice(c, c + 1))
            white = torch.linalg.solve_triangular(one.roots[0], (a - one.means).T, upper=False)
            size = one.roots[0].diagonal().log().sum() + r * self.scales.log()
            found.append(-size - white.square().sum(0)[:, None] / (2 * self.scales.square()))
        return torch.stack(found, 1) + self.log_weights - r / 2 * math.log(2 * math.pi)


class Readings(NamedTuple):
    """Linear functionals of the coefficients that m sensors read, H times over."""

    rows: Tensor  # (m, r)
    residual: Tensor  # (H, m)
    noise_std: Tensor  # (m,)
    direct: int  # the first are values of the field: what modes leave out is added to their noise


class Seen(NamedTuple):
    """What readings say of C components of J scales; R is C, or 1 where they share a root."""

    evidence: Tensor  # (C, H, J), log density of the readings, times the weight
    distance: Tensor  # (C, H, J), squared, from what the component expects
    along: Tensor  # (C, H, k), along the directions
    size: Tensor  # (R, k), std of each direction over that of the noise, for scale one
    directions: Tensor | None  # (R, k, r)

    @classmethod
    def of(cls, some: Components, read: Readings, directed: bool = False) -> Self:
        """Return what is seen of some components, with its directions where these are asked for."""
        scales, m = some.scales, len(read.noise_std)
        noise = read.noise_std.expand(len(some.remainder), m).clone()
        noise[:, : read.direct] = sensor_noise(noise[:, : read.direct], some.remainder[:, None])
        left = (read.residual - (some.means @ read.rows.T)[:, None]) / noise[:, None]
        left = left.expand(len(some.log_weights), -1, -1)
        rows = (read.rows @ some.dense() if directed else some.seen(read.rows)) / noise[..., None]
        v = None
        if directed or m > rows.shape[2]:
            u, s, v = torch.linalg.svd(rows, full_matrices=False)
        else:  # beside noise of variance one, squares are exact enough
            values, u = torch.linalg.eigh(rows @ rows.transpose(1, 2))
            s = values.clamp_min(0).sqrt()
        along = left @ (u[0] if len(u) == 1 else u)
        total = (s[:, None] * scales[:, None]).square() + 1  # (R, J, k)
        outside = (left.square().sum(-1) - along.square().sum(-1)).clamp_min(0)
        precise = total.reciprocal().transpose(1, 2)
        distance = along.square() @ (precise[0] if len(u) == 1 else precise) + outside[..., None]
        size = total.log().sum(-1) + 2 * noise.log().sum(-1, keepdim=True)
        density = (distance + size[:, None] + m * math.log(2 * math.pi)) / 2
        return cls(some.log_weights[:, None] - density, distance, along, s, v)


class MixtureGiven(Given):
    """Components given B sets of readings; what each is moved to is worked out where it counts."""

    def __init__(self, blocks: Sequence[Components], sets: Sequence[Readings]) -> None:
        self._blocks, self._sets = blocks, sets
        logs, tails = [], []
        for read in sets:
            m, evidence, tail = len(read.noise_std), [], 0.0
            for block in blocks:
                for part in block.parts(max(m, 1) * read.rows.shape[1]):
                    some = block.some(part)
                    seen = Seen.of(some, read)
                    evidence.append(seen.evidence[:, 0].flatten())
                    half = torch.tensor(m / 2, dtype=torch.float64)
                    beyond = torch.special.gammaincc(half, seen.distance[:, 0] / 2) if m else 1.0
                    tail += float((some.log_weights.exp() * beyond).sum())
            logs.append(torch.cat(evidence))
            tails.append(tail)
        joint = torch.stack(logs)  # (B, all)
        self.normals = 1 + sets[0].rows.shape[1]
        read_any = any(len(read.noise_std) for read in sets)
        self.tail = torch.tensor(tails, dtype=torch.float64) if read_any else None
        self.weights = joint.softmax(1)

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the exact moments; `size` and `generator` have no influence."""
        means, covariances = [], []
        for weights, read in zip(self.weights, self._sets, strict=True):
            r = read.rows.shape[1]
            mean, second = torch.zeros(r).double(), torch.zeros(r, r).double()
            sizes = [block.log_weights.numel() for block in self._blocks]
            for block, own in zip(self._blocks, weights.split(sizes), strict=True):
                share = own.view_as(block.log_weights)
                used = (share.amax(1) > NEGLIGIBLE_WEIGHT).nonzero()[:, 0]
                for part in block.some(used).parts((r + len(read.noise_std)) * r):
                    add = _moments(block.some(used[part]), share[used[part]], read)
                    mean, second = mean + add[0], second + add[1]
            means.append(mean)
            covariances.append(second - mean[:, None] * mean)
        return torch.stack(means), torch.stack(covariances)

    def linear_moments(self, weight: Tensor) -> Moments:
        """Return mean and covariance of ``weight a``, exactly."""
        mean, covariance = self.moments()
        weight = weight.double()
        return mean @ weight.T, weight @ covariance @ weight.T

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients: a component and a scale for each draw, then a Gaussian draw."""
        sets = restarted(generator, self.weights.float().split(1))
        picked = [torch.multinomial(w, size, True, generator=generator) for w in sets]
        return self._placed(normals((1, size, self.normals - 1), generator), torch.cat(picked))

    def made(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Map standard normals (n, 1 + r): the first says which component, of the only set."""
        below = self.weights[0].cumsum(0)
        picked = torch.searchsorted(below, torch.special.ndtr(z[:, 0].contiguous()))
        return self._placed(z[None, :, 1:], picked.clamp_max(len(below) - 1)[None])[0]

    def _placed(self, z: Tensor, picked: Tensor) -> Tensor:
        """Map standard normals (1, n, r) to coefficients (B, n, r) of components and scales."""
        samples, first = z.new_zeros(*picked.shape, z.shape[2]), 0
        for block in self._blocks:
            last = first + block.log_weights.numel()
            for b, read in enumerate(self._sets):
                here = ((picked[b] >= first) & (picked[b] < last)).nonzero()[:, 0]
                samples[b, here] = _draws(block, read, z[0, here], picked[b, here] - first)
            first = last
        return samples


def _moments(some: Components, share: Tensor, read: Readings) -> tuple[Tensor, Tensor]:
    """Return what components with shares (C, J) add to mean (r,) and second moment (r, r)."""
    seen, scales, r = Seen.of(some, read, True), some.scales, some.means.shape[1]
    assert seen.directions is not None
    scaled = seen.size[:, None] * scales[:, None]  # (R, J, k)
    total = scaled.square() + 1
    roots = some.dense()
    through = seen.directions @ roots.transpose(1, 2)  # (R, k, r)
    places = scales[:, None] * scaled / total * seen.along[:, :1]  # (C, J, k)
    means = some.means[:, None] + places @ (through[0] if len(through) == 1 else through)
    flat, weight = means.reshape(-1, r), share.reshape(-1, 1)
    second = (weight * flat).T @ flat
    squares = (share * scales.square()).sum(1)  # (C,)
    lost = ((share * scales.square())[..., None] * (1 - 1 / total)).sum(1)  # (C, k)
    if len(roots) == 1:
        squares = squares.sum()[None]
    if len(through) == 1:
        lost = lost.sum(0, keepdim=True)
    wide = (squares.sqrt()[:, None, None] * roots).transpose(0, 1).reshape(r, -1)
    gone = (lost.sqrt()[..., None] * through).reshape(-1, r)
    return (weight * flat).sum(0), second + wide @ wide.T - gone.T @ gone


def _draws(block: Components, read: Readings, z: Tensor, picked: Tensor) -> Tensor:
    """Map standard normals (n, r) to coefficients of components and scales (n,), as one number."""
    scales, samples = block.scales, torch.empty_like(z)
    used, number = (picked // len(scales)).unique(return_inverse=True)
    for part in block.some(used).parts((z.shape[1] + len(read.noise_std)) * z.shape[1]):
        some = block.some(used[part])
        seen, count = Seen.of(some, read, True), len(some.log_weights)
        assert seen.directions is not None
        size = seen.size[:, None] * scales[:, None]
        total = size.square() + 1
        places, reductions = (size / total * seen.along[:, :1]).to(z), (1 - total.rsqrt()).to(z)
        v, reductions, means, roots = (
            one.to(z).expand(count, *one.shape[1:])
            for one in (seen.directions, reductions, some.means, some.dense())
        )
        for c in range(count):
            rows = (number == part.start + c).nonzero()[:, 0]
            scale = picked[rows] % len(scales)
            along = places[c, scale] - reductions[c, scale] * (z[rows] @ v[c].T)
            white = (z[rows] + along @ v[c]) * scales.to(z)[scale, None]
            samples[rows] = means[c] + white @ roots[c].T
    return samples
