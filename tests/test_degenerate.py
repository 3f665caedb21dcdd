"""Observation sets at the edge, for every predictor: a finite law, or a clear refusal.

What is defined: one sensor or hundreds, sensors on the boundary, repeated sensors (with equal
or contradicting values, with and without noise) and huge finite values give finite answers. Values
or places that are not finite, and places outside are refused. A set without a sensor has the law
before any measurement, where a method knows that; networks that average over sensors refuse it.
"""

import pytest
import torch

from uqsonet.errors import NoUncertaintyError, ObservationError
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import build_model
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet_study import BASELINES
from uqsonet_study.baselines import build_baseline
from uqsonet_study.ensemble import DeepEnsemble
from uqsonet_study.problems import get_problem
from uqsonet_study.storage import load_functions

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
every = pytest.mark.parametrize("method", METHODS)
NAN = float("nan")


@pytest.fixture(scope="module")
def models(diffusion_files):
    """All predictors, untrained but with their constants fitted to real data, by their noise."""
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
        return {
            "karhunen_loeve": network("uqsonet", kriging, noise_std),
            "attention": network("uqsonet", ATTENTION, noise_std),
            "vidon": network("vidon", ATTENTION, noise_std),
            "ensemble": DeepEnsemble([network("vidon", ATTENTION, noise_std) for _ in range(2)]),
            **{name: build_baseline(name, data, noise_std) for name in BASELINES},
        }

    return {noise: made(noise) for noise in (0.0, 0.5)}


LINE = torch.linspace(-1, 1, 401)[:, None]
ACCEPTED = {
    "one sensor on the boundary": ([[1.0]], [1.0], None),
    "hundreds": (LINE.tolist(), (1 + 0.1 * LINE[:, 0]).tolist(), None),
    "hundreds at one place": ([[0.25]] * 300, [1.2] * 300, None),
    "a pair, equal": ([[0.25], [0.25], [-0.5]], [1.2, 1.2, 0.9], None),
    "a pair that contradicts itself": ([[0.25], [0.25]], [0.5, 2.0], None),
    "nearly a pair": ([[0.25], [0.25 + 1e-13]], [1.2, 1.2], None),
    "huge": ([[0.1], [0.6]], [1e12, 1e12], None),
    "tiny": ([[0.1], [0.6]], [1e-30, 1e-30], None),
    "padded with NaN": ([[0.1], [NAN]], [1.0, NAN], [True, False]),
    "padded from outside": ([[0.1], [7.0]], [1.0, -3.0], [True, False]),
}
EMPTY = {
    "no sensor": (torch.zeros(0, 1), torch.zeros(0), None, "is empty"),
    "all masked": ([[0.1], [0.2]], [1.0, 1.0], [False, False], "is empty"),
}
REFUSED = {
    "NaN value": ([[0.1], [0.2]], [1.0, NAN], None, "must be finite"),
    "outside": ([[0.1], [1.5]], [1.0, 1.0], None, r"sensor 1 at \[1.5.*outside the domain"),
    "not positive": ([[0.1]], [0.0], None, "must be positive"),
    "other shapes": ([[0.1], [0.2]], [1.0], None, "shapes do not fit"),
    "no values": ([[0.1]], None, None, "shapes do not fit"),
    "a short mask": ([[0.1], [0.2]], [1.0, 1.0], [True], r"\(1, 2\), \(1, 1\)"),
    "a mask of numbers": ([[0.1]], [1.0], [1.0], "mask must be boolean, found torch.float32"),
    "too many coordinates": ([[0.1, 0.2]], [1.0], None, "2 coordinates, k has 1"),
    "words": ([["a"]], [1.0], None, "locations must be a numeric array, found <U1"),
    "ragged": ([[0.1]], [[1.0], [1.0, 2.0]], None, "values must be a numeric array"),
}


def law_of(model, case, **named):
    places, values, mask, *_ = case
    return model.condition(places, values, None if mask is None else torch.tensor(mask), **named)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@every
def test_an_unusual_set_has_a_finite_law(models, method, noise_std):
    for name, case in ACCEPTED.items():
        law = law_of(models[noise_std][method], case)
        assert law.mean().shape == (401,) and bool(law.mean().isfinite().all()), name
        if method == "vidon":
            with pytest.raises(NoUncertaintyError):
                law.std()
        else:
            std = law.std()
            assert bool(std.isfinite().all()) and bool((std >= 0).all()), name
            assert bool(law.sample(3).isfinite().all()), name


@every
def test_a_set_without_a_meaning_is_refused(models, method):
    for case in [*REFUSED.values(), *(() if method in PRIOR else EMPTY.values())]:
        with pytest.raises(ObservationError, match=case[-1]):
            law_of(models[0.0][method], case)


@pytest.mark.parametrize("method", PRIOR)
def test_without_sensors_it_is_the_law_before_any_measurement(models, method):
    vague = models[0.0][method].condition([[0.1]], [1.0], noise_std=1e9)
    for case in EMPTY.values():
        law = law_of(models[0.0][method], case)
        assert torch.allclose(law.mean(), vague.mean(), atol=1e-6)
        assert torch.allclose(law.std(), vague.std(), atol=1e-6)


@every
def test_order_padding_and_repetition_have_no_meaning(models, method):
    model = models[0.5][method]
    one = model.condition([[0.25], [-0.5], [1.0]], [1.2, 0.9, 1.1])
    padded = [[NAN], [1.0], [0.25], [-0.5]], [-1.0, 1.1, 1.2, 0.9], [False, True, True, True]
    two = law_of(model, padded)
    assert torch.allclose(one.mean(), two.mean(), atol=1e-5)
    assert method == "vidon" or torch.allclose(one.std(), two.std(), atol=1e-5)
    if method in ("karhunen_loeve", "cokriging"):  # a repeated noiseless sensor says no more
        once = models[0.0][method].condition([[0.25], [-0.5]], [1.2, 0.9])
        twice = law_of(models[0.0][method], ACCEPTED["a pair, equal"])
        assert torch.allclose(once.mean(), twice.mean(), atol=2e-3)
        assert torch.allclose(once.std(), twice.std(), atol=2e-3)
