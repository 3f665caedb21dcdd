"""Joint posteriors of input and output of affine problems, against dense algebra and samples."""

import numpy as np
import pytest
import torch

from uqsonet.errors import ConfigError
from uqsonet.fields.grid import Grid
from uqsonet_study.priors.gaussian_process import SeparableField, squared_exponential
from uqsonet_study.problems import get_problem
from uqsonet_study.problems.helmholtz128 import Helmholtz128
from uqsonet_study.problems.poisson2d import Poisson2D
from uqsonet_study.problems.poisson128 import Poisson128
from uqsonet_study.reference.linear import GridSensors, linear_posterior

SIDES = ("input", "output")


class Poisson9(Poisson128):
    """The law and the equation of `poisson128` on 9 x 9 points."""

    points = 9


class Helmholtz9(Helmholtz128):
    """The same of `helmholtz128`."""

    points = 9


class Shifted(Poisson2D):
    """`poisson2d` on 9 x 9 points with an output that is not zero for f = 0."""

    def __init__(self):
        self.grid = Grid((0.0, 0.0), (1.0, 1.0), (9, 9))
        kernel = squared_exponential(1.0, 0.3, halved=True)
        self.prior = SeparableField(self.grid.axes(), lambda x: 2 + x[:, 0], kernel)

    def solve(self, kappa, unobserved=None):
        return super().solve(kappa) + 0.3


PROBLEMS = [Poisson9(), Helmholtz9(), Shifted()]
every = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: type(p).__name__)


def dense(problem):
    """Mean (2 n,) and factor (2 n, r) of kappa and u one below the other."""
    field = problem.prior
    centre = torch.cat([field.mean, problem.solve(field.mean[None])[0]])
    unit = field.field(torch.eye(field.rank).double())
    both = torch.cat([unit, problem.solve(unit)], 1) - centre
    return centre, both.T


def textbook(problem, weights, values, noise):
    """Mean and covariance of both fields by the formulas of appendix A.2, all matrices formed."""
    centre, factor = dense(problem)
    covariance = factor @ factor.T
    cross = covariance @ weights.T
    gram = weights @ cross + torch.diag(noise**2)
    gain = torch.linalg.solve(gram, cross.T).T
    return centre + gain @ (values - weights @ centre), covariance - gain @ cross.T


def observed(problem, seed, inputs, outputs, noise=(0.05, 0.002)):
    """Sensors of both sides on inner points, and the same as weights on both fields."""
    generator, n = np.random.default_rng(seed), problem.grid.size
    kappa, u = problem.sample(generator, 1)
    inner = torch.arange(n).reshape(9, 9)[1:-1, 1:-1].flatten().numpy()
    sensors, rows, values, levels = [], [], [], []
    for side, (field, m) in enumerate(((kappa, inputs), (u, outputs))):
        at = torch.from_numpy(generator.choice(inner, m, replace=False))
        level = noise[side] * torch.from_numpy(generator.uniform(0.5, 2, m))
        y = field[0, at] + level * torch.from_numpy(generator.standard_normal(m))
        sensors.append(GridSensors(at, y, level))
        row = torch.zeros(m, 2 * n).double()
        row[torch.arange(m), at + side * n] = 1.0
        rows, values, levels = [*rows, row], [*values, y], [*levels, level]
    return sensors, torch.cat(rows), torch.cat(values), torch.cat(levels)


def both(found):
    return torch.cat([found(side) for side in SIDES])


@every
@pytest.mark.parametrize("counts", [(0, 0), (7, 0), (0, 7), (6, 5)])
def test_both_fields_have_the_law_of_the_dense_formulas(problem, counts):
    sensors, weights, values, noise = observed(problem, 1, *counts)
    mean, covariance = textbook(problem, weights, values, noise)
    posterior = linear_posterior(problem, *sensors)
    torch.testing.assert_close(both(posterior.mean), mean, rtol=0, atol=1e-10)
    expected = covariance.diagonal().clamp_min(0).sqrt()
    torch.testing.assert_close(both(posterior.std), expected, rtol=1e-7, atol=1e-7)
    prior = dense(problem)[1].norm(dim=1)
    if counts == (0, 0):
        torch.testing.assert_close(expected, prior)
        torch.testing.assert_close(both(linear_posterior(problem, None, None).std), prior)
        return
    assert (expected < 0.9 * prior)[prior > 0].double().mean() > 0.1  # they tell something


