"""`auto` takes the simplest law that inputs do not contradict; what users of `fit` are told."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import uqsonet
from tests.laws.conftest import (
    LAWS,
    SMALL,
    bounded_fields,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    runs_of,
    two_fields,
    two_values,
)
from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fitting import choose_law as choice
from uqsonet.fitting import fit as fitting
from uqsonet.fitting.card import _law_text
from uqsonet.fitting.choose_law import equip, refit
from uqsonet.fitting.comparison import LEAST_TOLERATED, Comparison
from uqsonet.laws import NAMES
from uqsonet.laws.latent import LatentGiven
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet_study.beyond.law import held_pairs

pytestmark = pytest.mark.usefixtures("quick_fits")

SIZE, HELD = 600, 40
COUNTS = (2, 6)


def chosen(
    kappa: np.ndarray, law: str = "auto", modes: int = 16, seed: int = 0, noise: float = 0.0
) -> tuple[KarhunenLoeveModel, list[dict[str, Any]]]:
    """Return a model of some inputs with its law, and the log of the choice."""
    model = model_of(kappa[HELD:], modes)
    rng = np.random.default_rng(9)
    layouts = {
        m: torch.from_numpy(np.stack([rng.choice(24, m, replace=False) for _ in range(HELD)]))
        for m in COUNTS
    }
    training, held = functions_of(kappa[HELD:]), functions_of(kappa[:HELD])
    compared = Comparison([held_pairs(held, noise, layouts, seed)], seed)
    return model, equip(
        [model], NAMES if law == "auto" else [law], [training], compared, noise_std=noise, seed=seed
    )


def by_law(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["law"]: row for row in rows}


@pytest.mark.parametrize(("name", "draw"), LAWS.values(), ids=LAWS)
def test_auto_finds_the_law(name, draw):
    kappa = draw(np.random.default_rng(1), HELD + SIZE)
    model, rows = chosen(kappa)
    taken = [row["law"] for row in rows if row["chosen"]]
    assert taken == [name]
    assert model.config.law == name and model.law.name == name
    found = by_law(rows)
    if name == "gaussian":  # nothing else is fitted
        assert list(found) == ["gaussian"]
        assert found[name]["distance"] <= found[name]["chance"]
        return
    # Only the simplest laws are left out before the one that is chosen, and for a reason.
    order = [NAMES.index(law) for law in found]
    assert order == sorted(order)
    for law, row in found.items():
        if NAMES.index(law) < NAMES.index(name):
            worse = row["above_best"] > LEAST_TOLERATED
            assert worse or row["outside"] > choice.MAX_OUTSIDE or row["values"] > 0.04
    for m in COUNTS:
        assert found[name][f"crps_{m}"] < found["gaussian"][f"crps_{m}"]


def test_values_at_points_show_what_coefficients_hide():
    """A sum over many points is near normal, whatever the law of a single one is."""
    z = gaussian_fields(np.random.default_rng(1), HELD + SIZE, kernel(0.05))
    _, rows = chosen(-np.log1p(-ndtr(z)), modes=24)  # exponential
    row = by_law(rows)["gaussian"]
    assert row["values"] > 3 * choice.CHANCE_VALUES / SIZE**0.5
    assert [one["law"] for one in rows if one["chosen"]] == ["latent"]
    gaussian = choice.distance_of_values(torch.from_numpy(z))
    assert gaussian < choice.CHANCE_VALUES / len(z) ** 0.5


def test_a_law_whose_fields_leave_the_range_is_not_taken():
    """Where sensors tell nothing more, the CRPS of the mean is near, but the fields are not.

    The coefficients of forty inputs prove nothing, either, but their values do.
    """
    kappa = two_values(np.random.default_rng(3), HELD + 40)
    _, rows = chosen(kappa, noise=3.0)
    found = by_law(rows)
    assert found["gaussian"]["distance"] <= found["gaussian"]["chance"]
    assert found["gaussian"]["outside"] > 0.5
    assert found["latent"]["outside"] == 0.0
    assert not found["gaussian"]["chosen"] and not found["mixture"]["chosen"]


def test_a_point_at_which_roughness_changes_is_no_gaussian_field():
    """Single values are exactly normal, and coefficients nearly so."""
    rng = np.random.default_rng(1)
    smooth, rough = (gaussian_fields(rng, HELD + SIZE, kernel(one)) for one in (0.5, 0.1))
    change = rng.integers(4, 20, (HELD + SIZE, 1))
    kappa = np.where(np.arange(24) < change, smooth, rough)
    allowed = choice.CHANCE_VALUES / SIZE**0.5
    assert choice.distance_of_values(torch.from_numpy(kappa)) < allowed
    assert choice.distance_of_values(torch.from_numpy(np.diff(kappa))) > 2 * allowed
    assert choice.distance_of_values(torch.from_numpy(np.diff(smooth))) < allowed
    _, rows = chosen(kappa, modes=24)
    assert {"gaussian", "mixture"} <= set(by_law(rows))


def test_unknown_laws_are_refused_and_others_say_why_they_do_not_fit(monkeypatch):
    kappa = gaussian_fields(np.random.default_rng(4), HELD + 400, kernel(0.3))
    with pytest.raises(ConfigError, match=r"'no' is unknown.*gaussian, mixture, latent") as caught:
        chosen(kappa, "no", 4)
    for name in NAMES:
        assert name in str(caught.value)

    def forbidden(*_: object) -> None:
        raise AssertionError("training has begun")

    with pytest.raises(ConfigError, match=r"'latent' does not fit these inputs: they are too few"):
        chosen(kappa[: HELD + 40], "latent", 4)
    gone = "family", "analogue", "facies"
    new = "copula", "thresholded"
    for law, instead in [(law, "mixture") for law in gone] + [(law, "latent") for law in new]:
        with pytest.raises(ConfigError, match=rf"law '{law}' is gone: take '{instead}'"):
            uqsonet.fit(runs_of(kappa), bar=False, law=law)
    monkeypatch.setattr(fitting, "choose_linear", forbidden)
    for wrong in ("no", "Mixture", None, ["mixture"]):
        with pytest.raises(ConfigError, match="unknown"):
            uqsonet.fit(runs_of(kappa), bar=False, law=wrong)  # type: ignore[arg-type]


def test_a_law_that_has_no_answer_to_held_out_pairs_is_left_out(monkeypatch):
    def refuse(*_: object) -> None:
        raise ObservationError("no sample")

    monkeypatch.setattr(LatentGiven, "sample", refuse)
    kappa = two_values(np.random.default_rng(11), HELD + 200)
    model, rows = chosen(kappa, modes=8)
    assert "latent" not in by_law(rows) and {"gaussian", "mixture"} <= set(by_law(rows))
    assert model.config.law in by_law(rows)
    with pytest.raises(ConfigError, match="'latent' does not fit these inputs"):
        chosen(kappa, "latent", 8)


@pytest.mark.parametrize("law", ["mixture", "latent", "bounded"])
def test_the_same_seed_gives_the_same_law(law):
    kappa = bounded_fields(np.random.default_rng(6), HELD + 150)
    (one, first), (two, second) = (chosen(kappa, law, 6, seed=3) for _ in range(2))
    tensors = one.law_tensors(), two.law_tensors()
    assert tensors[0].keys() == tensors[1].keys() and len(tensors[0]) > 1
    assert all(torch.equal(tensors[1][name], value) for name, value in tensors[0].items())
    for a, b in zip(first, second, strict=True):
        assert a == b


def test_refitting_keeps_the_law_or_falls_back_on_the_gaussian_one():
    rng = np.random.default_rng(7)
    kappa = two_values(rng, HELD + 200)
    model, _ = chosen(kappa, "latent", 8)
    law = model.law
    other = model_of(two_values(rng, 300), 8)
    refit(other, law, functions_of(two_values(rng, 300)))
    assert other.config.law == "latent" and other.law is not law
    refit(other, law, functions_of(gaussian_fields(rng, 40, kernel(0.3))))  # too few
    assert other.config.law == "gaussian" == other.law.name
    refit(other, other.law, functions_of(kappa))
    assert other.law.name == "gaussian"


def fitted(kappa: np.ndarray, law: str = "auto", **more: object) -> uqsonet.Emulator:
    return uqsonet.fit(runs_of(kappa), sensors=[3, 6], bar=False, law=law, **more)  # type: ignore[arg-type]


def limit(model: uqsonet.Emulator) -> str:
    """Return what the card says about the law."""
    return next((text for text in model.card["limits"] if "not Gaussian" in text), "")


@pytest.fixture(scope="module")
def binary(quick_fits: None) -> uqsonet.Emulator:
    return fitted(two_values(np.random.default_rng(1), 300))


@pytest.fixture(scope="module")
def mixed(quick_fits: None) -> uqsonet.Emulator:
    return fitted(two_fields(np.random.default_rng(2), 1000))


def test_two_valued_inputs_are_taken_to_be_classes(binary):
    recipe = binary.card["recipe"]
    assert recipe["law"] == "latent" == binary.operator.config.law  # type: ignore[union-attr]
    rows = {row["law"]: row for row in recipe["laws"]}
    assert {"gaussian", "mixture", "latent"} <= set(rows)
    assert [law for law, row in rows.items() if row["chosen"]] == ["latent"]
    gain = [rows["gaussian"][f"crps_{m}"] / rows["latent"][f"crps_{m}"] - 1 for m in (3, 6)]
    words = f"takes the law 'latent'; the CRPS of held-out runs would be {50 * sum(gain):.1f}"
    assert words in (limit(binary))
    assert "law latent" in str(binary) and "Kolmogorov distance" in str(binary)


def test_a_law_that_was_asked_for_is_named_without_a_comparison():
    classes = two_values(np.random.default_rng(1), 200)
    text = limit(fitted(classes, "gaussian"))
    assert "The model takes them to be: the shape of its plain bands may be wrong" in text
    assert "no other law" not in text
    assert limit(fitted(classes, "mixture")).endswith("The model takes the law 'mixture'.")
    # Whatever the inputs are like.
    model = fitted(gaussian_fields(np.random.default_rng(1), 60, kernel(0.3)), "mixture")
    assert "The model takes the law 'mixture'." in model.card["limits"]


def test_a_law_that_wins_by_the_range_of_its_fields_says_so():
    """Its CRPS may then be the higher one: no gain below zero is promised."""
    card = {
        "recipe": {
            "law": "latent",
            "laws": [
                {"law": "gaussian", "crps_3": 0.99, "outside": 0.8, "chosen": False},
                {"law": "latent", "crps_3": 1.0, "outside": 0.0, "chosen": True},
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
def test_new_inputs_are_hardly_ever_called_improbable(mixed, count, noise):
    """A warning stands for one set in 10,000, and a law from 800 inputs is not exact."""
    assert alarms(mixed, two_fields(np.random.default_rng(4), 100), count, noise) <= 2


def test_a_field_of_neither_kind_is_improbable(mixed):
    assert mixed.card["recipe"]["law"] == "mixture"
    kappa = two_fields(np.random.default_rng(6), 20)
    kappa[:, ::2] += 1.5  # within the range of values, but no field of this kind is so rough
    kappa[:, 1::2] -= 1.5
    kappa = kappa.clip(-2, 2)
    assert alarms(mixed, kappa, 6, 0.05) >= 19
    posterior = pytest.warns(uqsonet.ObservationWarning, match=r"law of the input \('mixture'\)")
    with posterior:
        mixed.condition(SMALL.points()[[3, 4, 5, 6]], [1.5, -1.5, 1.5, -1.5])
