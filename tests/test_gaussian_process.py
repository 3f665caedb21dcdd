"""Gaussian fields: sampled law, textbook posterior (appendix A.2), degenerate sensors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from uqsonet.fields import Grid
from uqsonet.gaussian import condition
from uqsonet.gaussian_process import GaussianField, squared_exponential
from uqsonet.problems import get_problem

STD, LENGTH = 0.5, 0.3
KERNEL = squared_exponential(STD, LENGTH)
GRID = Grid((-1.0,), (1.0,), (41,))


def mean(x):
    return torch.sin(2 * math.pi * x[:, 0])


FIELD = GaussianField(GRID.points(), mean, KERNEL)


def textbook(x, y, noise_std, at):
    """Posterior mean and covariance exactly as printed in appendix A.2."""
    gram = KERNEL(x, x) + noise_std**2 * torch.eye(len(x)).double()
    cross = KERNEL(at, x)
    posterior_mean = mean(at) + cross @ torch.linalg.solve(gram, y - mean(x))
    return posterior_mean, KERNEL(at, at) - cross @ torch.linalg.solve(gram, cross.T)


def moments(law):
    covariance = FIELD.factor @ law.root @ law.root.T @ FIELD.factor.T
    return FIELD.field(law.mean), covariance


def column(*places):
    return torch.tensor(places).double()[:, None]


def test_kernels_are_those_printed_in_the_paper():
    a, b = column(0.1), column(0.3)
    assert float(KERNEL(a, b)) == pytest.approx(0.25 * math.exp(-0.04 / 0.09))
    halved = squared_exponential(STD, LENGTH, halved=True)
    assert float(halved(a, b)) == pytest.approx(0.25 * math.exp(-0.04 / 0.18))
    x, y = torch.tensor([[0.0, 0.0]]).double(), torch.tensor([[0.3, 0.4]]).double()
    assert float(squared_exponential(2.0, 0.5)(x, y)) == pytest.approx(4 * math.exp(-1.0))


def test_factor_reproduces_the_covariance_to_rounding():
    expected = KERNEL(GRID.points(), GRID.points())
    torch.testing.assert_close(FIELD.factor @ FIELD.factor.T, expected, rtol=0, atol=1e-13)
    assert FIELD.rank < 41


def test_diffusion1d_prior_is_eqn_1d_gp():
    prior = get_problem("diffusion1d").prior
    x = torch.linspace(-1, 1, 401, dtype=torch.float64)
    expected = 0.25 * torch.exp(-((x[:, None] - x) ** 2) / 0.01)
    torch.testing.assert_close(prior.factor @ prior.factor.T, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(prior.mean, torch.sin(2 * math.pi * x))


def test_sample_mean_and_covariance_lie_within_their_standard_errors():
    size = 40_000
    xi = torch.from_numpy(np.random.default_rng(5).standard_normal((size, FIELD.rank)))
    sample = FIELD.field(xi)
    covariance = KERNEL(GRID.points(), GRID.points())
    z = (sample.mean(0) - mean(GRID.points())) / (STD / size**0.5)
    assert z.abs().max() < norm.isf(0.001 / (2 * 41))  # Bonferroni over the points
    found = (sample - sample.mean(0)).T @ (sample - sample.mean(0)) / (size - 1)
    # Var of a sample covariance of Gaussians: (c_ij^2 + c_ii c_jj) / n
    error = ((covariance**2 + STD**4) / size).sqrt()
    z = (found - covariance) / error
    assert z.abs().max() < norm.isf(0.001 / (41 * 42))  # 41 * 42 / 2 distinct entries, two tails
    assert z.abs().max() > 1  # the bound is of the right size: the errors are not zero


@pytest.mark.parametrize("noise_std", [0.1, 0.5, 3.0])
@pytest.mark.parametrize(
    "places", [(-0.5, 0.0, 0.8), (-0.4871, 0.0123, 0.6543, 0.999)], ids=["grid", "off_grid"]
)
def test_noisy_posterior_equals_the_textbook(places, noise_std):
    x = column(*places)
    y = torch.tensor([0.3, -0.7, 1.1, 0.2]).double()[: len(x)]
    expected_mean, expected_covariance = textbook(x, y, noise_std, GRID.points())
    found_mean, found_covariance = moments(FIELD.condition(x, y, noise_std))
    torch.testing.assert_close(found_mean, expected_mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(found_covariance, expected_covariance, rtol=0, atol=1e-9)


@pytest.mark.parametrize("places", [(-0.5, 0.0, 0.8), (-0.4871, 0.0123, 0.6543)])
def test_noiseless_posterior_equals_the_textbook(places):
    x, y = column(*places), torch.tensor([0.3, -0.7, 1.1]).double()
    expected_mean, expected_covariance = textbook(x, y, 0.0, GRID.points())
    found_mean, found_covariance = moments(FIELD.condition(x, y))
    torch.testing.assert_close(found_mean, expected_mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(found_covariance, expected_covariance, rtol=0, atol=1e-8)


def test_ten_sensors_of_the_papers_problem_equal_the_textbook():
    prior = get_problem("diffusion1d").prior
    grid = get_problem("diffusion1d").grid.points()
    kernel = squared_exponential(0.5, 0.1)
    generator = np.random.default_rng(1)
    x = grid[np.sort(generator.choice(401, 10, replace=False))]
    y = torch.from_numpy(generator.standard_normal(10)) * 0.5 + mean(x)
    gram, cross = kernel(x, x) + 0.01 * torch.eye(10).double(), kernel(grid, x)
    expected = mean(grid) + cross @ torch.linalg.solve(gram, y - mean(x))
    variance = 0.25 - (cross * torch.linalg.solve(gram, cross.T).T).sum(1)
    law = prior.condition(x, y, 0.1)
    torch.testing.assert_close(prior.field(law.mean), expected, rtol=0, atol=1e-9)
    found = (prior.factor @ law.root).square().sum(1)
    torch.testing.assert_close(found, variance, rtol=0, atol=1e-9)


def test_variance_is_zero_and_the_mean_exact_at_a_noiseless_sensor():
    x, y = GRID.points()[[4, 20, 33]], torch.tensor([1.0, -2.0, 0.5]).double()
    law = FIELD.condition(x, y)
    assert (FIELD.factor @ law.root)[[4, 20, 33]].square().sum(1).max() < 1e-14
    torch.testing.assert_close(FIELD.field(law.mean)[[4, 20, 33]], y, rtol=0, atol=1e-9)


def test_duplicate_noiseless_sensors_change_nothing():
    x, y = column(-0.5, 0.3), torch.tensor([0.4, -0.2]).double()
    once = FIELD.condition(x, y)
    twice = FIELD.condition(torch.cat([x, x[:1]]), torch.cat([y, y[:1]]))
    torch.testing.assert_close(twice.mean, once.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(twice.root, once.root, rtol=0, atol=1e-9)


def test_duplicate_noisy_sensors_act_as_one_of_half_the_variance():
    x, y = column(0.2), torch.tensor([0.7]).double()
    twice = FIELD.condition(torch.cat([x, x]), torch.cat([y + 0.1, y - 0.1]), 0.6)
    once = FIELD.condition(x, y, 0.6 / 2**0.5)
    torch.testing.assert_close(twice.mean, once.mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(twice.root, once.root, rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_padding_has_no_influence_whatever_it_holds(noise_std):
    x, y = column(-0.5, 0.3), torch.tensor([0.4, -0.2]).double()
    alone = FIELD.condition(x, y, noise_std)
    padded_x, padded_y = torch.cat([x, column(0.9, -0.9)]), torch.cat([y, torch.full((2,), 1e8)])
    mask = torch.tensor([True, True, False, False])
    padded = FIELD.condition(padded_x, padded_y.double(), noise_std, mask)
    torch.testing.assert_close(padded.mean, alone.mean, rtol=0, atol=1e-11)
    torch.testing.assert_close(padded.root, alone.root, rtol=0, atol=1e-11)
    padded_y[2:] = float("nan")
    poisoned = FIELD.condition(padded_x, padded_y.double(), noise_std, mask)
    torch.testing.assert_close(poisoned.mean, alone.mean, rtol=0, atol=1e-11)


def test_all_padding_gives_the_prior():
    law = condition(torch.ones(2, 5).double(), torch.ones(2).double(), 0.1, torch.zeros(2).bool())
    assert torch.equal(law.mean, torch.zeros(5).double())
    torch.testing.assert_close(law.root, torch.eye(5).double())


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 8), noise=st.floats(1e-3, 10))
def test_root_is_symmetric_and_squares_to_the_covariance(seed, m, noise):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(m, 6, generator=generator, dtype=torch.float64)
    residuals = torch.randn(m, generator=generator, dtype=torch.float64)
    law = condition(rows, residuals, noise, None)
    precision = torch.eye(6).double() + rows.T @ rows / noise**2
    torch.testing.assert_close(law.root, law.root.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(law.root @ law.root.T, precision.inverse(), rtol=0, atol=1e-8)
    expected = torch.linalg.solve(precision, rows.T @ residuals / noise**2)
    torch.testing.assert_close(law.mean, expected, rtol=1e-6, atol=1e-8)


def test_batched_conditioning_equals_one_by_one():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 3, 6, generator=generator, dtype=torch.float64)
    residuals = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    batch = condition(rows, residuals, 0.2, None)
    for i in range(4):
        one = condition(rows[i], residuals[i], 0.2, None)
        torch.testing.assert_close(batch.mean[i], one.mean)
        torch.testing.assert_close(batch.root[i], one.root)


def test_infinite_noise_gives_the_prior_and_more_sensors_less_variance():
    x, y = column(-0.5, 0.3, 0.6), torch.tensor([0.4, -0.2, 1.0]).double()
    vague = FIELD.condition(x, y, 1e9)
    torch.testing.assert_close(vague.root, torch.eye(FIELD.rank).double(), rtol=0, atol=1e-8)
    assert vague.mean.abs().max() < 1e-8
    variances = [
        (FIELD.factor @ FIELD.condition(x[:m], y[:m], 0.2).root).square().sum(1) for m in (1, 2, 3)
    ]
    assert (variances[1] <= variances[0] + 1e-12).all()
    assert (variances[2] <= variances[1] + 1e-12).all()
