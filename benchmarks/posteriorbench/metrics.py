"""Distances between two sets of fields, as PosteriorBench defines them, and coverage.

Relative errors of mean and standard deviation; MMD with five Gaussian kernels whose squared widths
are multiples of the median squared distance between both sets; sliced Wasserstein-1 distance along
128 random smooth fields; geometric mean over rings of the relative error of the power spectrum.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from benchmarks.posteriorbench.problems import POINTS, SEED, spectrum, synthesis
from uqsonet.gauss.metrics import ascending, coverage, relative_error
from uqsonet.gauss.seeds import numpy_generator

WIDTHS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Squared widths of kernels in units of the median squared distance between both sets."""

PROJECTIONS = 128  # number of directions of the sliced distance
METRICS = "mean", "std", "mmd", "swd", "spectrum"

LEVELS = 0.5, 0.9  # levels of the bands whose coverage is measured


def distances(samples: Tensor, reference: Tensor, centre: float, scale: float) -> dict[str, float]:
    """Return the five metrics of samples (N, n, n) against reference samples (R, n, n).

    Parameters
    ----------
    centre, scale : float
        Mean and standard deviation of the prior: the sliced distance is one of fields less the
        first over the second.
    """
    x, y = samples.double().flatten(1), reference.double().flatten(1)
    found: dict[str, float] = dict(
        zip(METRICS, moment_errors(*moments(x), *moments(y)), strict=False)
    )
    found["mmd"] = mmd(x, y)
    found["swd"] = sliced((x - centre) / scale, (y - centre) / scale, directions())
    found["spectrum"] = spectral_error(power_by_ring(samples), power_by_ring(reference))
    return found


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (M,) of samples (N, M), without Bessel's correction."""
    return x.mean(0), x.std(0, correction=0)


def moment_errors(
    mean: Tensor, std: Tensor, true_mean: Tensor, true_std: Tensor
) -> tuple[float, float]:
    """Return the relative errors of mean and standard deviation in the norm of all points."""
    pairs = (mean, true_mean), (std, true_std)
    first, second = (float(relative_error(a.flatten(), b.flatten())) for a, b in pairs)
    return first, second


def mmd(x: Tensor, y: Tensor) -> float:
    """Return the maximum mean discrepancy of samples (N, M) and (R, M), a root; never unbiased."""
    between = torch.cdist(x, y).square()
    width = between.flatten().quantile(0.5)

    def kernel(square: Tensor) -> Tensor:
        return torch.stack([torch.exp(-square / (s * width)) for s in WIDTHS]).mean()

    within = [kernel(torch.cdist(one, one).square()) for one in (x, y)]
    return float((within[0] + within[1] - 2 * kernel(between)).clamp_min(0).sqrt())


@cache
def directions() -> Tensor:
    """Return random smooth fields (128, M) of norm one."""
    generator = numpy_generator(SEED, "projections")
    normals = torch.from_numpy(generator.standard_normal((PROJECTIONS, POINTS, POINTS)))
    fields = synthesis(spectrum(2.0, 3.0) * normals).flatten(1)
    return fields / fields.norm(dim=1, keepdim=True)


def sliced(x: Tensor, y: Tensor, along: Tensor) -> float:
    """Return the mean W1 distance of samples (N, M) and (R, M) along directions (P, M)."""
    first, second = (x @ along.T).sort(0).values, (y @ along.T).sort(0).values
    values = torch.cat([first, second]).sort(0).values
    inner = values[:-1].T.contiguous()
    shares = [
        torch.searchsorted(one.T.contiguous(), inner, right=True) / len(one)
        for one in (first, second)
    ]
    return float(((shares[0] - shares[1]).abs() * values.diff(dim=0).T).sum(1).mean())


@cache
def _rings() -> tuple[Tensor, int]:
    """Return the number of the ring of each frequency, and how many rings there are."""
    frequency = torch.fft.fftfreq(POINTS, dtype=torch.float64)
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    rings = (radius * POINTS + 1e-9).long()
    return rings.flatten(), POINTS // 2 + 1


def power_by_ring(samples: Tensor) -> Tensor:
    """Return the mean power (65,) of samples (N, n, n) in rings of frequencies."""
    power = sum(torch.fft.fft2(one.double()).abs().square().sum(0) for one in samples.split(64))
    assert isinstance(power, Tensor)
    rings, count = _rings()
    inside = rings < count
    total, size = torch.zeros(2, count, dtype=torch.float64)
    total.index_add_(0, rings[inside], power.flatten()[inside] / len(samples))
    size.index_add_(0, rings[inside], torch.ones_like(total[rings[inside]]))
    return total / size


def spectral_error(power: Tensor, reference: Tensor) -> float:
    """Return the geometric mean over rings of the relative error of the power."""
    error = (power - reference).abs() / reference
    return float((error + 1e-10).log().mean().exp())


def covered(samples: Tensor, reference: Tensor) -> list[float]:
    """Return what central bands of samples (N, ...) hold of reference samples (R, ...), by level.

    Values that all samples share at a point have no band there and do not count.
    """
    ordered = ascending(samples.float().flatten(1))
    return coverage(ordered, reference.float().flatten(1), LEVELS)


def mixing(chains: Tensor) -> tuple[float, float]:
    """Return R-hat and the effective size of chains (S, C, q), each the median over quantities.

    R-hat compares the variance of all halves of chains with that within them (Gelman et al.,
    Bayesian Data Analysis, 2013). The effective size is the variance over the squared error of the
    mean, as means of chains tell it: quantities that chains disagree in have a small one.
    """
    half = len(chains) // 2
    parts = torch.cat([chains[:half], chains[half : 2 * half]], 1)
    within, between = parts.var(0).mean(0), parts.mean(0).var(0)
    total = (half - 1) / half * within + between
    size = chains.shape[1] * total / chains.mean(0).var(0).clamp_min(1e-300)
    return float((total / within).sqrt().median()), float(size.median())
