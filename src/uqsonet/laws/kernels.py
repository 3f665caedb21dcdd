"""Components from kernels: fields whose length, variance or smoothness differs from run to run.

Such a field is a mixture of stationary Gaussian laws, the *members*: squared exponential and Matern
kernels of many lengths, each with many scales. Nothing is fitted to a member. Only how often each
of them occurs is unknown, and estimated from the likelihood of every run under every member by
nonparametric maximum likelihood (Kiefer & Wolfowitz, Ann. Math. Statist. 27, 1956; expectation
maximisation). The law is then conditioned as any mixture of Gaussian laws.

All members share one mean. The average of N runs has an error of covariance C / N that is as rough
as the roughest run, beside which smooth runs are no longer smooth. So the error of the mean is part
of each member's covariance, and the mean is estimated anew by generalised least squares, in which
smooth runs count for more: that leaves an error far below C / N. White noise of the runs, such as
rounding in their file, would hide how smooth they are in the same way, and is estimated, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import Domain, JointDomain
from uqsonet.gauss.blocks import least_squares
from uqsonet.laws.base import classes_of
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases
from uqsonet.laws.components import Components, positive_root

COARSE_INPUTS = 2000  # training inputs that show which kernels and lengths occur, at most
COARSE_POINTS = 512  # points of them, at most
COARSE_LENGTHS = 24  # lengths of each kernel then
FINE_POINTS = 8  # points for each mode on which the covariances of members are summed, or all
MEMBERS, SCALES = 96, 16  # kernels of one length, and scales, before rare ones are left out
MIN_RATIO = 1.03  # minimum ratio of neighbouring lengths, and of scales
MIN_WEIGHT = 1e-3  # weight of a kernel of one length, or of a scale, that counts as occurring
FAMILY_STEPS = 300  # steps of expectation maximisation
MEAN_ROUNDS = 3  # times that the mean is estimated anew
MEMBER_NUGGET = 0.01  # share of C / N added to each member: runs are of it, but for the last digits
NOISE = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Noise of the runs to try, as a share of the fields' std: digits that a file keeps, what a solver
tolerates. Beside it, smooth runs would look like rough ones."""
NEAR_PAIRS = 2000  # pairs of near points that show how fast fields vary along each axis

CORRELATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda d: torch.exp(-d.square()),
    lambda d: torch.exp(-d),
    lambda d: (1 + 3**0.5 * d) * torch.exp(-(3**0.5) * d),
    lambda d: (1 + 5**0.5 * d + 5 / 3 * d.square()) * torch.exp(-(5**0.5) * d),
)
"""Squared exponential; Matern 1/2, 3/2 and 5/2."""

Member = tuple[int, float]  # number of a correlation, and a length


def fitted(sample: InputSample, generator: np.random.Generator) -> Components | None:
    """Return the members that occur and how often; None for several fields, one point, classes."""
    several = isinstance(sample.bases.fields.input.grid, JointDomain)
    if several or sample.fields.shape[1] == 1 or classes_of(sample.fields) is not None:
        return None
    bases, a = sample.bases, sample.coefficients
    domain = bases.fields.input.grid
    points = _alike_axes(_coordinates(domain), sample.fields, generator)
    order, rows = (torch.from_numpy(generator.permutation(n)) for n in (len(points), len(a)))
    factor, to = bases.input_factor.double(), bases.from_fields()
    variance = factor.square().sum() / len(factor) + sample.remainder.square().mean()
    scales = variance.sqrt() * torch.logspace(-0.75, 0.75, 11, dtype=torch.float64)
    members, some = _lengths(points), a[rows[:COARSE_INPUTS]]
    whites = [share**2 * variance * (to.T @ to) for share in NOISE]

    coarse = _covariances(points, bases, order[:COARSE_POINTS])
    few = [coarse(member) for member in members]
    best, _ = _with_noise(some, few, scales, whites, len(a), 0)
    members, scales = _refined(members, scales, best.weights)
    fine = _covariances(points, bases, order[: max(COARSE_POINTS, FINE_POINTS * a.shape[1])])
    covariances = [fine(member) for member in members]
    # Anew: gaps between coarse lengths, and the average, look like noise.
    _, noise = _with_noise(some, covariances, scales, whites, len(a), MEAN_ROUNDS)
    final = _weighed(a, covariances, scales, noise, len(a), MEAN_ROUNDS)
    weights, mean, uncertain = final.weights, final.mean, final.uncertain

    used, often = weights.sum(1) > MIN_WEIGHT, weights.sum(0) > MIN_WEIGHT
    weights, scales = weights[used][:, often].clamp_min(1e-12), scales[often]
    squared = weights @ scales.square() / weights.sum(1)
    roots, remainders = [], []
    for number, level in zip(used.nonzero()[:, 0].tolist(), squared, strict=True):
        covariance = covariances[number]
        roots.append(positive_root(covariance + uncertain / level).float())
        inside = (factor.T @ factor * covariance).sum() / len(factor)
        remainders.append((level * (1 - inside).clamp_min(0)).sqrt())
    shares = (weights / weights.sum()).log()
    return Components(shares, scales, mean[None], torch.stack(roots), torch.stack(remainders))


