"""Fields that are sums of known functions with independent weights: their laws, and their rows."""

import math

import numpy as np
import pytest
import torch

from uqsonet.gaussian_process import CosineField, PeriodicField


def std(eigenvalues):
    return torch.where(eigenvalues > 0, 3 / (eigenvalues + 9), 0.0)


def tilt(x):
    return 1 + x[:, 0] - 0.5 * x[:, 1]


def grid(axis):
    return torch.cartesian_prod(axis, axis)


COSINE = torch.linspace(0, 1, 8, dtype=torch.float64)
PERIODIC = {n: torch.arange(n, dtype=torch.float64) / n for n in (7, 8)}
FIELDS = {
    "cosine": (CosineField(8, std, envelope=tilt), grid(COSINE)),
    "odd": (PeriodicField(7, std, envelope=tilt), grid(PERIODIC[7])),
    "even": (PeriodicField(8, std, envelope=tilt), grid(PERIODIC[8])),
}
every = pytest.mark.parametrize("name", FIELDS)


@every
def test_rows_on_the_grid_are_those_of_the_factor(name):
    field, points = FIELDS[name]
    mean, rows = field.rows(points)
    assert field.factor.shape == (len(points), field.rank)
    torch.testing.assert_close(rows, field.factor, rtol=0, atol=1e-14)
    assert torch.equal(mean, field.mean)


@every
def test_the_leading_coordinates_carry_the_most_variance(name):
    field, _ = FIELDS[name]
    power = field.factor.square().sum(0)
    leading = field.leading(10)
    rest = torch.ones(field.rank, dtype=torch.bool).index_fill(0, leading, False)
    assert power[leading].min() > 0.5 * power[rest].max()  # the envelope changes the order a bit


@pytest.mark.parametrize("n", [7, 8])
def test_a_periodic_field_has_the_covariance_of_its_fourier_series(n):
    """``sum_k std(4 pi^2 |k|^2)^2 cos(2 pi k . (x - x'))`` over all pairs of frequencies."""
    field, points = (
        PeriodicField(n, std),
        torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double(),
    )
    degree = (n - 1) // 2
    k = torch.cartesian_prod(*[torch.arange(-degree, degree + 1, dtype=torch.float64)] * 2)
    assert field.rank == len(k)
    weight = std(4 * math.pi**2 * k.square().sum(1)) ** 2
    apart = points[:, None] - points
    expected = (torch.cos(2 * math.pi * apart @ k.T) * weight).sum(-1)
    _, rows = field.rows(points)
    torch.testing.assert_close(rows @ rows.T, expected, rtol=0, atol=1e-13)
    _, moved = field.rows(points + 1)
    torch.testing.assert_close(moved, rows, rtol=0, atol=1e-12)


@every
def test_the_envelope_multiplies_the_field(name):
    field, points = FIELDS[name]
    plain = type(field)(math.isqrt(len(points)), std)
    xi = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, field.rank)))
    expected = plain.field(xi) * tilt(points)
    torch.testing.assert_close(field.field(xi), expected, rtol=0, atol=1e-14)
