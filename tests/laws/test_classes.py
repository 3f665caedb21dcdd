"""A latent Gaussian field cut into classes: its estimates, and its posterior against rejection.

Then the latent field itself: spectra found again, consistent fields, which one is chosen.
"""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

import uqsonet
from tests.answers import input_given
from tests.laws.conftest import (
    SMALL,
    fields_of,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    runs_of,
    seeded,
    two_values,
)
from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws import correlations
from uqsonet.laws.base import classes_of
from uqsonet.laws.classes import Classes, ClassField, chosen_rule
from uqsonet.laws.correlations import (
    LatentField,
    LowRank,
    Spectrum,
    bivariate_normal,
    fit_latent,
    tetrachoric,
)
from uqsonet.laws.latent import LatentLaw
from uqsonet.operator.model import KarhunenLoeveModel

PLACES = (-2.5, -1.0, -0.3, 0.0, 0.2, 1.0, 2.0)
CORRELATIONS = (-0.9999, -0.99, -0.7, 0.0, 0.4, 0.8, 0.99, 0.9999)

H, K = torch.cartesian_prod(*2 * [torch.tensor(PLACES, dtype=torch.float64)]).unbind(1)


def fit(model: KarhunenLoeveModel, kappa: np.ndarray, grid: Grid = SMALL) -> LatentLaw | None:
    return LatentLaw.fit(input_sample(model, functions_of(kappa, grid)), 0)


@pytest.mark.parametrize("rho", CORRELATIONS)
def test_bivariate_normal_is_that_of_scipy_and_tetrachoric_correlations_its_inverse(rho):
    law = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    both = bivariate_normal(H, K, torch.full_like(H, rho))
    # The quadrature's own error: 3e-6 within 1e-4 of perfect correlation.
    limit = 1e-5 if abs(rho) > 0.999 else 1e-9
    assert np.abs(both.numpy() - law.cdf(torch.stack([H, K], 1).numpy())).max() < limit
    if abs(rho) < 0.999:
        found = tetrachoric(both, H, K)
        assert float((bivariate_normal(H, K, found) - both).abs().max()) < 1e-7
        equal = (H == 0) & (K == 0)  # there a formula holds: 1/4 + asin(rho) / (2 pi)
        assert float((found - rho)[equal].abs().max()) < 1e-9


def hidden_covariance(law: LatentLaw, grid: Grid = SMALL) -> np.ndarray:
    factor = law.link.latent[0].rows(grid, grid.points())
    return (factor @ factor.T).numpy()


