"""Observation sets at the edge, for every predictor: a finite law, or a clear refusal.

What is defined: one sensor or hundreds, sensors on the boundary, repeated sensors (with equal
or contradicting values, with and without noise) and huge finite values give finite answers. Values
or places that are not finite, and places outside are refused. A set without a sensor has the law
before any measurement, where a method knows that; networks that average over sensors refuse it.
"""

import pytest
import torch

from uqsonet.baselines import build_baseline
from uqsonet.data import load_functions
from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.models.base import build_model
from uqsonet.models.ensemble import DeepEnsemble
from uqsonet.problems import get_problem
from uqsonet_study.config import (
    BASELINES,
    AttentionNetwork,
    KarhunenLoeveNetwork,
    KarhunenLoeveSetNetwork,
)

ATTENTION = AttentionNetwork(
    location_embedding=[5],
    value_embedding=[5],
    attention=[6],
    branch=[8],
    trunk=[8],
    encoder=[6],
    truncation=4,
)
PRIOR = ("karhunen_loeve", *BASELINES)
METHODS = (*PRIOR, "attention", "vidon", "ensemble")


@pytest.fixture(scope="module")
def models(diffusion_files):
    """All predictors, untrained but with their constants fitted to real data, without noise."""
    data = load_functions(diffusion_files.functions, "training")

    def network(method: str, config, noise_std: float):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = build_model(method, get_problem("diffusion1d").fields, config, noise_std)
        with torch.no_grad():
            model.fit_constants(data)
        return model.eval()

    def made(noise_std: float):
        kriging = KarhunenLoeveNetwork(input_modes=20, output_modes=5, branch=[8])
        kriging_set = KarhunenLoeveSetNetwork(input_modes=20, output_modes=5, branch=[8])
        return {
            "karhunen_loeve": network("uqsonet", kriging, noise_std),
            "attention": network("uqsonet", ATTENTION, noise_std),
            "vidon": network("vidon", ATTENTION, noise_std),
            "kriging_vidon": network("vidon", kriging_set, noise_std),
            "ensemble": DeepEnsemble([network("vidon", ATTENTION, noise_std) for _ in range(2)]),
            **{name: build_baseline(name, data, noise_std) for name in BASELINES},
        }

    return {noise: made(noise) for noise in (0.0, 0.5)}


LINE = torch.linspace(-1, 1, 401)[:, None]
ACCEPTED = {
    "one sensor": ([[0.3]], [1.0], None),
    "one sensor on the boundary": ([[1.0]], [1.0], None),
    "both ends": ([[-1.0], [1.0]], [0.5, 2.0], None),
    "hundreds": (LINE.tolist(), (1 + 0.1 * LINE[:, 0]).tolist(), None),
    "hundreds at one place": ([[0.25]] * 300, [1.2] * 300, None),
    "a pair, equal": ([[0.25], [0.25], [-0.5]], [1.2, 1.2, 0.9], None),
    "a pair that contradicts itself": ([[0.25], [0.25]], [0.5, 2.0], None),
    "nearly a pair": ([[0.25], [0.25 + 1e-13]], [1.2, 1.2], None),
    "huge": ([[0.1], [0.6]], [1e12, 1e12], None),
    "tiny": ([[0.1], [0.6]], [1e-30, 1e-30], None),
    "padded with NaN": ([[0.1], [float("nan")]], [1.0, float("nan")], [True, False]),
    "padded from outside": ([[0.1], [7.0]], [1.0, -3.0], [True, False]),
}
EMPTY = {
    "no sensor": (torch.zeros(0, 1), torch.zeros(0), None, "is empty"),
    "all masked": ([[0.1], [0.2]], [1.0, 1.0], [False, False], "is empty"),
}
REFUSED = {
    **EMPTY,
    "NaN value": ([[0.1], [0.2]], [1.0, float("nan")], None, "must be finite"),
    "infinite value": ([[0.1]], [float("inf")], None, "must be finite"),
    "NaN place": ([[float("nan")]], [1.0], None, "must be finite"),
    "outside": ([[0.1], [1.5]], [1.0, 1.0], None, "outside"),
    "just outside": ([[1.001]], [1.0], None, "outside"),
    "not positive": ([[0.1]], [0.0], None, "must be positive"),
    "too many coordinates": ([[0.1, 0.2]], [1.0], None, "2 coordinates, the domain has 1"),
    "text": ([["a"]], [1.0], None, "locations must be a numeric array, found <U1"),
    "other shapes": ([[0.1], [0.2]], [1.0], None, "shapes do not fit"),
    "a mask of numbers": ([[0.1]], [1.0], [1.0], "mask must be boolean"),
}


def spread(law) -> torch.Tensor | None:
    try:
        return law.std()
    except NoUncertaintyError:
        return None


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize("case", ACCEPTED)
@pytest.mark.parametrize("method", METHODS)
def test_an_unusual_set_has_a_finite_law(models, method, case, noise_std):
    places, values, mask = ACCEPTED[case]
    law = models[noise_std][method].condition(places, values, mask and torch.tensor(mask))
    mean, std = law.mean(), spread(law)
    assert mean.shape == (401,) and bool(mean.isfinite().all())
    assert (std is None) == (method == "vidon")
    if std is not None:
        assert bool(std.isfinite().all()) and bool((std >= 0).all())
        assert bool(law.sample(3).isfinite().all())


@pytest.mark.parametrize(
    ("method", "case"),
    [(m, c) for m in METHODS for c in REFUSED if not (m in PRIOR and c in EMPTY)],
)
def test_a_set_without_a_meaning_is_refused(models, method, case):
    places, values, mask, message = REFUSED[case]
    with pytest.raises(ObservationError, match=message):
        models[0.0][method].condition(places, values, None if mask is None else torch.tensor(mask))


@pytest.mark.parametrize("case", EMPTY)
@pytest.mark.parametrize("method", PRIOR)
def test_without_sensors_it_is_the_law_before_any_measurement(models, method, case):
    places, values, mask, _ = EMPTY[case]
    law = models[0.0][method].condition(places, values, mask and torch.tensor(mask))
    vague = models[0.0][method].condition([[0.1]], [1.0], noise_std=1e9)
    assert torch.allclose(law.mean(), vague.mean(), atol=1e-6)
    assert torch.allclose(law.std(), vague.std(), atol=1e-6)


@pytest.mark.parametrize("method", ["karhunen_loeve", "cokriging"])
def test_a_repeated_noiseless_sensor_says_no_more_than_one(models, method):
    """The kernel matrix of the pair is singular; the answer is that of the sensor alone."""
    model = models[0.0][method]
    one = model.condition([[0.25], [-0.5]], [1.2, 0.9])
    two = model.condition([[0.25], [0.25], [-0.5]], [1.2, 1.2, 0.9])
    assert torch.allclose(one.mean(), two.mean(), atol=2e-3)
    assert torch.allclose(one.std(), two.std(), atol=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_sensors_has_no_meaning(models, method):
    model = models[0.5][method]
    one = model.condition([[0.25], [-0.5], [1.0]], [1.2, 0.9, 1.1])
    two = model.condition([[1.0], [0.25], [-0.5]], [1.1, 1.2, 0.9])
    assert torch.allclose(one.mean(), two.mean(), atol=1e-5)
