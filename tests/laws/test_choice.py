"""`auto` takes the simplest law that inputs do not contradict, and says what it tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import uqsonet
from tests.laws.conftest import (
    LAWS,
    bounded_fields,
    functions_of,
    gaussian_fields,
    kernel,
    model_of,
    runs_of,
    two_values,
)
from uqsonet import fitting
from uqsonet.errors import ConfigError, ObservationError
from uqsonet.laws import NAMES, choice
from uqsonet.laws.choice import equip, refit
from uqsonet.laws.thresholded import ThresholdedPosterior
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel

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
    rows = equip(model, law, training, held, noise_std=noise, layouts=layouts, seed=seed)
    return model, rows


def by_law(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["law"]: row for row in rows}


@pytest.mark.parametrize("name", LAWS)
def test_auto_finds_the_law(name: str) -> None:
    kappa = LAWS[name](np.random.default_rng(1), HELD + SIZE)
    model, rows = chosen(kappa)
    taken = [row["law"] for row in rows if row["chosen"]]
    assert taken == [name]
    assert model.config.law == name and (model.law is None) == (name == "gaussian")
    found = by_law(rows)
    if name == "gaussian":  # nothing else is fitted
        assert list(found) == ["gaussian"]
        assert found[name]["distance"] <= found[name]["chance"]
        return
    # Only the simplest laws are left out before the one that is chosen, and for a reason.
    order = [NAMES.index(law) for law in found]
    assert order == sorted(order) and found["gaussian"]["seconds"] == 0
    for law, row in found.items():
        if NAMES.index(law) < NAMES.index(name):
            worse = row["above_best"] > choice.ERRORS * row["standard_error"]
            assert worse or row["outside"] > choice.OUTSIDE
    for m in COUNTS:
        assert found[name][f"crps_{m}"] < found["gaussian"][f"crps_{m}"]


def test_blocks_are_no_cut_gaussian_field() -> None:
    """Exactly one block, of one width, anywhere on a periodic domain.

    One sensor on the block tells where there is none, which no cut Gaussian field knows: analogues
    are better by more than a tenth.
    """
    rng = np.random.default_rng(2)
    away = (np.linspace(0, 1, 24) - rng.random((HELD + SIZE, 1)) + 0.5) % 1 - 0.5
    _, rows = chosen(np.where(np.abs(away) < 0.15, 0.8, -0.8))
    found = by_law(rows)
    assert not found["thresholded"]["chosen"] and found["thresholded"]["above_best"] > 0.1
    assert found["analogue"]["chosen"] and found["gaussian"]["above_best"] > 0.2


def test_a_law_whose_fields_leave_the_range_is_not_taken() -> None:
    """Where sensors tell nothing more, the CRPS of the mean is near, but the fields are not.

    The coefficients of forty inputs prove nothing, either, but their values do.
    """
    kappa = two_values(np.random.default_rng(3), HELD + 40)
    _, rows = chosen(kappa, noise=3.0)
    found = by_law(rows)
    assert found["gaussian"]["distance"] <= found["gaussian"]["chance"]
    assert found["gaussian"]["outside"] > 0.5
    assert found["thresholded"]["outside"] == 0.0
    assert not found["gaussian"]["chosen"] and not found["mixture"]["chosen"]


def test_unknown_laws_are_refused_and_others_say_why_they_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kappa = gaussian_fields(np.random.default_rng(4), HELD + 400, kernel(0.3))
    with pytest.raises(ConfigError, match=r"'no' is unknown.*auto, gaussian, mixture") as caught:
        chosen(kappa, "no", 4)
    for name in NAMES:
        assert name in str(caught.value)

    def forbidden(*_: object) -> None:
        raise AssertionError("training has begun")

    for law, reason in (("thresholded", "more than a few values"), ("bounded", "their range")):
        match = rf"law '{law}' does not fit these inputs: .*{reason}"
        with pytest.raises(ConfigError, match=match):
            chosen(kappa, law, 4)
    monkeypatch.setattr(fitting, "_choose_linear", forbidden)
    for wrong in ("no", "Mixture", None, ["mixture"]):
        with pytest.raises(ConfigError, match="unknown"):
            uqsonet.fit(runs_of(kappa), 0, bar=False, law=wrong)  # type: ignore[arg-type]


def test_a_law_that_has_no_answer_to_held_out_pairs_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ObservationError("no sample")

    monkeypatch.setattr(ThresholdedPosterior, "sample", refuse)
    kappa = two_values(np.random.default_rng(11), HELD + 200)
    model, rows = chosen(kappa, modes=8)
    assert "thresholded" not in by_law(rows) and {"gaussian", "analogue"} <= set(by_law(rows))
    assert model.config.law in by_law(rows)
    with pytest.raises(ConfigError, match="'thresholded' does not fit these inputs"):
        chosen(kappa, "thresholded", 8)


@pytest.mark.parametrize("law", ["mixture", "bounded"])
def test_the_same_seed_gives_the_same_law(law: str) -> None:
    kappa = bounded_fields(np.random.default_rng(6), HELD + 150)
    (one, first), (two, second) = (chosen(kappa, law, 6, seed=3) for _ in range(2))
    tensors = one.law_tensors(), two.law_tensors()
    assert tensors[0].keys() == tensors[1].keys() and len(tensors[0]) > 1
    assert all(torch.equal(tensors[1][name], value) for name, value in tensors[0].items())
    for a, b in zip(first, second, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_refitting_keeps_the_law_or_falls_back_on_the_gaussian_one() -> None:
    rng = np.random.default_rng(7)
    kappa = two_values(rng, HELD + 200)
    model, _ = chosen(kappa, "thresholded", 8)
    law = model.law
    other = model_of(two_values(rng, 300), 8)
    refit(other, law, functions_of(two_values(rng, 300)))
    assert other.config.law == "thresholded" and other.law is not law
    refit(other, law, functions_of(gaussian_fields(rng, 300, kernel(0.3))))
    assert other.config.law == "gaussian" and other.law is None
    refit(other, None, functions_of(kappa))
    assert other.law is None
    model, _ = chosen(kappa, "analogue", 8)
    refit(other, model.law, functions_of(kappa[:100]))
    assert other.config.law == "analogue"
    assert len(other.law.fields) == 100 and other.law.share == model.law.share  # type: ignore[union-attr]
