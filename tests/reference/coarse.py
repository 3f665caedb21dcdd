"""Small copies of the two-dimensional problems, and comparison within standard errors."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor

from tests.conftest import register
from uqsonet.fields.grid import Grid
from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.problems.elliptic_sde2d import EllipticSDE2D
from uqsonet_study.reference.moments import Moments
from uqsonet_study.reference.sampling import plain_draws

KERNEL = squared_exponential(std=1.0, length=0.4, halved=True)


def waves(x: Tensor) -> Tensor:
    return 4 * (torch.sin(2 * math.pi * x[:, 0]) + torch.sin(2 * math.pi * x[:, 1]))


class ToySDE2D(EllipticSDE2D):
    """`elliptic_sde2d` on 13 x 13 points, with smoother inputs to fit that grid."""

    name = "toy_sde2d"
    block = 250

    def __init__(self) -> None:
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (13, 13))
        self.prior = SeparableField(self.grid.axes(), waves, KERNEL)
        self.unobserved = SeparableField(self.grid.axes(), lambda x: 0 * x[:, 0], KERNEL)


register(ToySDE2D)


def posterior(problem: Problem, noise_std: float, count: int = 2) -> GaussianLaw:
    """Return the posterior for sensors on fixed places that read a draw of the prior."""
    generator = np.random.default_rng(5)
    places = torch.from_numpy(generator.choice(problem.grid.size, count, replace=False))
    x = problem.grid.points()[places]
    mean, rows = problem.prior.rows(x)
    y = mean + rows @ torch.from_numpy(generator.standard_normal(problem.prior.rank))
    return problem.prior.condition(x, y, noise_std)


def plain_samples(name: str, law: GaussianLaw, seed: int, size: int) -> Tensor:
    """Return u (size, n) by the paper's way."""
    generator = np.random.default_rng(seed)
    return torch.cat(list(plain_draws(get_problem(name), law, generator, size)))


def check_equal_to_plain(
    repeats: Sequence[Moments], u: Tensor, vectors: Tensor, places: Tensor
) -> None:
    """Compare independent estimates with plain samples u (n, N): Student's t, Bonferroni."""
    modes = u @ vectors
    pairs = (
        ([m.mean[places] for m in repeats], u[:, places]),
        ([m.variance[places] for m in repeats], (u - u.mean(0)).square()[:, places]),
        ([m.mode_mean for m in repeats], modes),
        (
            [m.mode_covariance.flatten() for m in repeats],
            (modes - modes.mean(0)).unsqueeze(2).mul((modes - modes.mean(0))[:, None]).flatten(1),
        ),
    )
    for estimates, samples in pairs:
        found = torch.stack(estimates)
        error = (found.var(0) / len(found) + samples.var(0) / len(samples)).sqrt()
        scores = (found.mean(0) - samples.mean(0)).abs() / error
        # The repeats have the fewest degrees of freedom: their quantiles bound all.
        assert scores.max() < t.isf(0.001 / (2 * scores.numel()), len(found) - 1)
        assert scores.max() > 0.1


def modes_of(u: Tensor, count: int) -> Tensor:
    """Return orthonormal test vectors (n, count): leading directions of u."""
    return torch.linalg.svd(u - u.mean(0), full_matrices=False)[2][:count].T.contiguous()
