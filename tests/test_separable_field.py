"""Fields on tensor grids: a Kronecker factor that acts as the dense one, and the paper's laws."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from uqsonet.fields import Grid
from uqsonet.gaussian_process import GaussianField, SeparableField, squared_exponential
from uqsonet.problems import get_problem

STD, LENGTH = 0.7, 0.3
AXIS = squared_exponential(STD, LENGTH, halved=True)
PLANE = squared_exponential(STD**2, LENGTH, halved=True)  # the product of AXIS over both axes
GRID = Grid((0.0, -1.0), (1.0, 1.0), (11, 15))
POINTS = GRID.points()


def mean(x):
    return torch.sin(2 * math.pi * x[:, 0]) + x[:, 1]


def envelope(x):
    return 1 + x[:, 0] * (1 - x[:, 1])


def one(x):
    return torch.ones_like(x[:, 0])


FIELDS = {
    "plain": (SeparableField(GRID.axes(), mean, AXIS), one),
    "envelope": (SeparableField(GRID.axes(), mean, AXIS, envelope), envelope),
}
each = pytest.mark.parametrize(("field", "factor"), FIELDS.values(), ids=FIELDS.keys())


def covariance(a, b, factor):
    return factor(a)[:, None] * PLANE(a, b) * factor(b)


def textbook(x, y, noise_std, factor):
    """Posterior mean and covariance on the grid as printed in appendix A.2."""
    gram = covariance(x, x, factor) + noise_std**2 * torch.eye(len(x)).double()
    cross = covariance(POINTS, x, factor)
    found = mean(POINTS) + cross @ torch.linalg.solve(gram, y - mean(x))
    return found, covariance(POINTS, POINTS, factor) - cross @ torch.linalg.solve(gram, cross.T)


def off_grid(size):
    unit = torch.rand(size, 2, generator=torch.Generator().manual_seed(4)).double()
    return unit * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])


@each
def test_the_factor_reproduces_the_dense_covariance(field, factor):
    found = field.factor @ field.factor.T
    expected = covariance(POINTS, POINTS, factor)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert field.factor.shape == (11 * 15, field.rank)


def test_without_envelope_it_is_the_dense_gaussian_field():
    dense = GaussianField(POINTS, mean, PLANE)
    field = FIELDS["plain"][0]
    assert torch.equal(field.mean, dense.mean)
    torch.testing.assert_close(
        field.factor @ field.factor.T, dense.factor @ dense.factor.T, rtol=0, atol=1e-12
    )


def test_three_axes_work_as_two():
    grid = Grid((0.0,) * 3, (1.0,) * 3, (3, 5, 4))
    field = SeparableField(grid.axes(), one, AXIS)
    expected = squared_exponential(STD**3, LENGTH, halved=True)(grid.points(), grid.points())
    torch.testing.assert_close(field.factor @ field.factor.T, expected, rtol=0, atol=1e-12)


@each
def test_fields_are_linear_in_coordinates_and_keep_batches(field, factor):
    xi = torch.randn(2, 3, field.rank, generator=torch.Generator().manual_seed(0)).double()
    expected = xi @ field.factor.T
    torch.testing.assert_close(field.fluctuation(xi), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(field.field(xi[0, 0]), field.mean + expected[0, 0])


@each
def test_rows_at_grid_points_are_those_of_the_grid(field, factor):
    found_mean, rows = field.rows(POINTS)
    assert torch.equal(found_mean, mean(POINTS))
    torch.testing.assert_close(rows, field.factor, rtol=1e-14, atol=0)


@each
def test_rows_between_points_have_the_true_covariance(field, factor):
    x = off_grid(12)
    _, rows = field.rows(x)
    # What the grid does not resolve is lost: 4e-6 on this coarse one, rounding on the paper's.
    exact = covariance(x, x, factor)
    assert (rows @ rows.T - exact).abs().max() < 1e-5 * exact.abs().max()
    cross = covariance(POINTS, x, factor)
    torch.testing.assert_close(field.factor @ rows.T, cross, rtol=0, atol=1e-6)


@each
def test_sample_mean_and_covariance_lie_within_their_standard_errors(field, factor):
    size, n = 20_000, GRID.size
    xi = torch.from_numpy(np.random.default_rng(6).standard_normal((size, field.rank)))
    sample = field.field(xi)
    exact = covariance(POINTS, POINTS, factor)
    variance = exact.diagonal()
    z = (sample.mean(0) - mean(POINTS)) / (variance / size).sqrt()
    assert z.abs().max() < norm.isf(0.001 / (2 * n))  # Bonferroni over the points
    centred = sample - sample.mean(0)
    # Var of a sample covariance of Gaussians: (c_ij^2 + c_ii c_jj) / n
    error = ((exact**2 + torch.outer(variance, variance)) / size).sqrt()
    z = (centred.T @ centred / (size - 1) - exact) / error
    assert 1 < z.abs().max() < norm.isf(0.001 / (n * (n + 1)))


@each
@pytest.mark.parametrize("noise_std", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("x", [POINTS[[3, 61, 90, 164]], off_grid(4)], ids=["grid", "off_grid"])
def test_the_posterior_equals_the_textbook(field, factor, x, noise_std):
    y = torch.tensor([0.3, -0.7, 1.1, 0.2]).double()
    expected_mean, expected_covariance = textbook(x, y, noise_std, factor)
    law = field.condition(x, y, noise_std)
    on_grid = bool((torch.cdist(x, POINTS).amin(1) == 0).all())
    tolerance = 1e-9 if on_grid else 1e-5  # the true kernel between points, to what rows give
    root = field.fluctuation(law.root)
    torch.testing.assert_close(field.field(law.mean), expected_mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(root.T @ root, expected_covariance, rtol=0, atol=tolerance)


@each
def test_variance_is_zero_and_the_mean_exact_at_a_noiseless_sensor(field, factor):
    index, y = [17, 80, 151], torch.tensor([1.0, -2.0, 0.5]).double()
    law = field.condition(POINTS[index], y)
    _, rows = field.rows(POINTS[index])
    assert law.spread(rows).square().sum(1).max() < 1e-14
    torch.testing.assert_close(field.field(law.mean)[index], y, rtol=0, atol=1e-9)


def test_a_sensor_where_the_envelope_vanishes_says_nothing_about_the_rest():
    def bump(x):
        return x[:, 0] * (1 - x[:, 0])

    field = SeparableField(GRID.axes(), mean, AXIS, bump)
    x, y = POINTS[[4, 82]], torch.stack([field.mean[4], field.mean[82] + 0.1])
    both, one_sensor = field.condition(x, y), field.condition(x[1:], y[1:])
    torch.testing.assert_close(both.mean, one_sensor.mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(both.root, one_sensor.root, rtol=0, atol=1e-13)
    alone = field.condition(x[:1], y[:1])
    assert torch.equal(alone.mean, torch.zeros(field.rank).double())
    assert torch.equal(alone.root, torch.eye(field.rank).double())


@each
def test_leading_coordinates_are_those_of_most_variance(field, factor):
    plain = FIELDS["plain"][0]
    order = field.leading(field.rank)
    assert order.sort().values.tolist() == list(range(field.rank))
    variance = plain.factor.square().sum(0)[order]  # summed over the grid, without envelope
    assert (variance[1:] <= variance[:-1] * (1 + 1e-12)).all()
    assert torch.equal(field.leading(7), order[:7]) and len(field.leading(10**6)) == field.rank


def test_a_law_applies_its_root_without_forming_it():
    field = FIELDS["plain"][0]
    law = field.condition(POINTS[[5, 40]], torch.tensor([1.0, 0.0]).double(), 0.2)
    normals = torch.randn(6, field.rank, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(law.spread(normals), normals @ law.root, rtol=0, atol=1e-13)
    torch.testing.assert_close(
        law.coordinates(normals), law.mean + normals @ law.root, rtol=0, atol=1e-13
    )


def se(std, length, factor=1.0):
    return lambda squared: std**2 * torch.exp(-squared / (factor * length**2))


def waves(x):
    return 4 * (torch.sin(2 * math.pi * x[:, 0]) + torch.sin(2 * math.pi * x[:, 1]))


def zero(x):
    return torch.zeros_like(x[:, 0])


PRINTED = {  # name: (law of, its mean, its covariance of the squared distance) as in the paper
    "diffusion1d": ("prior", lambda x: torch.sin(2 * math.pi * x[:, 0]), se(0.5, 0.1)),
    "elliptic_sde1d": ("prior", lambda x: torch.sin(math.pi * x[:, 0] + 1), se(0.3, 0.05)),
    "elliptic_sde1d f": (
        "unobserved",
        lambda x: torch.sin(2 * math.pi * x[:, 0]) + 0.1,
        se(0.1, 0.1),
    ),
    "poisson2d": ("prior", waves, se(1.0, 0.1, 2.0)),
    "elliptic_sde2d": ("prior", waves, se(1.0, 0.1, 2.0)),
    "elliptic_sde2d k": ("unobserved", zero, se(1.0, 0.1, 2.0)),
    "elliptic_sde2d_k": ("prior", zero, se(1.0, 0.1, 2.0)),
    "elliptic_sde2d_k f": ("unobserved", waves, se(1.0, 0.1, 2.0)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_inputs_have_the_law_printed_in_the_paper(name):
    which, printed_mean, kernel = PRINTED[name]
    problem = get_problem(name.split()[0])
    law = getattr(problem, which)
    generator = np.random.default_rng(2)
    points = problem.grid.points()
    x = points[torch.from_numpy(generator.choice(len(points), 300, replace=False))]
    squared = (x[:, None] - x).square().sum(-1)
    found_mean, rows = law.rows(x)
    torch.testing.assert_close(found_mean, printed_mean(x), rtol=0, atol=1e-14)
    torch.testing.assert_close(law.mean, printed_mean(points), rtol=0, atol=1e-14)
    torch.testing.assert_close(rows @ rows.T, kernel(squared), rtol=0, atol=1e-11)
    xi = torch.from_numpy(generator.standard_normal((2, law.rank)))
    index = (torch.cdist(x, points)).argmin(1)
    torch.testing.assert_close(law.field(xi)[:, index], found_mean + xi @ rows.T)
    between = x[:100] + (0.4 * x[100:200] - 0.4 * x[:100])
    found_mean, rows = law.rows(between)
    torch.testing.assert_close(found_mean, printed_mean(between), rtol=0, atol=1e-14)
    expected = kernel((between[:, None] - between).square().sum(-1))
    torch.testing.assert_close(rows @ rows.T, expected, rtol=0, atol=1e-11)