def _coordinates(domain: Domain) -> Tensor:
    """Return points (n, d); a periodic axis is a circle in the plane, of its own length."""
    points, grid = domain.points(), getattr(domain, "grid", domain)
    if not (isinstance(grid, Grid) and grid.periodic):
        return points
    span = torch.tensor(grid.upper, dtype=torch.float64) - torch.tensor(grid.lower)
    angle = 2 * math.pi * points / span
    return torch.cat([span * angle.cos(), span * angle.sin()], 1) / (2 * math.pi)


def _alike_axes(points: Tensor, fields: Tensor, generator: np.random.Generator) -> Tensor:
    """Return points (n, d) in units in which fields vary as fast along all axes.

    Squared differences of fields at near points are fitted by those of each coordinate.
    """
    extent = (points.amax(0) - points.amin(0)).clamp_min(1e-300)
    points, extent = points / extent.amax(), extent / extent.amax()
    if points.shape[1] == 1:
        return points
    first, second = torch.from_numpy(generator.integers(len(points), size=(2, 20 * NEAR_PAIRS)))
    apart = (points[first] - points[second]).square()
    distance = (apart / extent.square()).sum(1)
    near = distance.masked_fill(distance == 0, math.inf).argsort()[:NEAR_PAIRS]
    some = fields[:COARSE_INPUTS].double()
    change = (some[:, first[near]] - some[:, second[near]]).square().mean(0)
    rate = least_squares([(apart[near], change[:, None])])[:, 0]
    return points * (rate / rate.amax().clamp_min(1e-300)).clamp_min(1e-4).sqrt()


def _covariances(
    points: Tensor, bases: KarhunenLoeveBases, chosen: Tensor
) -> Callable[[Member], Tensor]:
    """Return what gives the covariance (r, r) of coefficients of a member of variance one.

    It is projected from the chosen ones of the points (n, d) by least squares, or from all.
    """
    to = bases.from_fields()
    if len(chosen) < len(points):
        to = torch.linalg.pinv(bases.input_factor[chosen].double()).T
        points = points[chosen]

    def covariance(member: Member) -> Tensor:
        kernel, length = member
        total = to.T @ (CORRELATIONS[kernel](torch.cdist(points, points) / length) @ to)
        return (total + total.T) / 2

    return covariance


def _lengths(points: Tensor) -> list[Member]:
    """Return members of all lengths that points can tell."""
    extent = points.amax(0) - points.amin(0)
    size = extent.clamp_min(1e-12).log().mean().exp()
    shortest = 0.5 * float(size) * len(points) ** (-1 / points.shape[1])
    lengths = np.geomspace(shortest, 4 * float(extent.amax()), COARSE_LENGTHS).tolist()
    kernels = range(len(CORRELATIONS))
    return [(kernel, length) for kernel in kernels for length in lengths]