def three_classes(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields of three classes of unequal shares, one of them rarer on the right."""
    hidden, x = gaussian_fields(rng, size, kernel(0.3)), np.linspace(0, 1, 24)
    return np.where(hidden < -0.5, 1.0, np.where(hidden < 0.4 + 0.8 * x, 2.0, 5.0))


@pytest.fixture(scope="module")
def three() -> KarhunenLoeveModel:
    kappa = three_classes(np.random.default_rng(2), 10_000)
    model = model_of(kappa, 24)
    model.use_law(fit(model, kappa))
    return model


def test_three_classes_whose_shares_differ_between_points(three):
    law = three.law.link
    assert law.values.tolist() == [1.0, 2.0, 5.0]
    wanted = np.stack([np.full(24, -0.5), 0.4 + 0.8 * np.linspace(0, 1, 24)], 1)
    assert law.parts[0].thresholds.numpy() == pytest.approx(wanted, abs=0.08)
    assert np.abs(hidden_covariance(three.law) - kernel(0.3)).max() < 0.07


def unordered_classes(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields of one class where a field is high; where it is low, another field decides."""
    first, second = (gaussian_fields(rng, size, kernel(length)) for length in (0.3, 0.2))
    return np.where(first > 0.3, 2.0, np.where(second > 0, 1.0, 5.0))


@pytest.fixture(scope="module")
def unordered() -> KarhunenLoeveModel:
    kappa = unordered_classes(np.random.default_rng(2), 10_000)
    model = model_of(kappa, 24)
    model.use_law(fit(model, kappa))
    return model


def test_classes_that_all_touch_have_two_latent_fields(unordered):
    law = unordered.law.link
    assert [part.places.tolist() for part in law.parts] == [[1, 0, 1], [0, -1, 1]]
    assert [float(part.thresholds[0, 0]) for part in law.parts] == pytest.approx([-0.3, 0], abs=0.1)
    for part, length in zip(law.parts, (0.3, 0.2), strict=True):
        assert np.abs(correlated(part.latent, SMALL).numpy() - kernel(length)).max() < 0.12
    tensors = law.tensors()
    again = LatentLaw.of(tensors, unordered.bases).link
    assert torch.equal(again.table, law.table)
    tensors["places"] = torch.tensor([[0, 1, 0], [0, 0, 1]])  # two classes in one box
    with pytest.raises(ValueError, match="without a class"):
        LatentLaw.of(tensors, unordered.bases)


@pytest.mark.parametrize(
    ("draw", "readings", "noise"),
    [
        (three_classes, (), 0.0),
        (three_classes, (2.0, 2.0, 5.0), 0.0),
        (three_classes, (1.0, 5.0, 2.0), 0.0),
        (three_classes, (1.4, 3.4, 2.8), 1.0),
        (unordered_classes, (1.0, 5.0, 2.0), 0.0),
        (unordered_classes, (1.0, 5.0, 5.0), 0.0),
        (unordered_classes, (1.4, 3.4, 2.8), 1.0),
    ],
)
def test_posterior_is_that_of_rejection(three, unordered, draw, readings, noise):
    three = three if draw is three_classes else unordered
    at = [3, 12, 20][: len(readings)]
    rng = np.random.default_rng(3)
    drawn = draw(rng, 100_000)
    off = (drawn[:, at] - np.array(readings)) / (noise or 1e-3)
    weight = np.exp(-(off**2).sum(1) / 2)
    assert weight.sum() ** 2 / (weight**2).sum() > 600
    kept = drawn[rng.choice(len(drawn), 20_000, p=weight / weight.sum())]
    posterior = input_given(three, SMALL.points()[at], list(readings), None, noise)
    found = fields_of(three, posterior.sample(4000, seeded())[0]).numpy()
    if noise == 0:  # but for the nugget, which is a thousandth of the latent field
        assert (np.abs(found[:, at] - np.array(readings)) < 1e-3).all(1).mean() > 0.99
    # Of each class at each point; shares of thousands of draws, and a law from 10,000 inputs.
    for value in (1.0, 2.0, 5.0):
        shares = [(np.abs(f - value) < 0.4).mean(0) for f in (found, kept)]
        assert np.abs(shares[0] - shares[1]).max() < 0.06, value
        assert np.abs(shares[0] - shares[1]).mean() < 0.015, value
    # Of pairs of points: where the field changes from one class to another.
    changes = [(np.abs(np.diff(f, axis=1)) > 0.4).sum(1).mean() for f in (found, kept)]
    assert changes[0] == pytest.approx(changes[1], rel=0.06)


@pytest.mark.parametrize("count", [3, 5])
def test_classes_are_in_the_order_of_their_values(count):
    """Cuts of one field: the classes at its ends never touch."""
    hidden = gaussian_fields(np.random.default_rng(1), 2000, kernel(0.3))
    ranks = torch.from_numpy(np.digitize(hidden, np.linspace(-0.6, 0.6, count - 1)))
    assert chosen_rule(SMALL.points(), ranks, count) == list(range(count))


def test_classes_that_contradict_one_another():
    """Rock and sand in turn at every point of a smooth field: no answer, in words."""
    kappa = two_values(np.random.default_rng(9), 500)
    model = model_of(kappa, 24)
    model.use_law(fit(model, kappa))
    with pytest.raises(ObservationError, match="contradict one another"):
        input_given(model, SMALL.points(), [0.8, -0.8] * 12).sample(20, seeded())


def test_inputs_that_are_no_classes():
    rng = np.random.default_rng(4)
    many = np.round(3 * gaussian_fields(rng, 100, kernel(0.3)))
    fixed = two_values(rng, 100)
    fixed[:, 5] = 0.8  # this point has but one class
    for kappa in (many, gaussian_fields(rng, 100, kernel(0.3)), fixed):
        assert Classes.fit(SMALL, torch.from_numpy(kappa).float()) is None
    assert fit(model_of(fixed, 4), fixed) is None
    assert classes_of(torch.ones(30, 4)) is None


def test_an_input_of_few_points():
    grid = Grid((0.0,), (1.0,), (3,))
    kappa = np.sign(gaussian_fields(np.random.default_rng(5), 8000, kernel(1.0, grid=grid)))
    law = fit(model_of(kappa, 2, grid), kappa, grid)
    assert np.abs(hidden_covariance(law, grid) - kernel(1.0, grid=grid)).max() < 0.06


def test_a_value_that_is_no_class_is_improbable():
    kappa = two_values(np.random.default_rng(7), 200)
    emulator = uqsonet.fit(runs_of(kappa), sensors=[3], bar=False, law="latent")
    x = SMALL.points()[[3, 12, 20]]
    with warnings.catch_warnings():
        warnings.simplefilter("error", uqsonet.ObservationWarning)
        emulator.condition(x, [0.8, -0.8, 0.8])
    with pytest.warns(uqsonet.ObservationWarning, match=r"improbable .* \('latent'\).* prob"):
        emulator.condition(x, [0.8, 0.1, 0.8])


LINE = Grid((0.0,), (2.0,), (60,))
SQUARE = Grid((0.0, -1.0), (1.0, 1.0), (14, 16))


def spectrum(grid: Grid, exponent: float, constant: float, wider: float, length: float) -> Spectrum:
    values = [exponent, constant, wider] + [length] * grid.dim
    return Spectrum(grid, torch.tensor(values, dtype=torch.float64))


def correlated(field: LatentField, grid: Grid) -> Tensor:
    rows = field.rows(grid, grid.points())
    return rows @ rows.T


@pytest.mark.parametrize("grid", [LINE, SQUARE, Grid((0.0,) * 3, (1.0,) * 3, (8, 9, 10))])
@pytest.mark.parametrize("wider", [0.0, 0.5])
def test_fields_on_the_grid_are_those_that_sensors_see(grid, wider):
    field = spectrum(grid, 2.0, 0.3, wider, 0.4)
    xi = torch.randn(5, field.rank, generator=seeded(), dtype=torch.float64)
    rows = field.rows(grid, grid.points())
    assert float((rows.square().sum(-1) - 1).abs().max()) < 1e-12
    assert float((field.fields(xi) - xi @ rows.T).abs().max()) < 1e-5


def test_a_wide_box_has_the_matern_kernel():
    """Exponent 1 in one dimension is the exponential kernel, where the box's ends are far away."""
    length = 0.1  # of the grid's extent of 2
    field = spectrum(LINE, 1.0, 1.0, 0.5, length)
    x = LINE.points()[:, 0]
    # (1 + (length k)^2 / 2)^-1 is the spectrum of exp(-d sqrt(2) / length), d as a share.
    wanted = torch.exp(-(x[:, None] - x).abs() / 2 * 2**0.5 / length)
    inner = slice(10, 50)
    off = (correlated(field, LINE) - wanted)[inner, inner].abs().max()
    assert float(off) < 0.04  # cosines end somewhere: the kernel has a kink


def test_a_rough_field_is_found_again_from_its_classes(monkeypatch):
    monkeypatch.setattr(correlations, "SPREAD", 60)
    grid = Grid((0.0, -1.0), (1.0, 1.0), (11, 12))
    true = spectrum(grid, 1.8, 0.05, 0.0, 0.5)
    xi = torch.randn(6000, true.rank, generator=seeded(), dtype=torch.float64)
    cut = torch.full((grid.size,), 0.6, dtype=torch.float64)
    found = fit_latent(grid, (true.fields(xi) <= cut).float(), cut, tetrachoric)
    assert isinstance(found, Spectrum)
    off = (correlated(found, grid) - correlated(true, grid)).abs()
    assert float(off.max()) < 0.06 and float(off.mean()) < 0.02
    # Below the spacing of points, what matters is the exponent.
    assert float(found.values[0]) == pytest.approx(1.8, abs=0.25)


def test_a_field_that_no_spectrum_has_keeps_its_factor():
    """Two independent halves: a jump of correlation that no stationary field knows."""
    x = LINE.points()[:, 0]
    kernel = torch.exp(-((x[:, None] - x) ** 2) / 0.3**2)
    kernel = torch.where((x[:, None] < 1) == (x < 1), kernel, 0.0)
    root = torch.linalg.cholesky(kernel + 1e-9 * torch.eye(len(x)))
    hidden = torch.randn(6000, len(x), generator=seeded(), dtype=torch.float64) @ root.T
    cut = torch.zeros(LINE.size, dtype=torch.float64)
    found = fit_latent(LINE, (hidden <= 0).float(), cut, tetrachoric)
    assert isinstance(found, LowRank)
    assert float((correlated(found, LINE) - kernel).abs().max()) < 0.15


def test_a_stored_spectrum_is_checked():
    good = spectrum(LINE, 2.0, 0.3, 0.5, 0.4).values
    assert torch.equal(Spectrum.of(LINE, good).values, good)
    for wrong in (good[:3], torch.cat([good, good[:1]]), -good, good * torch.nan):
        with pytest.raises(ValueError, match="spectrum"):
            Spectrum.of(LINE, wrong)


def test_a_law_on_a_grid_comes_back_from_its_tensors():
    """With its spectrum: a file holds that instead of a factor."""
    hidden, halves = spectrum(LINE, 2.0, 0.3, 0.5, 0.4), torch.zeros(LINE.size, 1).double()
    part = ClassField(torch.arange(2), halves, hidden)
    law = LatentLaw(Classes(torch.tensor([0.0, 1.0]).double(), [part]))
    found = LatentLaw.of(law.tensors(), model_of(np.zeros((3, LINE.size)), 2, LINE).bases)
    assert found.tensors().keys() == law.tensors().keys() == {"values", "thresholds", "spectrum"}
    assert torch.equal(correlated(found.link.parts[0].latent, LINE), correlated(hidden, LINE))


@pytest.mark.parametrize("periodic", [False, True])
def test_fields_of_a_spectrum_stand_at_the_points_of_their_grid(periodic: bool) -> None:
    grid = Grid((0.0,), (1.0,), (32,), periodic=periodic)
    field = spectrum(grid, 2.0, 0.3, 0.5, 0.2)
    xi = torch.randn(3, field.rank, generator=torch.Generator().manual_seed(0)).double()
    expected = xi @ field.rows(grid, grid.points()).T.double()
    torch.testing.assert_close(field.fields(xi).double(), expected, rtol=0, atol=1e-5)
