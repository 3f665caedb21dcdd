"""Classes with variation inside: found again from the inputs, and the posterior by weighting."""

import numpy as np
import pytest
import torch

from tests.laws.conftest import (
    SMALL,
    facies_fields,
    fields_of,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    seeded,
    two_fields,
    two_values,
)
from uqsonet.fields.grid import Grid
from uqsonet.fitting.choose_law import input_sample
from uqsonet.laws.facies import FaciesLaw, segmented
from uqsonet.operator.model import KarhunenLoeveModel


def fit(kappa: np.ndarray, count: int = 2) -> FaciesLaw | None:
    model = model_of(kappa, 24)
    return FaciesLaw.of_count(input_sample(model, functions_of(kappa)), count)


@pytest.fixture(scope="module")
def facies() -> KarhunenLoeveModel:
    kappa = facies_fields(np.random.default_rng(2), 4000)
    model = model_of(kappa, 24)
    model.use_law(fit(kappa))
    return model


def test_classes_and_the_fields_within_are_found_again(facies):
    law = facies.law
    for one, mean in zip(law.inner, (-0.8, 0.8), strict=True):
        assert float((one.mean - mean).abs().max()) < 0.02
        assert float((one.std - 0.2).abs().max()) < 0.01
        rows = one.latent.rows(SMALL, SMALL.points())
        assert float((rows @ rows.T - torch.from_numpy(kernel(0.4))).abs().max()) < 0.08
    rows = law.classes.parts[0].latent.rows(SMALL, SMALL.points())
    assert float((rows @ rows.T - torch.from_numpy(kernel(0.3))).abs().max()) < 0.12


def test_a_field_that_crosses_the_other_class_stays_one_piece():
    """No threshold on values tells these classes; their jumps do."""
    rng, grid = np.random.default_rng(5), Grid((0.0,), (1.0,), (101,))
    inner = [gaussian_fields(rng, 300, kernel(0.3, 0.3, grid), mean) for mean in (-0.5, 0.5)]
    classes = gaussian_fields(rng, 300, kernel(0.3, grid=grid)) > 0
    fields = torch.from_numpy(np.where(classes, *inner[::-1]))
    found = segmented(grid, fields, 2)
    assert found is not None
    cut = float(((fields > 0).numpy() != classes).mean())
    assert float((found.bool().numpy() != classes).mean()) < cut / 2


@pytest.mark.parametrize(
    "draw", [two_fields, two_values, lambda *a: gaussian_fields(*a, kernel(0.3))]
)
def test_inputs_without_such_classes(draw):
    assert fit(draw(np.random.default_rng(3), 300)) is None


@pytest.mark.parametrize(
    ("readings", "noise"),
    [((), 0.0), ((0.7, -0.9, 0.85), 0.05), ((-0.75, -0.7, 0.6), 0.05), ((0.1, 0.6, -0.2), 0.4)],
)
def test_posterior_is_that_of_weighting(facies, readings, noise):
    at = [3, 9, 20][: len(readings)]
    rng = np.random.default_rng(3)
    drawn = facies_fields(rng, 300_000)
    off = (drawn[:, at] - np.array(readings)) / (noise or 1.0)
    weight = np.exp(-(off**2).sum(1) / 2)
    assert weight.sum() ** 2 / (weight**2).sum() > 600
    kept = drawn[rng.choice(len(drawn), 20_000, p=weight / weight.sum())]
    posterior = facies.input_posterior(SMALL.points()[at], list(readings), None, noise)
    found = fields_of(facies, posterior.sample(4000, seeded())[0]).numpy()
    shares = [(f > 0).mean(0) for f in (found, kept)]
    assert np.abs(shares[0] - shares[1]).max() < 0.06
    assert np.abs(found.mean(0) - kept.mean(0)).max() < 0.1
    for inside in (0, 1):
        both = [np.where((f > 0) == inside, f, np.nan) for f in (found, kept)]
        enough = np.minimum(*shares) if inside else np.minimum(*(1 - s for s in shares))
        seen = enough > 0.1
        means, stds = ([of(f[:, seen], 0) for f in both] for of in (np.nanmean, np.nanstd))
        assert np.abs(means[0] - means[1]).max() < 0.04
        assert np.abs(stds[0] - stds[1]).max() < 0.04
