"""Laws that are sampled: within bounds, beside rejection; analogues, beside the closed form."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from tests.laws.conftest import (
    SMALL,
    bounded_fields,
    fields_of,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    seeded,
    two_values,
)
from uqsonet.errors import ObservationError
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws import bounded
from uqsonet.laws.analogue import AnalogueLaw
from uqsonet.laws.bounded import BoundedLaw
from uqsonet.operator.model import KarhunenLoeveModel

AT = [3, 12, 20]


def fit(model: KarhunenLoeveModel, kappa: np.ndarray) -> BoundedLaw | None:
    return BoundedLaw.fit(input_sample(model, functions_of(kappa)), seeded(5))


@pytest.fixture(scope="module")
def model() -> KarhunenLoeveModel:
    kappa = bounded_fields(np.random.default_rng(1), 10_000)
    model = model_of(kappa, 12)
    model.use_law(fit(model, kappa))
    return model


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Fields within bounds."""
    return bounded_fields(np.random.default_rng(2), 100_000)


def check_agreement(found: np.ndarray, exact: np.ndarray) -> None:
    """Compare draws with some thousand others; their means have errors of 0.03 deviations."""
    std = exact.std(0)
    assert np.abs(found).max() < 1.2 * 1.01
    assert np.abs((found.mean(0) - exact.mean(0)) / std).max() < 0.15
    assert np.abs(found.std(0) / std - 1).max() < 0.1
    for place in (0, 3, 7, 16, 23):
        # Some hundred fields of `exact` are different.
        assert ks_2samp(found[:, place], exact[:, place]).statistic < 0.1


def test_mean_and_covariance_before_the_cut(model):
    law, factor = model.law, model.bases.input_factor.double()
    assert float(law.lower) == pytest.approx(-1.2, abs=0.001)
    assert float(law.upper) == pytest.approx(1.2, abs=0.001)
    mean = fields_of(model, law.mean).numpy()
    spread = (factor @ law.root).numpy()
    assert np.abs(mean).max() < 0.1  # the standard deviation is one
    exact, within = kernel(0.4), np.cov(bounded_fields(np.random.default_rng(4), 20_000).T)
    norm = np.linalg.norm(exact)
    assert np.linalg.norm(within - exact) / norm > 0.5  # what the plain Gaussian law has
    assert np.linalg.norm(spread @ spread.T - exact) / norm < 0.1


@pytest.mark.parametrize("y", [(), (0.2, -0.3, 0.5), (1.0, 0.9, -1.1)])
def test_posterior_is_that_of_weighted_draws_by_rejection_and_by_chains(
    model, drawn, y, monkeypatch
):
    at = AT[: len(y)]
    log = -(((drawn[:, at] - np.array(y)) / 0.2) ** 2).sum(1) / 2
    weight = np.exp(log - log.max())
    picked = np.random.default_rng(3).choice(len(drawn), 4000, p=weight / weight.sum())
    assert len(np.unique(picked)) > 500
    posterior = model.input_posterior(SMALL.points()[at], list(y), None, 0.2)
    check_agreement(fields_of(model, posterior.sample(4000, seeded())[0]).numpy(), drawn[picked])
    monkeypatch.setattr(bounded, "MAX_TRIES", 0)
    check_agreement(fields_of(model, posterior.sample(4000, seeded(1))[0]).numpy(), drawn[picked])


def test_sensors_that_hardly_any_draw_agrees_with(model):
    """Sensors at the bounds, a slope between them that leads beyond: chains have to answer."""
    x, y = SMALL.points()[[6, 8, 15, 17]], [0.9, 1.19, -1.19, -0.9]
    posterior = model.input_posterior(x, y, None, 0.01)
    one = posterior.sample(200, seeded())
    found = fields_of(model, one[0]).numpy()
    assert np.isfinite(found).all() and np.abs(found).max() < 1.2 * 1.02
    assert np.abs(found.mean(0)[[6, 8, 15, 17]] - y).max() < 0.05
    assert torch.equal(one, posterior.sample(200, seeded()))


