"""A Gaussian field behind values of any law: margins, atoms, and the posterior against sampling."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import uqsonet
from tests.answers import input_given
from tests.laws.conftest import (
    SMALL,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    rain_fields,
    runs_of,
    seeded,
)
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws.correlations import Spectrum
from uqsonet.laws.latent import LatentLaw
from uqsonet.laws.margins import ClippedNormals, fit_maps, latent_of_scores
from uqsonet.operator.model import KarhunenLoeveModel

X = SMALL.points()


def capped(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw fields (size, 24) with an atom at both ends, and exponential values between."""
    return np.exp(np.clip(gaussian_fields(rng, size, kernel(0.3)), -0.5, 1.0))


KINDS = {"rain": rain_fields, "capped": capped}


def gaussian_given(covariance: Tensor, places: Tensor) -> Tensor:
    """Return the covariance (n, n) of a Gaussian field that is known at some places."""
    cross = covariance[places]
    return covariance - cross.T @ torch.linalg.solve(cross[:, places], cross)


def fitted(kappa: np.ndarray) -> KarhunenLoeveModel:
    model = model_of(kappa, 12)
    law = LatentLaw.fit(input_sample(model, functions_of(kappa)), 0)
    model.use_law(law)
    return model


@pytest.fixture(scope="module")
def models() -> dict[str, KarhunenLoeveModel]:
    return {name: fitted(kind(np.random.default_rng(0), 2000)) for name, kind in KINDS.items()}


def posterior_fields(
    model: KarhunenLoeveModel, places: list[int], values: list[float], noise: float, size: int
) -> Tensor:
    y = torch.tensor(values, dtype=torch.float64)
    given = input_given(model, X[places], y, None, noise)
    return next(given.functions(size, seeded())).double()


@pytest.mark.parametrize(
    ("kind", "values", "noise"),
    [
        ("rain", [0.4, 0.0, 0.0], 0.0),
        ("rain", [0.3, 0.1, 0.0], 0.15),
        ("capped", [2.0, 2.7182818, 1.2], 0.0),
        ("capped", [1.2, 2.5, 0.7], 0.2),
    ],
)
def test_posterior_is_that_of_draws_that_agree_with_the_sensors(kind, values, noise, models):
    places, rng = [3, 10, 18], np.random.default_rng(1)
    every = torch.from_numpy(KINDS[kind](rng, 400_000))
    off = every[:, places] - torch.tensor(values, dtype=torch.float64)
    if noise:
        weight = torch.exp(-off.square().sum(1) / (2 * noise**2))
        near = torch.rand(len(weight), generator=seeded(), dtype=torch.float64) < weight
    else:
        at_end = [min(abs(v - end) for end in (every.min(), every.max())) < 1e-4 for v in values]
        near = (off.abs() < torch.where(torch.tensor(at_end), 1e-4, 0.07)).all(1)
    truth, size = every[near], 20_000
    assert len(truth) > 60
    found = posterior_fields(models[kind], places, values, noise, size)
    # Margins and correlations are known from 2,000 inputs only.
    error = (truth.var(0) / len(truth)).sqrt()
    assert bool(((found.mean(0) - truth.mean(0)).abs() < 4 * error + 0.04).all())
    for end in (float(every.min()), float(every.max())):
        share, there = ((one - end).abs() < 1e-5 for one in (found, truth))
        apart = share.double().mean(0) - there.double().mean(0)
        assert float(apart.abs().max()) < 4 * 0.5 / len(truth) ** 0.5 + 0.03
    assert float(found.min()) >= float(every.min()) - 1e-6


