"""Averages by hand, intervals that cover, and files of scores that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.report.conftest import make_config, make_scores, write_scores
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES
from uqsonet_study.report.summary import COLUMNS, RESAMPLES, estimate, skill
from uqsonet_study.report.summary import summarise as summarise_cases

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 8))
SCORES = SHAPES.flatmap(lambda s: arrays(float, s, elements=st.floats(0.01, 1)))
HEAD = "method,trial,evaluation,sensors,set,metric,value\n"


def summarise(files: list[Path], **changes: object) -> pd.DataFrame:
    """Summarise files of the one case of a small configuration."""
    return summarise_cases({"e_1": files}, make_config(**changes))


def hand_config(trials: int = 2, sets: int = 2) -> dict[str, object]:
    """What `by_hand` and others say they are scores of."""
    experiment = {"methods": ["net"], "sensors": {"counts": [3]}, "evaluations": ["paper"]}
    return {"experiment": experiment | {"trials": trials, "sets": {"paper": sets}}}


def pick(table: pd.DataFrame, method: str, metric: str) -> pd.Series:
    found = table[(table["method"] == method) & (table["metric"] == metric)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def by_hand(tmp_path: Path) -> list[Path]:
    """Two trials on two sets, with round numbers."""
    lines = {
        "a": "net,0,paper,3,0,err_mean,0.1\nnet,0,paper,3,1,err_mean,0.3\n",
        "b": "net,1,paper,3,1,err_mean,0.6\nnet,1,paper,3,0,err_mean,0.2\n",
        "c": "".join(
            f"{method},0,paper,3,{s},{metric},{value}\n"
            for method in BASELINES
            for metric in ("err_mean", "err_std")
            for s, value in enumerate((0.5, 1.1))
        ),
    }
    files = [tmp_path / f"{name}.csv" for name in lines]
    for path, text in zip(files, lines.values(), strict=True):
        path.write_text(HEAD + text)
    return files


def test_averages_by_hand(by_hand: list[Path]) -> None:
    table = summarise(by_hand, **hand_config())
    assert list(table.columns) == COLUMNS
    error = pick(table, "net", "err_mean")
    assert error["value"] == pytest.approx(0.3)  # mean of 0.2 and 0.4
    assert error["pm"] == pytest.approx(0.2 / np.sqrt(2))
    assert (error["trials"], error["sets"]) == (2, 2)
    assert 0.1 <= error["low"] < 0.3 < error["high"] <= 0.6
    # 1 - 0.3 / 0.8, a ratio of means and no mean of ratios.
    found = pick(table, "net", "skill_mean")
    assert found["value"] == pytest.approx(1 - 0.3 / 0.8)
    assert found["pm"] == pytest.approx(0.2 / np.sqrt(2) / 0.8)
    assert np.isnan(pick(table, "sensor_free", "err_std")["pm"])  # one trial has no spread


def test_gains_are_over_cokriging_on_the_same_sets(tmp_path: Path) -> None:
    """Every set's score is 0.8 of cokriging's, so there is no doubt about a gain of 0.2."""
    path, values = tmp_path / "scores.csv", (0.5, 1.0, 4.0)
    rows = [
        f"{method},0,paper,3,{s},{metric},{factor * value if metric == 'crps' else 1}\n"
        for method, factor in zip(("net", *BASELINES), (0.8, 2.0, 1.0, 0.9), strict=True)
        for metric in ("err_mean", "err_std", "crps")
        for s, value in enumerate(values)
    ]
    path.write_text(HEAD + "".join(rows))
    table = summarise([path], **hand_config(trials=1, sets=3))
    for method, gained in (("net", 0.2), ("regression", 0.1)):
        gain = pick(table, method, "gain_crps")
        assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((gained,) * 3)
    assert (table["metric"] == "gain_crps").sum() == 2
    assert not (table["metric"] == "gain_energy").any()


def test_files_in_any_order_give_the_same_table(tmp_path: Path) -> None:
    files = write_scores(make_scores(), tmp_path)
    table = summarise(files)
    pd.testing.assert_frame_equal(table, summarise(files[::-1]))
    # The baseline has no skill over itself, and VIDON predicts no spread.
    assert not ((table["method"] == "sensor_free") & table["metric"].str.startswith("skill")).any()
    assert "skill_std" not in set(table.loc[table["method"] == "vidon", "metric"])


def test_skill_is_paired() -> None:
    """An error proportional to the baseline's, set by set, has a skill without uncertainty."""
    baseline = np.random.default_rng(1).uniform(0.1, 1, (1, 20))
    of, over = estimate(0.25 * baseline), estimate(baseline)
    row = skill(of, over).row()
    assert row["low"] == pytest.approx(0.75) and row["high"] == pytest.approx(0.75)
    assert of.row()["high"] - of.row()["low"] > 0.01


@pytest.mark.parametrize(("trials", "sets"), [(1, 40), (40, 40)])
def test_intervals_cover(trials: int, sets: int) -> None:
    """Of 300 intervals, about 95 % hold the true mean: chance of sets and of trials together."""
    generator = np.random.default_rng(7)
    of_trial = generator.standard_normal((300, trials, 1)) if trials > 1 else 0.0
    of_set = generator.standard_normal((300, 1, sets))
    rows = [estimate(scores).row() for scores in 3.0 + of_trial + of_set]
    covered = np.mean([row["low"] <= 3.0 <= row["high"] for row in rows])
    assert 0.90 <= covered <= 0.98


@settings(max_examples=25)
@given(SCORES, st.floats(0.1, 10))
def test_estimates_stay_within_the_scores_and_skill_has_no_unit(
    scores: np.ndarray, factor: float
) -> None:
    found = estimate(scores)
    assert found.copies.shape == (RESAMPLES,)
    row, slack = found.row(), 1e-9
    assert row["value"] == pytest.approx(scores.mean())
    assert scores.min() - slack <= row["low"] <= row["high"] <= scores.max() + slack
    over = np.full((1, scores.shape[1]), 0.7)
    one = skill(found, estimate(over)).row()
    other = skill(estimate(factor * scores), estimate(factor * over)).row()
    for key in ("value", "low", "high"):
        assert one[key] == pytest.approx(other[key])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        *(("0.2", bad, r"b\.csv: row 2 .*err_mean of method 'net'") for bad in ("nan", "", "many")),
        ("3,0,err", "3,1,err", "given twice"),
        ("3,0,err", "3,5,err", "sets: unknown 5"),
        ("net", "sensor_free", "methods|trials|twice"),
        (HEAD, "experiment,method\n", r"b\.csv: lacks columns"),
    ],
)
def test_what_cannot_be_averaged_is_refused(
    by_hand: list[Path], old: str, new: str, message: str
) -> None:
    by_hand[1].write_text(by_hand[1].read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        summarise(by_hand, **hand_config())


def test_files_that_are_absent_or_empty_are_refused(by_hand: list[Path]) -> None:
    with pytest.raises(DataError, match="sensor_free"):  # skill needs the baseline
        summarise(by_hand[:2], **hand_config())
    with pytest.raises(DataError, match=r"nothing\.csv"):
        summarise([by_hand[0].with_name("nothing.csv")])
    by_hand[0].write_text("")
    with pytest.raises(DataError, match=r"a\.csv"):
        summarise(by_hand)
