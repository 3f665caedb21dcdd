"""Gaussian laws cut off by a box: rejection, the closed form in one dimension, two starts."""

import math

import pytest
import torch
from scipy.stats import kstest, truncnorm

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.laws.truncated import truncated_samples

INF = math.inf
SIZE = 20_000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def equal(n, correlation):
    return torch.full((n, n), correlation, dtype=torch.float64).fill_diagonal_(1.0)


def orthant(covariance, seed):
    """Bounds that keep the signs of one draw of the law."""
    normals = torch.randn(len(covariance), dtype=torch.float64, generator=seeded(seed))
    positive = covariance_root(covariance) @ normals > 0
    zero, infinite = torch.zeros(len(covariance)).double(), torch.full((len(covariance),), INF)
    return torch.where(positive, zero, -infinite.double()), torch.where(positive, infinite, zero)


@pytest.mark.parametrize(
    ("mean", "correlation", "lower", "upper"),
    [
        ((0.3, -0.2), 0.95, (0.0, -INF), (INF, 0.0)),
        ((0.0, 0.5, -0.5), 0.95, (-0.5, -INF, -1.0), (0.5, 0.3, INF)),
        ((0.0, 0.0, 0.0, 0.0), 0.3, (0.0, 0.0, -INF, -INF), (INF, INF, 0.0, 0.0)),
        ((1.0, -1.0), 0.7, (-INF, -INF), (INF, INF)),  # no bounds: the law itself
    ],
)
def test_moments_are_those_of_rejection(mean, correlation, lower, upper):
    mean, lower, upper = vector(*mean), vector(*lower), vector(*upper)
    covariance = equal(len(mean), correlation)
    x = truncated_samples(mean, covariance, lower, upper, SIZE, seeded())
    normals = torch.randn(1_000_000, len(mean), dtype=torch.float64, generator=seeded(99))
    expected = mean + normals @ covariance_root(covariance)
    expected = expected[((expected >= lower) & (expected <= upper)).all(1)]
    assert len(expected) > 20_000
    assert bool(((x >= lower) & (x <= upper)).all())
    noise = expected.std(0) * (1 / SIZE + 1 / len(expected)) ** 0.5
    assert bool(((x.mean(0) - expected.mean(0)).abs() < 4 * noise).all())
    torch.testing.assert_close(x.T.cov(), expected.T.cov(), rtol=0.05, atol=0.01)


@pytest.mark.parametrize(("lower", "upper"), [(-0.5, 2.0), (1.0, INF), (-INF, -1.5), (7.0, INF)])
def test_one_coordinate_has_the_law_in_closed_form(lower, upper):
    mean, std = 0.4, 0.7
    bounds = vector(lower), vector(upper)
    x = truncated_samples(vector(mean), vector(std**2)[:, None], *bounds, 4000, seeded())
    law = truncnorm((lower - mean) / std, (upper - mean) / std, loc=mean, scale=std)
    assert kstest(x[:, 0].numpy(), law.cdf).pvalue > 0.01


def test_a_singular_covariance_keeps_its_support():
    rows = torch.randn(6, 3, dtype=torch.float64, generator=seeded(5))
    rows[5] = rows[0]  # the same sensor twice, in a law of rank three
    covariance = rows @ rows.T
    lower, upper = orthant(covariance, 6)
    x = truncated_samples(torch.zeros(6).double(), covariance, lower, upper, SIZE, seeded())
    normals = torch.randn(500_000, 3, dtype=torch.float64, generator=seeded(7)) @ rows.T
    expected = normals[((normals >= lower) & (normals <= upper)).all(1)]
    torch.testing.assert_close(x[:, 0], x[:, 5], rtol=0, atol=1e-6)
    residual = x - x @ torch.linalg.pinv(rows).T @ rows.T
    assert float(residual.abs().max()) < 1e-6
    torch.testing.assert_close(x.mean(0), expected.mean(0), rtol=0.05, atol=0.02)
    torch.testing.assert_close(x.T.cov(), expected.T.cov(), rtol=0.1, atol=0.02)


def test_the_same_seed_gives_the_same_samples():
    one = vector(0.0, 1.0), equal(2, 0.9), vector(0.0, -INF), vector(INF, 0.5)
    alone = truncated_samples(*one, 50, seeded(2))
    assert torch.equal(truncated_samples(*one, 50, seeded(2)), alone)
    assert not torch.equal(truncated_samples(*one, 50, seeded(3)), alone)
    empty = torch.zeros(0).double()
    nothing = truncated_samples(empty, torch.zeros(0, 0).double(), empty, empty, 5, seeded())
    assert nothing.shape == (5, 0)


def test_a_hundred_correlated_signs_forget_where_they_started():
    """The starts are off by more than a standard deviation; eight moves and twenty-four agree."""
    x = torch.linspace(-1, 1, 100, dtype=torch.float64)
    covariance = torch.exp(-((x[:, None] - x) ** 2) / 0.2**2)
    law = torch.zeros(100).double(), covariance, *orthant(covariance, 0)
    size = 300
    start, few, many = (
        truncated_samples(*law, size, seeded(seed), moves)
        for seed, moves in ((0, 0), (0, 8), (1, 24))
    )
    noise = many.std(0) * (2 / size) ** 0.5
    assert float(((start.mean(0) - many.mean(0)) / noise).abs().max()) > 12
    assert float(((few.mean(0) - many.mean(0)) / noise).abs().max()) < 4
    torch.testing.assert_close(few.std(0), many.std(0), rtol=0.2, atol=0)


@pytest.mark.parametrize(
    ("covariance", "lower", "upper"),
    [
        (equal(2, 0.5), (1.0, 0.0), (0.0, 1.0)),  # a box turned inside out
        (torch.zeros(2, 2).double(), (0.5, -1.0), (1.0, 1.0)),  # a law that is one point, outside
        (torch.ones(2, 2).double(), (1.0, -2.0), (2.0, -1.0)),  # x = y and x > 0 > y
    ],
)
def test_an_empty_box_is_refused(covariance, lower, upper):
    law = torch.zeros(2).double(), covariance, vector(*lower), vector(*upper)
    with pytest.raises(ObservationError, match="no sample"):
        truncated_samples(*law, 4, seeded())