def test_margins_are_pooled_where_points_agree_and_else_are_their_own():
    rng = np.random.default_rng(2)
    latent = gaussian_fields(rng, 3000, kernel(0.3))
    moved = np.linspace(1, 3, SMALL.size)
    shapes = np.linspace(0.2, 1, SMALL.size)
    for kappa, rows in (
        (np.exp(latent), 1),
        (moved * np.exp(latent / 2), 2),
        (np.exp(shapes * latent), SMALL.size),
    ):
        margins = fit_maps(torch.from_numpy(kappa).float())
        assert not bool(margins.atoms.any())
        standard = margins.quantiles / margins.quantiles.diff().sum(1, keepdim=True)
        if rows < SMALL.size:  # the same map, but for its scale
            assert float((standard - standard[0]).std(1).max()) < 1e-6
        scores, _ = margins.latent(torch.from_numpy(kappa.T.copy()))
        assert float((scores.T - torch.from_numpy(latent)).abs().mean()) < 0.03
        again = margins.field(scores.T.float())
        assert float((again - torch.from_numpy(kappa)).abs().max()) < 1e-4 * kappa.max()


def test_the_hidden_part_of_censored_fields_does_not_bend_their_correlations():
    truth, x = kernel(0.3), X.numpy()
    latent = gaussian_fields(np.random.default_rng(3), 3000, truth)
    cuts = torch.tensor([[0.0, 9.0]]).double().expand(SMALL.size, 2)
    seen = torch.from_numpy(latent).float().clamp_min(0.0)
    plain = np.corrcoef(seen.T)
    for domain in (SMALL, PointCloud.of(x)):
        field = latent_of_scores(domain, seen, cuts)
        assert field is not None
        rows = field.rows(domain, X)
        found = (rows @ rows.T).numpy()
        assert np.abs(found - truth).max() < 0.08 < np.abs(plain - truth).max()


@pytest.mark.parametrize("cuts", [(-9.0, 9.0), (0.0, 9.0), (-0.7, 1.1), (-9.0, -0.3)])
def test_correlations_of_clipped_normals_tell_those_of_the_normals(cuts):
    rng, r = np.random.default_rng(5), 0.8
    first, other = rng.standard_normal((2, 1_000_000))
    second = r * first + (1 - r**2) ** 0.5 * other
    seen = np.corrcoef(np.clip(first, *cuts), np.clip(second, *cuts))[0, 1]
    clipped = ClippedNormals(torch.tensor([cuts, (0.2, 9.0)], dtype=torch.float64))
    level = clipped.level[0]
    of = torch.tensor([seen, 1.0, 0.0], dtype=torch.float64)
    assert clipped.correlation(of, level, level).tolist() == pytest.approx([r, 1, 0], abs=3e-3)


def separable_fields(rng: np.random.Generator, size: int, points: int) -> np.ndarray:
    """Draw fields (size, points**2) whose kernel is a product of exponentials of length 0.3."""
    x = np.linspace(0, 1, points)
    root = np.linalg.cholesky(np.exp(-np.abs(x[:, None] - x) / 0.3))
    return (root @ rng.standard_normal((size, points, points)) @ root.T).reshape(size, -1)


def test_a_few_hundred_rains_in_the_plane_tell_a_separable_spectrum():
    grid, rng = Grid((0.0, 0.0), (1.0, 1.0), (10, 10)), np.random.default_rng(6)
    rain = np.maximum(separable_fields(rng, 400, 10), 0) ** 1.5
    model = model_of(rain, 12, grid)
    law = LatentLaw.fit(input_sample(model, functions_of(rain, grid)), 0)
    assert law is not None
    (latent,) = law.link.latent
    assert isinstance(latent, Spectrum) and latent.separable
    points = grid.points()
    rows = latent.rows(grid, points)
    truth = torch.exp(-(points[:, None] - points).abs().sum(-1) / 0.3)
    assert float((rows @ rows.T - truth).abs().mean()) < 0.02
    again = LatentLaw.of(law.tensors(), model.bases)
    (other,) = again.link.latent
    assert isinstance(other, Spectrum) and other.separable and torch.equal(other.std, latent.std)
    model.use_law(again)
    given = input_given(model, points[[23, 77]], torch.tensor([0.4, 0.0]).double(), None, 0.0)
    fields = next(given.functions(50, seeded()))
    assert float((fields[:, 23] - 0.4).abs().max()) < 1e-3 and float(fields[:, 77].max()) == 0


