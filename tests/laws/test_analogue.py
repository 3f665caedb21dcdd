"""Analogues, beside the closed form."""

import numpy as np
import pytest
import torch

from tests.laws.conftest import (
    SMALL,
    fields_of,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    seeded,
    two_values,
)
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws.analogue import AnalogueLaw
from uqsonet.operator.model import KarhunenLoeveModel

AT = [3, 12, 20]


def equipped(kappa: np.ndarray, modes: int, share: float) -> KarhunenLoeveModel:
    model = model_of(kappa, modes)
    fitted = AnalogueLaw.fit(input_sample(model, functions_of(kappa)), 0)
    model.use_law(next(one for one in fitted if float(one.share) == share))
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
