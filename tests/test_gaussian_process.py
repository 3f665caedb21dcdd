"""Gaussian fields, dense, separable and spectral: their laws, and the textbook posterior."""

import itertools
import math

import numpy as np
import pytest
import torch

from uqsonet.fields.grid import Grid
from uqsonet.gauss.gaussian import condition
from uqsonet_study.priors.gaussian_process import (
    CosineField,
    GaussianField,
    SeparableField,
    squared_exponential,
)
from uqsonet_study.problems import get_problem

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


DENSE = GaussianField(POINTS, mean, PLANE)
PLAIN = SeparableField(GRID.axes(), mean, AXIS)
each = pytest.mark.parametrize(
    ("field", "factor"),
    [(DENSE, one), (PLAIN, one), (SeparableField(GRID.axes(), mean, AXIS, envelope), envelope)],
    ids=["dense", "separable", "envelope"],
)


def covariance(a, b, factor):
    return factor(a)[:, None] * PLANE(a, b) * factor(b)


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def off_grid(size):
    unit = torch.rand(size, 2, generator=torch.Generator().manual_seed(4)).double()
    return unit * torch.tensor([1.0, 2.0]) - torch.tensor([0.0, 1.0])


def require_same(found, expected, tolerance):
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=tolerance)
    torch.testing.assert_close(found.root, expected.root, rtol=0, atol=tolerance)


def test_kernels_are_those_printed_in_the_paper():
    a, b = torch.tensor([[0.0, 0.0]]).double(), torch.tensor([[0.3, 0.4]]).double()
    assert float(squared_exponential(2.0, 0.5)(a, b)) == pytest.approx(4 * math.exp(-1.0))
    halved = squared_exponential(2.0, 0.5, halved=True)
    assert float(halved(a, b)) == pytest.approx(4 * math.exp(-0.5))


@each
def test_the_factor_and_rows_between_points_have_the_true_covariance(field, factor):
    found = field.factor @ field.factor.T
    torch.testing.assert_close(found, covariance(POINTS, POINTS, factor), rtol=0, atol=1e-12)
    assert field.factor.shape == (11 * 15, field.rank)
    assert field is not DENSE or field.rank < 11 * 15
    found_mean, rows = field.rows(POINTS)
    assert torch.equal(found_mean, mean(POINTS)) and torch.equal(field.mean, found_mean)
    torch.testing.assert_close(rows @ rows.T, found, rtol=0, atol=1e-12)
    x = off_grid(12)
    _, rows = field.rows(x)
    # What the grid does not resolve is lost: 4e-6 on this coarse one, rounding on the paper's.
    exact = covariance(x, x, factor)
    assert (rows @ rows.T - exact).abs().max() < 1e-5 * exact.abs().max()
    cross = covariance(POINTS, x, factor)
    torch.testing.assert_close(field.factor @ rows.T, cross, rtol=0, atol=1e-6)
    # Fields are linear in coordinates and keep batches.
    xi = normals(2, 3, field.rank)
    torch.testing.assert_close(field.field(xi), field.mean + xi @ field.factor.T)