@pytest.mark.parametrize("warped", [False, True])
def test_only_stationary_fields_have_a_spectrum(warped):
    x = np.linspace(0, 1, 64)
    places = x**2 if warped else x
    covariance = np.exp(-((places[:, None] - places) ** 2) / (2 * 0.1**2)) + 1e-8 * np.eye(64)
    root, normals = np.linalg.cholesky(covariance), np.random.default_rng(7)
    scores = torch.from_numpy(normals.standard_normal((600, 64)) @ root.T).float().clamp_min(0)
    cuts = torch.tensor([[0.0, 9.0]]).double().expand(64, 2)
    found = latent_of_scores(Grid((0.0,), (1.0,), (64,)), scores, cuts)
    assert isinstance(found, Spectrum) != warped


@pytest.mark.parametrize("smooth", [False, True])
def test_a_spectrum_knows_how_far_fields_are_known_between_sensors(smooth):
    """That is how rough they are: correlations of pairs hardly tell it, the likelihood does."""
    grid = Grid((0.0,), (1.0,), (96,))
    x = grid.points()
    lag = (x - x.T).abs() / 0.2
    matern = (1 + math.sqrt(3) * lag) * torch.exp(-math.sqrt(3) * lag)
    truth = torch.exp(-lag.square()) if smooth else matern
    fields = np.exp(gaussian_fields(np.random.default_rng(8), 2000, truth.numpy()))
    margins = fit_maps(torch.from_numpy(fields).float())
    scores = margins.latent(torch.from_numpy(fields).T)[0].T.float()
    found = latent_of_scores(grid, scores, margins.cuts)
    assert isinstance(found, Spectrum)
    places = torch.arange(6, 96, 12)

    def spread(covariance: Tensor) -> float:
        """Return the std that sensors at some places leave of the field elsewhere, on average."""
        left = gaussian_given(covariance + 1e-6 * torch.eye(96), places)
        return float(left.diagonal().clamp_min(0).sqrt().mean())

    rows = found.rows(grid, x)
    assert spread(rows @ rows.T) == pytest.approx(spread(truth), rel=0.15 if smooth else 0.03)


def test_what_the_law_cannot_have_is_improbable(models):
    model = models["rain"]
    for value, least, most in ((0.4, 0.05, 1), (0.0, 0.05, 1), (-3.0, 0, 1e-6), (80.0, 0, 1e-4)):
        given = input_given(model, X[[5]], torch.tensor([value]), None, 0.0)
        assert given.tail is not None
        assert least <= float(given.tail[0]) <= most
    few = rain_fields(np.random.default_rng(0), 30)
    assert None is LatentLaw.fit(input_sample(model_of(few, 5), functions_of(few)), 0)


def test_answers_about_the_input_stay_in_its_range_and_read_what_sensors_read():
    kappa = rain_fields(np.random.default_rng(5), 150)
    model = uqsonet.fit(runs_of(kappa), sensors=[3], bar=False, law="latent")
    posterior = model.condition(X[[3, 12]], [0.5, 0.0])["k"]
    samples = np.asarray(posterior.sample(400))
    assert samples.min() == 0 and np.abs(samples[:, 3] - 0.5).max() < 0.02
    assert (samples[:, 12] == 0).all()
    lower, upper = map(np.asarray, posterior.band(0.9))
    assert lower.min() >= 0 and upper[12] == 0
    mean = np.asarray(posterior.mean())
    assert np.abs(mean - samples.mean(0)).max() < 0.15
    between = posterior.sample(50, [[0.31], [0.333]])
    assert between.min() >= 0


def test_sensors_of_outputs_leave_the_input_in_its_range_and_places_can_be_asked_for():
    kappa = rain_fields(np.random.default_rng(6), 150)
    model = uqsonet.fit(runs_of(kappa), sensors=[3], bar=False, law="latent")
    posterior = model.condition(k=(X[[3]], [0.0]), u=(X[[20]], [0.2], 0.05))["k"]
    assert np.asarray(posterior.sample(50)).min() >= 0
    assert np.asarray(posterior.band(0.5)[0]).min() >= 0
    assert len(model.place(1, given=(X[[3]], [0.0])).places) == 1