def _refined(members: list[Member], scales: Tensor, weights: Tensor) -> tuple[list[Member], Tensor]:
    """Return members and scales about those that occur, closer to one another."""
    used = scales[weights.sum(0) > MIN_WEIGHT]
    near = _closer(used, float(scales[1] / scales[0]), SCALES)
    shares = weights.sum(1)
    occur = [members[k] for k in (shares > MIN_WEIGHT).nonzero()[:, 0].tolist()]
    occur = occur or [members[int(shares.argmax())]]
    kernels = sorted({kernel for kernel, _ in occur})
    lengths = torch.tensor([length for _, length in occur])
    fine = _closer(lengths, members[1][1] / members[0][1], MEMBERS // len(kernels))
    return [(kernel, length) for kernel in kernels for length in fine.tolist()], near


def _closer(values: Tensor, step: float, most: int) -> Tensor:
    """Return at most so many values of equal ratio, from a step below some to a step above."""
    low, high = float(values.amin()) / step, float(values.amax()) * step
    count = min(most, max(3, 1 + math.ceil(math.log(high / low) / math.log(MIN_RATIO))))
    return torch.from_numpy(np.geomspace(low, high, count))


class _Weighed(NamedTuple):
    """Weights of members, and what they share."""

    weights: Tensor  # (C, J)
    mean: Tensor  # (r,)
    uncertain: Tensor  # (r, r), covariance of the mean's error and of the noise
    evidence: float  # average log density of the runs


def _weighed(
    a: Tensor, covariances: list[Tensor], scales: Tensor, noise: Tensor, runs: int, rounds: int
) -> _Weighed:
    """Return the likeliest weights of members with this covariance (r, r) of noise.

    The mean is at first the average of so many runs, whose coefficients have variance one.
    """
    eye, error = torch.eye(a.shape[1], dtype=a.dtype), 1 / runs
    mean, uncertain = torch.zeros_like(eye[0]), error * eye + noise
    size, evidence = len(covariances) * len(scales), -math.inf
    weights = torch.full((size,), 1 / size, dtype=a.dtype)
    for number in range(rounds + 1):
        axes = [_principal(covariance, uncertain) for covariance in covariances]
        joint = torch.stack([_densities((a - mean) @ to, values, scales) for to, values in axes], 1)
        weights = _likeliest(joint.flatten(1), weights)
        weighted = joint.flatten(1) + weights.clamp_min(1e-300).log()
        shared = positive_root(uncertain).diagonal().log().sum()
        evidence = float(weighted.logsumexp(1).mean() - shared)
        if number < rounds:
            mean, uncertain = _mean(a, weighted.softmax(1).view_as(joint), axes, scales)
            uncertain = uncertain + MEMBER_NUGGET * error * eye + noise
    return _Weighed(weights.view(len(covariances), len(scales)), mean, uncertain, evidence)


def _with_noise(
    a: Tensor, covariances: list[Tensor], scales: Tensor, whites: list[Tensor], runs: int,
    rounds: int,
) -> tuple[_Weighed, Tensor]:  # fmt: skip
    """Return what `_weighed` gives with more and more noise, while runs become likelier; and it."""
    best, noise = _weighed(a, covariances, scales, whites[0], runs, rounds), whites[0]
    for white in whites[1:]:
        found = _weighed(a, covariances, scales, white, runs, rounds)
        if found.evidence <= best.evidence:
            break
        best, noise = found, white
    return best, noise


def _principal(covariance: Tensor, uncertain: Tensor) -> tuple[Tensor, Tensor]:
    """Return B (r, r) and d (r,): ``s^2 covariance + uncertain`` is ``I + s^2 d`` in ``a B``."""
    root = positive_root(uncertain)
    half = torch.linalg.solve_triangular(root, covariance, upper=False)
    white = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((white + white.T) / 2)
    return torch.linalg.solve_triangular(root.T, vectors, upper=True), values.clamp_min(0)


def _densities(white: Tensor, values: Tensor, scales: Tensor) -> Tensor:
    """Return log densities (N, J) of ``a B`` (N, r), up to what all members share."""
    variances = 1 + scales.square()[:, None] * values
    return -(white.square() @ variances.reciprocal().T + variances.log().sum(1)) / 2


def _likeliest(joint: Tensor, weights: Tensor) -> Tensor:
    """Return the weights (K,) of highest likelihood for log densities (N, K)."""
    density = (joint - joint.amax(1, keepdim=True)).exp()
    for _ in range(FAMILY_STEPS // 20):
        alive = weights > 1e-9  # most members die out soon
        part, kept = density[:, alive], weights[alive] / weights[alive].sum()
        for _ in range(20):
            kept = kept * (part / (part @ kept)[:, None]).mean(0)
        weights = torch.zeros_like(weights).masked_scatter(alive, kept)
    return weights


def _mean(
    a: Tensor, shares: Tensor, axes: list[tuple[Tensor, Tensor]], scales: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean (r,) by generalised least squares, and the covariance of its error."""
    precision, pull = torch.zeros_like(axes[0][0]), torch.zeros_like(a[0])
    for (along, values), share in zip(axes, shares.unbind(1), strict=True):
        precise = (1 + scales.square()[:, None] * values).reciprocal()  # (J, r)
        precision += (along * (share.sum(0) @ precise)) @ along.T
        pull += along @ ((share.T @ (a @ along)) * precise).sum(0)
    root = positive_root(precision)
    return torch.cholesky_solve(pull[:, None], root)[:, 0], torch.cholesky_inverse(root)