@each
@pytest.mark.parametrize("noise_std", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("x", [POINTS[[3, 61, 90, 164]], off_grid(4)], ids=["grid", "off_grid"])
def test_the_posterior_equals_the_textbook(field, factor, x, noise_std):
    """Posterior mean and covariance on the grid as printed in appendix A.2."""
    y = torch.tensor([0.3, -0.7, 1.1, 0.2]).double()
    gram = covariance(x, x, factor) + noise_std**2 * torch.eye(len(x)).double()
    cross = covariance(POINTS, x, factor)
    expected = mean(POINTS) + cross @ torch.linalg.solve(gram, y - mean(x))
    left = covariance(POINTS, POINTS, factor) - cross @ torch.linalg.solve(gram, cross.T)
    law = field.condition(x, y, noise_std)
    on_grid = bool((torch.cdist(x, POINTS).amin(1) == 0).all())
    tolerance = 1e-9 if on_grid else 1e-5  # the true kernel between points, to what rows give
    root = law.root @ field.factor.T
    torch.testing.assert_close(field.field(law.mean), expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(root.T @ root, left, rtol=0, atol=tolerance)
    torch.testing.assert_close(law.root, law.root.T, rtol=0, atol=1e-12)
    if on_grid and noise_std == 0:
        _, rows = field.rows(x)
        assert law.spread(rows).square().sum(1).max() < 1e-14
    # The law applies its root without forming it.
    xi = normals(6, field.rank, seed=1)
    torch.testing.assert_close(law.spread(xi), xi @ law.root, rtol=0, atol=1e-12)
    torch.testing.assert_close(law.coordinates(xi), law.mean + law.spread(xi), rtol=0, atol=1e-13)


def test_duplicate_sensors_change_nothing_or_act_as_one_of_half_the_variance():
    x, y = POINTS[[20, 90]], torch.tensor([0.4, -0.2]).double()
    once = DENSE.condition(x, y)
    require_same(DENSE.condition(torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), once, 1e-9)
    twice = DENSE.condition(torch.cat([x, x]), torch.cat([y + 0.1, y - 0.1]), 0.6)
    require_same(twice, DENSE.condition(x, y, 0.6 / 2**0.5), 1e-12)


def test_a_sensor_where_the_envelope_vanishes_says_nothing_about_the_rest():
    field = SeparableField(GRID.axes(), mean, AXIS, lambda x: x[:, 0] * (1 - x[:, 0]))
    x, y = POINTS[[4, 82]], torch.stack([field.mean[4], field.mean[82] + 0.1])
    require_same(field.condition(x, y), field.condition(x[1:], y[1:]), 1e-13)
    alone = field.condition(x[:1], y[:1])
    assert torch.equal(alone.mean, torch.zeros(field.rank).double())
    assert torch.equal(alone.root, torch.eye(field.rank).double())


def test_leading_coordinates_are_those_of_most_variance():
    order = PLAIN.leading(PLAIN.rank)
    assert order.sort().values.tolist() == list(range(PLAIN.rank))
    variance = PLAIN.factor.square().sum(0)[order]
    assert (variance[1:] <= variance[:-1] * (1 + 1e-12)).all()
    assert torch.equal(PLAIN.leading(7), order[:7]) and len(PLAIN.leading(10**6)) == PLAIN.rank


def size_of(eigenvalues):
    return torch.where(eigenvalues > 0, 3 / (eigenvalues + 9), 0.0)


def test_a_field_of_cosines_has_the_covariance_of_its_series():
    """A sum over all pairs of frequencies."""
    n, axis = 8, torch.linspace(0, 1, 8, dtype=torch.float64)
    points, field = torch.cartesian_prod(axis, axis), CosineField(8, size_of)
    expected = torch.zeros(n * n, n * n).double()
    for k in itertools.product(range(n), range(n)):
        wave = math.pi * torch.tensor(k).double()
        mode = torch.cos(wave * points).prod(1) * 2 ** (0.5 * sum(i > 0 for i in k))
        expected += size_of(wave.square().sum()) ** 2 * torch.outer(mode, mode)
    torch.testing.assert_close(field.factor @ field.factor.T, expected, rtol=0, atol=1e-13)
    mean, rows = field.rows(points)
    torch.testing.assert_close(rows, field.factor, rtol=0, atol=1e-14)
    assert torch.equal(mean, field.mean)


def se(std, length, factor=1.0):
    return lambda squared: std**2 * torch.exp(-squared / (factor * length**2))


def waves(x):
    return 4 * (torch.sin(2 * math.pi * x[:, 0]) + torch.sin(2 * math.pi * x[:, 1]))


def zero(x):
    return torch.zeros_like(x[:, 0])


def shifted(x):
    return torch.sin(2 * math.pi * x[:, 0]) + 0.1


PRINTED = {  # name: (law of, its mean, its covariance of the squared distance) as in the paper
    "diffusion1d": ("prior", lambda x: torch.sin(2 * math.pi * x[:, 0]), se(0.5, 0.1)),
    "elliptic_sde1d": ("prior", lambda x: torch.sin(math.pi * x[:, 0] + 1), se(0.3, 0.05)),
    "elliptic_sde1d f": ("unobserved", shifted, se(0.1, 0.1)),
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
    law, points = getattr(problem, which), problem.grid.points()
    generator = np.random.default_rng(2)
    index = torch.from_numpy(generator.choice(len(points), 300, replace=False))
    x = points[index]
    torch.testing.assert_close(law.mean, printed_mean(points), rtol=0, atol=1e-14)
    for places in (x, 0.6 * x[:100] + 0.4 * x[100:200]):  # of the grid, and between
        found_mean, rows = law.rows(places)
        torch.testing.assert_close(found_mean, printed_mean(places), rtol=0, atol=1e-14)
        expected = kernel((places[:, None] - places).square().sum(-1))
        torch.testing.assert_close(rows @ rows.T, expected, rtol=0, atol=1e-11)
    found_mean, rows = law.rows(x)
    xi = torch.from_numpy(generator.standard_normal((2, law.rank)))
    torch.testing.assert_close(law.field(xi)[:, index], found_mean + xi @ rows.T)


@pytest.mark.parametrize("off", [1e6, 1e12, float("inf")])
def test_a_sensor_that_is_switched_off_by_its_noise_leaves_exact_ones_exact(off: float) -> None:
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 9)))
    residuals, kept = torch.tensor([0.5, -1.0, 2.0, 0.7]).double(), [0, 2, 3]
    levels = torch.tensor([0.0, off, 0.0, 1e-3]).double()
    found = condition(rows, residuals, levels, None)
    alone = condition(rows[kept], residuals[kept], levels[kept], None)
    assert (rows[[0, 2]] @ found.mean).tolist() == pytest.approx([0.5, 2.0], abs=1e-5)
    assert found.spread(rows[[0, 2]]).norm(dim=-1).max() < 1e-5
    torch.testing.assert_close(found.mean, alone.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.root, alone.root, rtol=1e-5, atol=1e-5)


def test_an_exact_sensor_without_spread_says_nothing_beside_noisy_ones() -> None:
    rows = torch.from_numpy(np.random.default_rng(3).standard_normal((3, 9)))
    rows[1] *= 1e-16  # where the field is fixed, up to rounding
    residuals = torch.tensor([0.5, 0.0, 2.0]).double()
    levels = torch.tensor([0.1, 0.0, 0.2]).double()
    found = condition(rows, residuals, levels, None)
    alone = condition(rows[::2], residuals[::2], levels[::2], None)
    torch.testing.assert_close(found.mean, alone.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.root, alone.root, rtol=1e-6, atol=1e-6)
