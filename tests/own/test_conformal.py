"""Conformal bands hold what they promise where the model's law is wrong, and plain ones do not.

The input is heavy-tailed and the operator is nonlinear, so a linear Gaussian model cannot be right.
Data and layout are fixed by seeds; the calibration runs and 300 fresh ones are exchangeable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uqsonet
from tests.own.conftest import quiet, waves
from uqsonet import FieldPosterior, Runs
from uqsonet.emulator.calibration import (
    function_factor,
    pointwise_factor,
    ratios,
    require_runs,
)
from uqsonet.emulator.field_law import FieldLaw
from uqsonet.errors import ObservationError

LINE = np.linspace(0, 1, 31)
FRESH = 300
PLACES = [3, 12, 24]


def student(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return fields with Student-t coefficients, one degree of freedom, one scale for each run."""
    scale = np.sqrt(1 / rng.chisquare(1, (size, 1)))
    return (rng.standard_normal((size, 6)) * scale) @ waves(LINE[:, None], 6, 1).T


def waves_of(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return Gaussian fields."""
    return rng.standard_normal((size, 6)) @ waves(LINE[:, None], 6, 1).T


def two_valued(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return fields of 1 and 4 that jump at one random place."""
    return np.where(LINE < rng.random((size, 1)), 1.0, 4.0)


def operator(a: np.ndarray) -> np.ndarray:
    """Return a nonlinear function of the whole input."""
    smooth = np.cumsum(a, axis=1) / a.shape[1]
    return smooth + 0.5 * np.abs(a - a.mean(1, keepdims=True)) * LINE


@pytest.fixture(scope="module", params=[student, two_valued])
def answered(request: pytest.FixtureRequest) -> tuple[FieldPosterior, np.ndarray]:
    """The law given three sensors of 300 fresh runs, and what is true of them."""
    draw = request.param
    a = draw(np.random.default_rng(1), 1400)
    runs = Runs({"a": a}, {"u": operator(a)})
    # The Gaussian law is wrong for some of these inputs on purpose.
    model = uqsonet.fit(runs, sensors=[3], bar=False, law="gaussian")
    assert len(model.calibration) == 200
    fresh = draw(np.random.default_rng(2), FRESH)
    places = np.broadcast_to(LINE[PLACES, None], (FRESH, 3, 1))
    return quiet(model, places, fresh[:, PLACES]), operator(fresh)


def held(band: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> np.ndarray:
    """Return which points (FRESH, M) a band holds; those where it has no width count as held."""
    lower, upper = band
    return ((truth >= lower) & (truth <= upper)) | (upper - lower < 1e-9)


def deviation(shares: np.ndarray, calibration: float = 200) -> float:
    """Return the standard error of a mean coverage, that of the calibration runs included."""
    return float(shares.std() * math.sqrt(1 / len(shares) + 1 / calibration))


def test_conformal_bands_hold_their_level_and_plain_ones_do_not(
    answered: tuple[FieldPosterior, np.ndarray],
) -> None:
    posterior, truth = answered
    for level in (0.8, 0.9):
        inside = held(posterior.band(level), truth)
        shares = inside.mean(1)
        assert abs(shares.mean() - level) < 3 * deviation(shares)
    plain = held(posterior.band(0.8, kind="plain"), truth).mean(1)
    assert abs(plain.mean() - 0.8) > 3 * deviation(plain, math.inf)
    whole = held(posterior.band(0.9, whole=True), truth).all(1)
    assert whole.mean() > 0.9 - 3 * deviation(whole)
    points = inside.all(1)
    assert points.mean() < 0.9 - 3 * deviation(points), "bands of points would do"


RATIOS = st.integers(30, 60).flatmap(
    lambda n: st.lists(
        st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=n, max_size=n
    ).map(lambda rows: torch.tensor(rows, dtype=torch.float64))
)
LEVELS = st.floats(0.05, 0.95)


THIRDS = (torch.arange(117) < 45).double().reshape(3, 39).T
"""Of 39 runs with three points each, 15 runs' worth of points lies above zero."""


@settings(max_examples=40)
@example(found=THIRDS, level=0.6)  # just small enough: (15 + 1) / 40 = 1 - 0.6
@given(found=RATIOS, level=LEVELS)
def test_point_factor_is_the_smallest_whose_risk_is_small_enough(
    found: torch.Tensor, level: float
) -> None:
    n, chosen = len(found), pointwise_factor(found, level)

    def fits(factor: float) -> bool:
        outside = (found > factor).double().mean(1).sum()
        return float(outside + 1) / (n + 1) <= 1 - level + 1e-9

    smaller = sorted({float(v) for v in found.flatten() if v < chosen})
    assert fits(chosen)
    assert not smaller or not fits(smaller[-1])


@settings(max_examples=25)
@given(found=RATIOS, level=LEVELS)
def test_factors_leave_one_of_any_n_plus_1_out_often_enough(
    found: torch.Tensor, level: float
) -> None:
    """By brute force: each of n + 1 runs takes its turn as the new one."""
    whole, points = 0.0, 0.0
    for new in range(len(found)):
        others = torch.cat([found[:new], found[new + 1 :]])
        whole += bool(found[new].amax() <= function_factor(others, level))
        points += float((found[new] <= pointwise_factor(others, level)).double().mean())
    assert min(whole, points) >= level * len(found) - 1e-9


@pytest.mark.parametrize("factor", [pointwise_factor, function_factor])
@pytest.mark.parametrize(("level", "needed"), [(0.9, 9), (0.99, 99), (0.5, 1)])
def test_too_few_runs_are_refused_with_their_number(factor, level: float, needed: int) -> None:
    enough = torch.rand(needed, 3, generator=torch.Generator().manual_seed(1))
    assert factor(enough, level) == pytest.approx(float(enough.max()))
    words = rf"needs {needed} calibration runs, .* has {needed - 1};"
    with pytest.raises(ObservationError, match=words):
        require_runs(needed - 1, level)


def test_points_without_width_do_not_count() -> None:
    """A boundary condition: the band has no width there, and the truth differs by rounding."""
    zero, one = torch.zeros(20, 2).double(), torch.ones(20, 2).double()
    upper, truth = one.clone(), 0.5 * one
    upper[:, 1], truth[:, 1] = 0.0, 1e-15
    found = ratios(zero, -upper, upper, truth)
    assert found[:, 1].isnan().all()
    assert pointwise_factor(found, 0.9) == function_factor(found, 0.9) == 0.5


def test_a_validation_draws_once_and_counts_the_bands_that_users_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = waves_of(np.random.default_rng(4), 150)
    model = uqsonet.fit(Runs({"a": a}, {"u": operator(a)}), sensors=[3], bar=False)
    fresh = waves_of(np.random.default_rng(5), 20)
    asked = []
    plain = FieldLaw.quantiles

    def counted(law: FieldLaw, *rest: Any) -> torch.Tensor:
        asked.append(len(law.sets))
        return plain(law, *rest)

    monkeypatch.setattr(FieldLaw, "quantiles", counted)
    places = LINE[PLACES, None]
    score = model.validate(Runs({"a": fresh}, {"u": operator(fresh)}), places).scores[0]
    parts = len(list(model.calibration))
    assert len(asked) == (1 + parts) * 3  # of runs and of each part that calibrates; ours and two
    answer = model.condition(np.broadcast_to(places, (20, 3, 1)), fresh[:, PLACES])
    for level in (0.5, 0.8, 0.9):
        inside = held(answer.band(level), operator(fresh))
        assert score.conformal is not None
        assert score.conformal[level] == pytest.approx(inside.mean(), abs=1e-3)