@every
def test_samples_have_the_mean_and_the_covariance_of_the_law_and_belong_together(problem):
    sensors, weights, values, noise = observed(problem, 2, 4, 4)
    mean, covariance = textbook(problem, weights, values, noise)
    posterior, size = linear_posterior(problem, *sensors), 4000
    kappa, u = posterior.sample(size, np.random.default_rng(3))
    assert kappa.shape == u.shape == (size, 81)
    assert torch.equal(posterior.sample(size, np.random.default_rng(3))[1], u)
    torch.testing.assert_close(u, problem.solve(kappa), rtol=0, atol=1e-13)
    joint = torch.cat([kappa, u], 1)
    std = covariance.diagonal().clamp_min(0).sqrt()
    free = std > 1e-6
    z = (joint.mean(0) - mean)[free] / std[free] * size**0.5
    assert z.abs().max() < 4.5 and 0.5 < z.std() < 1.5
    # covariances of standardised values: 1 / sqrt(size) each, at most sqrt(2) on the diagonal
    white = (joint - mean)[:, free] / std[free]
    expected = covariance[free][:, free] / std[free] / std[free, None]
    off = (white.T @ white / size - expected) * size**0.5
    assert off.abs().max() < 6.5
    # kappa and u move together: independent draws of each would miss this
    cross = expected[: int(free[:81].sum()), int(free[:81].sum()) :]
    assert cross.abs().max() > 0.5


@every
@pytest.mark.parametrize("counts", [(9, 0), (5, 6)])
def test_exact_sensors_are_met_and_leave_no_spread_there(problem, counts):
    sensors, weights, values, _ = observed(problem, 6, *counts, noise=(0.0, 0.0))
    posterior = linear_posterior(problem, *sensors)
    torch.testing.assert_close(weights @ both(posterior.mean), values, rtol=0, atol=1e-9)
    kappa, u = posterior.sample(3, np.random.default_rng(0))
    drawn = torch.cat([kappa, u], 1) @ weights.T
    torch.testing.assert_close(drawn, values.expand(3, -1), rtol=0, atol=1e-9)
    prior = dense(problem)[1].norm(dim=1)
    assert (weights @ both(posterior.std) < 1e-6 * weights @ prior).all()
    assert posterior.std("input").max() > 0.05 * prior.max()


def test_all_of_u_known_exactly_gives_f_back_inside():
    """The inverse problem with nothing left open: f = Lap u by the five-point rule."""
    problem = Poisson9()
    kappa, u = problem.sample(np.random.default_rng(7), 1)
    # the boundary, too: sensors of what is zero for certain tell nothing and do no harm
    posterior = linear_posterior(problem, None, GridSensors(torch.arange(81), u[0]))
    found = posterior.mean("input").reshape(9, 9)[1:-1, 1:-1]
    torch.testing.assert_close(found, kappa.reshape(9, 9)[1:-1, 1:-1], rtol=0, atol=1e-9)
    assert posterior.std("input").reshape(9, 9)[1:-1, 1:-1].max() < 1e-6


def test_other_problems_are_refused_with_the_reason():
    read = GridSensors(torch.arange(1), torch.zeros(1))
    for name in ("diffusion1d", "elliptic_sde2d", "darcy64", "navier_stokes"):
        with pytest.raises(ConfigError, match=f"problem {name}: "):
            linear_posterior(get_problem(name), None, read)
    with pytest.raises(ConfigError, match="u is not affine in its input"):
        linear_posterior(get_problem("navier_stokes"), read).mean("output")
