"""`uqsonet.fit` with laws: what a user is told, and who is warned."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import uqsonet
from tests.laws.conftest import (
    SMALL,
    gaussian_fields,
    kernel,
    runs_of,
    two_fields,
    two_values,
)
from uqsonet.card import _law_text

pytestmark = pytest.mark.usefixtures("quick_fits")


def fitted(kappa: np.ndarray, law: str = "auto", **more: object) -> uqsonet.Emulator:
    return uqsonet.fit(runs_of(kappa), 0, sensors=[3, 6], bar=False, law=law, **more)  # type: ignore[arg-type]


def limit(model: uqsonet.Emulator) -> str:
    """Return what the card says about the law."""
    return next((text for text in model.card["limits"] if "not Gaussian" in text), "")


@pytest.fixture(scope="module")
def binary(quick_fits: None) -> uqsonet.Emulator:
    return fitted(two_values(np.random.default_rng(1), 300))


@pytest.fixture(scope="module")
def mixed(quick_fits: None) -> uqsonet.Emulator:
    return fitted(two_fields(np.random.default_rng(2), 1000))


def test_two_valued_inputs_are_taken_to_be_thresholded(binary: uqsonet.Emulator) -> None:
    recipe = binary.card["recipe"]
    assert recipe["law"] == "thresholded" == binary.operator.config.law  # type: ignore[union-attr]
    rows = {row["law"]: row for row in recipe["laws"]}
    assert {"gaussian", "mixture", "thresholded", "analogue"} <= set(rows)
    assert [law for law, row in rows.items() if row["chosen"]] == ["thresholded"]
    gain = [rows["gaussian"][f"crps_{m}"] / rows["thresholded"][f"crps_{m}"] - 1 for m in (3, 6)]
    words = f"takes the law 'thresholded'; the CRPS of held-out runs would be {50 * sum(gain):.1f}"
    assert words in (limit(binary))
    assert "law thresholded" in str(binary) and "Kolmogorov distance" in str(binary)


def test_gaussian_inputs_keep_the_gaussian_law() -> None:
    kappa = gaussian_fields(np.random.default_rng(3), 400, kernel(0.3))
    chosen, given = fitted(kappa), fitted(kappa, "gaussian")
    assert chosen.card["recipe"]["law"] == "gaussian"
    assert [row["law"] for row in chosen.card["recipe"]["laws"]] == ["gaussian"]
    assert limit(chosen) == ""
    at = SMALL.points()[[3, 12]], [0.3, -0.2]
    assert np.array_equal(chosen.condition(*at).mean(), given.condition(*at).mean())


def test_a_law_that_was_asked_for_is_named_without_a_comparison() -> None:
    classes = two_values(np.random.default_rng(1), 200)
    text = limit(fitted(classes, "gaussian"))
    assert "The model takes them to be: the shape of its plain bands may be wrong" in text
    assert "no other law" not in text
    assert limit(fitted(classes, "analogue")).endswith("The model takes the law 'analogue'.")
    # Whatever the inputs are like.
    model = fitted(gaussian_fields(np.random.default_rng(1), 60, kernel(0.3)), "analogue")
    assert "The model takes the law 'analogue'." in model.card["limits"]


def test_a_law_that_wins_by_the_range_of_its_fields_says_so() -> None:
    """Its CRPS may then be the higher one: no gain below zero is promised."""
    card = {
        "recipe": {
            "law": "thresholded",
            "laws": [
                {"law": "gaussian", "crps_3": 0.99, "outside": 0.8, "chosen": False},
                {"law": "thresholded", "crps_3": 1.0, "outside": 0.0, "chosen": True},
            ],
        }
    }
    text = _law_text(card)
    assert "a Gaussian one has a CRPS that is 1.0 % lower, but 80 % of its fields leave" in text


def alarms(model: uqsonet.Emulator, kappa: np.ndarray, count: int, noise: float = 0.0) -> int:
    """Return for how many inputs sensors at random points are said to be improbable."""
    rng, found = np.random.default_rng(9), 0
    for field in kappa:
        at = rng.choice(24, count, replace=False)
        y = field[at] + noise * rng.standard_normal(count)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.condition(SMALL.points()[at], y, None, noise)
        found += any("improbable" in str(one.message) for one in caught)
    return found


@pytest.mark.parametrize(("count", "noise"), [(1, 0.0), (3, 0.0), (6, 0.1)])
def test_new_inputs_are_hardly_ever_called_improbable(
    mixed: uqsonet.Emulator, count: int, noise: float
) -> None:
    """A warning stands for one set in 10,000, and a law from 800 inputs is not exact."""
    assert alarms(mixed, two_fields(np.random.default_rng(4), 100), count, noise) <= 2


def test_a_field_of_neither_kind_is_improbable(mixed: uqsonet.Emulator) -> None:
    assert mixed.card["recipe"]["law"] == "mixture"
    kappa = two_fields(np.random.default_rng(6), 20)
    kappa[:, ::2] += 1.5  # within the range of values, but no field of this kind is so rough
    kappa[:, 1::2] -= 1.5
    kappa = kappa.clip(-2, 2)
    assert alarms(mixed, kappa, 6, 0.05) >= 19
    posterior = pytest.warns(uqsonet.ObservationWarning, match=r"law of the input \('mixture'\)")
    with posterior:
        mixed.condition(SMALL.points()[[3, 4, 5, 6]], [1.5, -1.5, 1.5, -1.5])


def test_sets_without_sensors_among_others_give_no_warning(mixed: uqsonet.Emulator) -> None:
    x = SMALL.points()[[3, 12]].expand(3, 2, 1)
    mask = torch.tensor([[True, True], [False, False], [True, False]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", uqsonet.ObservationWarning)
        mean = mixed.condition(x, np.zeros((3, 2)), mask).mean()
    assert np.allclose(mean[1], mixed.condition().mean(), atol=1e-9)
