"""A law that is sampled: within bounds, beside rejection."""

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
)
from uqsonet.errors import ObservationError
from uqsonet.fitting.choose_law import input_sample
from uqsonet.gauss.given import Given
from uqsonet.laws import bounded
from uqsonet.laws.bounded import BoundedLaw
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.sensors.sensors import checked_sensors

AT = [3, 12, 20]


def fit(model: KarhunenLoeveModel, kappa: np.ndarray) -> BoundedLaw | None:
    with pytest.MonkeyPatch.context() as patch:  # the draws that limits below were set for
        patch.setattr(bounded, "torch_generator", lambda *_: seeded(5))
        return BoundedLaw.fit(input_sample(model, functions_of(kappa)), 0)


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


def given(
    model: KarhunenLoeveModel, x: object, y: object, mask: object = None, noise_std: object = None
) -> Given:
    return model.input_law_given(checked_sensors(model.fields.input, x, y, mask, noise_std))


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
    posterior = given(model, SMALL.points()[at], list(y), None, 0.2)
    check_agreement(fields_of(model, posterior.sample(4000, seeded())[0]).numpy(), drawn[picked])
    monkeypatch.setattr(bounded, "MAX_TRIES", 0)
    check_agreement(fields_of(model, posterior.sample(4000, seeded(1))[0]).numpy(), drawn[picked])


def test_sensors_that_hardly_any_draw_agrees_with(model):
    """Sensors at the bounds, a slope between them that leads beyond: chains have to answer."""
    x, y = SMALL.points()[[6, 8, 15, 17]], [0.9, 1.19, -1.19, -0.9]
    posterior = given(model, x, y, None, 0.01)
    one = posterior.sample(200, seeded())
    found = fields_of(model, one[0]).numpy()
    assert np.isfinite(found).all() and np.abs(found).max() < 1.2 * 1.02
    assert np.abs(found.mean(0)[[6, 8, 15, 17]] - y).max() < 0.05
    assert torch.equal(one, posterior.sample(200, seeded()))


def test_a_value_beyond_the_bounds(model):
    x = SMALL.points()[AT]
    inside = given(model, x, [1.19, -1.19, 0.0]).tail
    assert inside is not None and float(inside) == pytest.approx(1.0)
    exact = given(model, x, [1.5, 0.0, 0.0])
    assert exact.tail is not None and float(exact.tail) < 1e-10
    with pytest.raises(ObservationError, match=r"within the bounds .* \(-1\.\d+ to 1\.\d+"):
        exact.sample(20, seeded())
    noisy = given(model, x, [1.5, 0.0, 0.0], None, 0.3)
    assert noisy.tail is not None and float(noisy.tail) == pytest.approx(1 - 0.683**3, abs=0.01)
    assert np.abs(fields_of(model, noisy.sample(200, seeded())[0]).numpy()).max() < 1.2 * 1.01
    nothing = given(model, x[None], torch.zeros(1, 3), torch.zeros(1, 3).bool()).tail
    assert nothing is not None and float(nothing) > 0.999


def test_inputs_that_touch_no_bounds_or_always_leave_them_have_no_such_law():
    plain = gaussian_fields(np.random.default_rng(6), 2000, kernel(0.4))
    assert fit(model_of(plain, 12), plain) is None
    signs = np.sign(gaussian_fields(np.random.default_rng(7), 500, kernel(0.1)))
    assert fit(model_of(signs, 20), signs) is None
