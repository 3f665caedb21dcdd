"""Averages of scores: summaries with intervals, scores of laws, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.report.conftest import COUNTS, SETS, make_scores, make_study, write_scores
from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.beyond.scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.beyond.scores import law_scores
from uqsonet_study.cases import Study
from uqsonet_study.report.summary import COLUMNS, RESAMPLES, estimate, skill, summarise

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 8))
SCORES = SHAPES.flatmap(lambda s: arrays(float, s, elements=st.floats(0.01, 1)))
HEAD = "method,trial,evaluation,sensors,set,metric,value\n"


def one_method(root: Path, trials: int = 2, sets: int = 2) -> Study:
    """A study of UQ-SONet with three sensors."""
    changes = {"methods": ["uqsonet"], "layout": "m3", "evaluations": ["paper"], "trials": trials}
    return make_study(root, experiment=changes, sets={"paper": sets})


def write(study: Study, *scores: str) -> list[Path]:
    """Write the lines of the baselines and those of UQ-SONet; returns both files."""
    paths = study.paths(row.scores for row in study.answers_of("e_1"))
    for path, text in zip(paths, scores, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + text)
    return paths


def scores_of(metric: str, *values: float, method: str = "uqsonet", trial: int = 0) -> str:
    """Return the lines of a trial, a set each."""
    rows = (f"{method},{trial},paper,3,{s},{metric},{value}\n" for s, value in enumerate(values))
    return "".join(rows)


def pick(table: pd.DataFrame, method: str, metric: str) -> pd.Series:
    found = table[(table["method"] == method) & (table["metric"] == metric)]
    assert len(found) == 1
    return found.iloc[0]


BY_HAND = (
    "".join(scores_of(e, 0.5, 1.1, method=b) for b in BASELINES for e in ("err_mean", "err_std")),
    scores_of("err_mean", 0.1, 0.3) + scores_of("err_mean", 0.2, 0.6, trial=1),
)
"""Two trials on two sets, with round numbers."""


def test_averages_by_hand(tmp_path: Path) -> None:
    study = one_method(tmp_path)
    write(study, *BY_HAND)
    table = summarise(study, "e_1")
    assert list(table.columns) == COLUMNS
    error = pick(table, "uqsonet", "err_mean")
    assert error["value"] == pytest.approx(0.3)  # mean of 0.2 and 0.4
    assert error["pm"] == pytest.approx(0.2 / np.sqrt(2))
    assert (error["trials"], error["sets"]) == (2, 2)
    assert 0.1 <= error["low"] < 0.3 < error["high"] <= 0.6
    # 1 - 0.3 / 0.8, a ratio of means and no mean of ratios.
    found = pick(table, "uqsonet", "skill_mean")
    assert found["value"] == pytest.approx(1 - 0.3 / 0.8)
    assert found["pm"] == pytest.approx(0.2 / np.sqrt(2) / 0.8)
    assert np.isnan(pick(table, "sensor_free", "err_std")["pm"])  # one trial has no spread


def test_gains_are_over_cokriging_on_the_same_sets(tmp_path: Path) -> None:
    """Every set's score is 0.8 of cokriging's, so there is no doubt about a gain of 0.2."""
    study, text = one_method(tmp_path, trials=1, sets=3), dict[str, str]()
    factors = {"uqsonet": 0.8, "sensor_free": 2.0, "cokriging": 1.0, "regression": 0.9}
    for method, factor in factors.items():
        text[method] = scores_of("crps", 0.5 * factor, factor, 4 * factor, method=method)
        text[method] += scores_of("err_mean", 1, 1, 1, method=method)
        text[method] += scores_of("err_std", 1, 1, 1, method=method)
    write(study, "".join(text[b] for b in BASELINES), text["uqsonet"])
    table = summarise(study, "e_1")
    for method, gained in (("uqsonet", 0.2), ("regression", 0.1)):
        gain = pick(table, method, "gain_crps")
        assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((gained,) * 3)
    assert table["metric"].str.startswith("gain_").sum() == 2


def test_no_skill_over_itself_and_none_without_the_score(study: Study) -> None:
    write_scores(study, make_scores(study))
    skills = summarise(study, "e_1").query("metric.str.startswith('skill')")
    assert "sensor_free" not in set(skills["method"])
    assert set(skills.loc[skills["method"] == "vidon", "metric"]) == {"skill_mean"}


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


def test_what_cannot_be_averaged_is_refused(tmp_path: Path) -> None:
    study = one_method(tmp_path)
    baselines, ours = write(study, *BY_HAND)
    sound = ours.read_text()
    for old, new, message in (
        *(("0.2", bad, "uqsonet.*row 3: value is no finite number") for bad in ("nan", "", "x")),
        ("uqsonet,1", "uqsonet,0", "given twice"),
        ("3,1,err_mean,0.6", "3,5,err_mean,0.6", "3 scores of err_mean of 'uqsonet', expected 4"),
        (HEAD, "experiment,method\n", r"uqsonet-N1234\.paper\.csv: .*lacks trial"),
        (sound, "", r"uqsonet-N1234\.paper\.csv"),
    ):
        ours.write_text(sound.replace(old, new))
        with pytest.raises(DataError, match=message):
            summarise(study, "e_1")
    ours.write_text(sound + "".join(scores_of("err_std", 1, 1, trial=k) for k in (0, 1)))
    spread = scores_of("err_std", 0.5, 1.1, method="sensor_free")
    baselines.write_text(baselines.read_text().replace(spread, ""))
    with pytest.raises(DataError, match="no err_std of 'sensor_free', over which skill"):
        summarise(study, "e_1")
    baselines.unlink()
    with pytest.raises(DataError, match=r"baselines-N1234\.paper\.csv"):
        summarise(study, "e_1")


def test_a_case_takes_its_own_trials_counts_and_sets_of_shared_scores(tmp_path: Path) -> None:
    """Another experiment wants more of the same answers, which stand in the same file."""
    study = one_method(tmp_path)
    write(study, *BY_HAND)
    alone = summarise(study, "e_1")
    places = "2,paper,3,0", "0,paper,4,0", "0,paper,3,7"
    more = "".join(f"uqsonet,{place},err_mean,9\n" for place in places)
    write(study, BY_HAND[0], BY_HAND[1] + more)
    pd.testing.assert_frame_equal(summarise(study, "e_1"), alone)


def test_means_medians_and_floors_of_laws(tmp_path: Path) -> None:
    """W1 is there, and one set is so bad that means are not medians."""
    study = make_study(
        tmp_path,
        experiment={"methods": ["uqsonet", "chosen"]},
        tables={"any-law": {"layout": "laws", "experiments": ["e_1"]}},
    )
    laws = {**{name: name for name in BASELINES}, "gaussian": "uqsonet", "auto": "chosen"}
    scores = make_scores(study)
    scores.loc[(scores["metric"] == "err_std") & (scores["set"] == 0), "value"] *= 100
    w1 = scores[scores["metric"] == "err_mean"].assign(metric="w1")
    scores = pd.concat([scores, w1.assign(value=2 * w1["value"])], ignore_index=True)
    write_scores(study, scores)
    found = law_scores(study)
    assert list(found.columns) == LAW_COLUMNS
    assert list(found["law"]) == [law for law in laws for _ in COUNTS]
    precise = scores[scores["evaluation"] == "precise"]
    sets = precise.groupby(["method", "sensors", "metric", "set"])["value"].mean()
    for row in found.to_dict("records"):
        own, floor = sets[laws[row["law"]], row["sensors"]], sets["reference", row["sensors"]]
        for part, metric in (("mean", "err_mean"), ("std", "err_std"), ("w1", "w1")):
            assert len(own[metric]) == SETS["precise"]
            assert row[metric] == pytest.approx(100 * own[metric].mean())
            assert row[f"median_{part}"] == pytest.approx(100 * own[metric].median())
            assert row[f"floor_{part}"] == pytest.approx(100 * floor[metric].mean())
        assert row["median_std"] < row["err_std"] / 5
        assert row["crps"] == pytest.approx(own["crps"].mean())
        # The reference's mass in a band is free of the chance of single truths.
        assert row["cover_90"] == pytest.approx(100 * own["within_90"].mean())
    # What no reference sample is there for stays empty.
    write_scores(study, scores[~scores["metric"].str.startswith(("w1", "within"))])
    empty = law_scores(study)[["w1", "median_w1", "floor_w1", "cover_50"]]
    assert empty.isna().to_numpy().all()
