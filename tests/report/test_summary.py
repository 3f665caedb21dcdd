"""Averages of scores: summaries with intervals, scores of laws, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.report.conftest import COUNTS, SETS, make_config, make_scores, write_scores
from uqsonet.errors import DataError
from uqsonet_study.beyond.scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.beyond.scores import law_scores
from uqsonet_study.config import BASELINES, Config, load_config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.summary import COLUMNS, RESAMPLES, estimate, skill, summarise

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 8))
SCORES = SHAPES.flatmap(lambda s: arrays(float, s, elements=st.floats(0.01, 1)))
HEAD = "method,trial,evaluation,sensors,set,metric,value\n"


def summary_of_net(files: list[Path], trials: int = 2, sets: int = 2) -> pd.DataFrame:
    """Summarise files of method `net` with three sensors."""
    experiment = {"methods": ["net"], "sensors": {"counts": [3]}, "evaluations": ["paper"]}
    changes = experiment | {"trials": trials, "sets": {"paper": sets}}
    return summarise({"e_1": files}, make_config(experiment=changes))


def scores_of(method: str, metric: str, *values: float, trial: int = 0) -> str:
    """Return the lines of a trial, a set each."""
    rows = (f"{method},{trial},paper,3,{s},{metric},{value}\n" for s, value in enumerate(values))
    return "".join(rows)


def pick(table: pd.DataFrame, method: str, metric: str) -> pd.Series:
    found = table[(table["method"] == method) & (table["metric"] == metric)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.fixture
def by_hand(tmp_path: Path) -> list[Path]:
    """Two trials on two sets, with round numbers."""
    baselines = [scores_of(b, e, 0.5, 1.1) for b in BASELINES for e in ("err_mean", "err_std")]
    lines = {
        "a": scores_of("net", "err_mean", 0.1, 0.3),
        "b": scores_of("net", "err_mean", 0.2, 0.6, trial=1),
        "c": "".join(baselines),
    }
    files = [tmp_path / f"{name}.csv" for name in lines]
    for path, text in zip(files, lines.values(), strict=True):
        path.write_text(HEAD + text)
    return files


def test_averages_by_hand(by_hand: list[Path]) -> None:
    table = summary_of_net(by_hand)
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
    path, text = tmp_path / "scores.csv", HEAD
    factors = {"net": 0.8, "sensor_free": 2.0, "cokriging": 1.0, "regression": 0.9}
    for method, factor in factors.items():
        text += scores_of(method, "crps", 0.5 * factor, 1.0 * factor, 4.0 * factor)
        text += scores_of(method, "err_mean", 1, 1, 1) + scores_of(method, "err_std", 1, 1, 1)
    path.write_text(text)
    table = summary_of_net([path], trials=1, sets=3)
    for method, gained in (("net", 0.2), ("regression", 0.1)):
        gain = pick(table, method, "gain_crps")
        assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((gained,) * 3)
    assert table["metric"].str.startswith("gain_").sum() == 2


def test_files_in_any_order_give_the_same_table(tmp_path: Path, config: Config) -> None:
    files = write_scores(make_scores(), tmp_path)
    table = summarise({"e_1": files}, config)
    pd.testing.assert_frame_equal(table, summarise({"e_1": files[::-1]}, config))
    # The baseline has no skill over itself, and VIDON predicts no spread.
    assert not ((table["method"] == "sensor_free") & table["metric"].str.startswith("skill")).any()
    assert "skill_std" not in set(table.loc[table["method"] == "vidon", "metric"])


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
def test_means_lie_within_and_skill_has_no_unit(scores: np.ndarray, factor: float) -> None:
    found, over = estimate(scores), np.full((1, scores.shape[1]), 0.7)
    row, slack = found.row(), 1e-9
    assert row["value"] == pytest.approx(scores.mean()) and len(found.copies) == RESAMPLES
    assert scores.min() - slack <= row["low"] <= row["high"] <= scores.max() + slack
    one = skill(found, estimate(over)).row()
    other = skill(estimate(factor * scores), estimate(factor * over)).row()
    assert one == pytest.approx(other, nan_ok=True)


def test_what_cannot_be_averaged_is_refused(by_hand: list[Path]) -> None:
    sound = by_hand[1].read_text()
    for old, new, message in (
        *(("0.2", bad, r"b\.csv: .*row 1: value is no finite number") for bad in ("nan", "", "x")),
        ("3,0,err", "3,1,err", "given twice"),
        ("3,0,err", "3,5,err", "3 scores of err_mean of 'net', expected 4"),
        (HEAD, "experiment,method\n", r"b\.csv: .*lacks trial"),
        (sound, "", r"b\.csv"),
    ):
        by_hand[1].write_text(sound.replace(old, new))
        with pytest.raises(DataError, match=message):
            summary_of_net(by_hand)
    by_hand[1].write_text(sound)
    with pytest.raises(DataError, match="sensor_free"):  # skill needs the baseline
        summary_of_net(by_hand[:2])
    with pytest.raises(DataError, match=r"nothing\.csv"):
        summary_of_net([by_hand[0].with_name("nothing.csv")])


LAWS = {**{name: name for name in BASELINES}, "gaussian": "uqsonet", "auto": "chosen"}
"""Law -> method, where `chosen` is law `auto` of the operator of `uqsonet`."""


@pytest.fixture
def of_laws() -> Config:
    raw = make_config(
        experiment={"methods": ["uqsonet", "chosen"]},
        tables={"any-law": {"layout": "laws", "experiments": ["e_1"]}},
    ).model_dump(mode="json")
    for problems in raw["recipes"].values():
        problems["diffusion1d"]["chosen"] = {"law_of": "uqsonet", "law": "auto"}
    return load_config(raw)


def test_means_medians_and_floors_of_laws(of_laws: Config, tmp_path: Path) -> None:
    """W1 is there, and one set is so bad that means are not medians."""
    scores = make_scores(("uqsonet", "chosen"), seed=3)
    w1 = scores[scores["metric"] == "err_mean"].assign(metric="w1")
    scores.loc[(scores["metric"] == "err_std") & (scores["set"] == 0), "value"] *= 100
    scores = pd.concat([scores, w1.assign(value=2 * w1["value"])], ignore_index=True)
    found = law_scores({"e_1": write_scores(scores, tmp_path)}, of_laws)
    assert list(found.columns) == LAW_COLUMNS
    assert list(found["law"]) == [law for law in LAWS for _ in COUNTS]
    precise = scores[scores["evaluation"] == "precise"]
    sets = precise.groupby(["method", "sensors", "metric", "set"])["value"].mean()
    for row in found.to_dict("records"):
        own, floor = sets[LAWS[row["law"]], row["sensors"]], sets["reference", row["sensors"]]
        for part, metric in (("mean", "err_mean"), ("std", "err_std"), ("w1", "w1")):
            assert len(own[metric]) == SETS["precise"]
            assert row[metric] == pytest.approx(100 * own[metric].mean())
            assert row[f"median_{part}"] == pytest.approx(100 * own[metric].median())
            assert row[f"floor_{part}"] == pytest.approx(100 * floor[metric].mean())
        assert row["median_std"] < row["err_std"] / 5
        assert row["crps"] == pytest.approx(own["crps"].mean())
        # The reference's mass in a band is free of the chance of single truths.
        assert row["cover_90"] == pytest.approx(100 * own["within_90"].mean())
    # Without quantiles truths are counted, and W1 is absent.
    some = scores[~scores["metric"].str.startswith(("w1", "within"))]
    found = law_scores({"e_1": write_scores(some, tmp_path)}, of_laws)
    assert found[["w1", "median_w1", "floor_w1"]].isna().to_numpy().all()
    counted = 100 * sets["chosen", 3, "coverage_50"].mean()
    assert found.query("law == 'auto' and sensors == 3")["cover_50"].item() == pytest.approx(
        counted
    )
    fewer = write_scores(scores[scores["method"] != "chosen"], tmp_path / "fewer")
    with pytest.raises(DataError, match="0 scores of err_mean of 'chosen'"):
        law_scores({"e_1": fewer}, of_laws)


def test_the_plan_makes_the_scores_of_the_shown_laws(of_laws: Config) -> None:
    plan = Plan(of_laws)
    assert plan.table_files("any-law") == {"scores": ["results/scores.csv"]}
    assert plan.of_laws() == ["e_1"]
    assert any("/chosen." in file for file in plan.score_files(["e_1"])["e_1"])