def test_a_value_beyond_the_bounds(model):
    x = SMALL.points()[AT]
    inside = model.input_posterior(x, [1.19, -1.19, 0.0]).tail
    assert inside is not None and float(inside) == pytest.approx(1.0)
    exact = model.input_posterior(x, [1.5, 0.0, 0.0])
    assert exact.tail is not None and float(exact.tail) < 1e-10
    with pytest.raises(ObservationError, match=r"within the bounds .* \(-1\.\d+ to 1\.\d+"):
        exact.sample(20, seeded())
    noisy = model.input_posterior(x, [1.5, 0.0, 0.0], None, 0.3)
    assert noisy.tail is not None and float(noisy.tail) == pytest.approx(1 - 0.683**3, abs=0.01)
    assert np.abs(fields_of(model, noisy.sample(200, seeded())[0]).numpy()).max() < 1.2 * 1.01
    nothing = model.input_posterior(x[None], torch.zeros(1, 3), torch.zeros(1, 3).bool()).tail
    assert nothing is not None and float(nothing) > 0.999


def test_inputs_that_touch_no_bounds_or_always_leave_them_have_no_such_law():
    plain = gaussian_fields(np.random.default_rng(6), 2000, kernel(0.4))
    assert fit(model_of(plain, 12), plain) is None
    signs = np.sign(gaussian_fields(np.random.default_rng(7), 500, kernel(0.1)))
    assert fit(model_of(signs, 20), signs) is None


def equipped(kappa: np.ndarray, modes: int, share: float) -> KarhunenLoeveModel:
    model = model_of(kappa, modes)
    model.use_law(AnalogueLaw.fit(input_sample(model, functions_of(kappa)), share))
    return model


@pytest.fixture(scope="module")
def analogue() -> KarhunenLoeveModel:
    return equipped(gaussian_fields(np.random.default_rng(1), 20_000, kernel(0.3)), 12, 0.1)


@pytest.mark.parametrize(("share", "noise"), [(0.1, 0.0), (0.1, 0.3), (1.0, 0.3)])
def test_of_gaussian_inputs_analogues_are_near_the_closed_form(analogue, share, noise):
    law = analogue.law
    analogue.use_law(AnalogueLaw(law.fields, law.coefficients, share))
    y = np.array([0.5, -0.7, 0.3])
    covariance = kernel(0.3)
    seen = covariance[np.ix_(AT, AT)] + (noise**2 + 1e-12) * np.eye(3)
    gain = np.linalg.solve(seen, covariance[AT]).T
    mean = gain @ y
    std = np.sqrt((covariance.diagonal() - (gain * covariance[AT].T).sum(1)).clip(0))
    posterior = analogue.input_posterior(SMALL.points()[AT], y, None, noise)
    found = fields_of(analogue, posterior.sample(20_000, seeded())[0]).numpy()
    # Of 2,000 neighbours, noise of their own among them, the mean has an error of 0.02.
    assert np.abs(found.mean(0) - mean).max() < 0.06
    assert np.linalg.norm(found.std(0) - std) / np.linalg.norm(std) < 0.04
    assert np.abs(fields_of(analogue, posterior.mean[0]).numpy() - mean).max() < 0.06
    if noise == 0:
        assert np.abs(found[:, AT] - y).max() < 0.05


def test_samples_keep_the_values_and_the_shape_of_two_valued_fields():
    rng = np.random.default_rng(2)
    kappa = two_values(rng, 5000)
    model = equipped(kappa, 24, 0.03)
    y = [0.8, -0.8, -0.8]
    drawn = model.input_posterior(SMALL.points()[AT], y).sample(2000, seeded())[0]
    found = fields_of(model, drawn).numpy()
    assert np.abs(found[:, AT] - y).max() < 0.05
    # A Gaussian law has as many values near zero as at the ends.
    assert (np.abs(np.abs(found) - 0.8) < 0.1).mean() > 0.9
    # Without sensors it draws the training inputs.
    drawn = fields_of(model, model.input_posterior([], []).sample(200, seeded())[0])
    assert float(torch.cdist(drawn, torch.from_numpy(kappa)).amin(1).max()) < 0.05


@pytest.mark.parametrize("size", [15, 500])
def test_few_inputs_and_a_sensor_where_all_of_them_are_the_same(size):
    """At a boundary value all distances are those of rounding: any weights, but an answer."""
    kappa = gaussian_fields(np.random.default_rng(3), size, kernel(0.3))
    kappa[:, 0] = 2.0
    model = equipped(kappa, 4, 0.03)
    for at, y in (([0], [2.0]), ([0], [2.5]), ([0, 0, 5], [2.0, 2.0, 0.1])):
        drawn = model.input_posterior(SMALL.points()[at], y).sample(50, seeded())
        assert bool(drawn.isfinite().all())
