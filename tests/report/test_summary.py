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


def summarise(files: list[Path], **changes: object) -> pd.DataFrame:
    """Summarise files of the one case of a small configuration."""
    return summarise_cases({"e_1": files}, make_config(**changes))


def hand_config(trials: int = 2, sets: int = 2) -> dict[str, object]:
    """What `by_hand` and others say they are scores of."""
    experiment = {"methods": ["net"], "sensors": {"counts": [3]}, "evaluations": ["paper"]}
    return {"experiment": experiment | {"trials": trials, "sets": {"paper": sets}}}


def pick(table: pd.DataFrame, **where: object) -> pd.Series:
    for key, value in where.items():
        table = table[table[key] == value]
    assert len(table) == 1
    return table.iloc[0]


def by_hand(folder: Path) -> list[Path]:
    """Two trials on two sets, with round numbers."""
    head = "method,trial,evaluation,sensors,set,metric,value\n"
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
    files = [folder / f"{name}.csv" for name in lines]
    for path, text in zip(files, lines.values(), strict=True):
        path.write_text(head + text)
    return files


def test_averages_by_hand(tmp_path: Path) -> None:
    table = summarise(by_hand(tmp_path), **hand_config())
    assert list(table.columns) == COLUMNS
    error = pick(table, method="net", metric="err_mean")
    assert error["value"] == pytest.approx(0.3)  # mean of 0.2 and 0.4
    assert error["pm"] == pytest.approx(0.2 / np.sqrt(2))
    assert (error["trials"], error["sets"]) == (2, 2)
    assert 0.1 <= error["low"] < 0.3 < error["high"] <= 0.6
    # 1 - 0.3 / 0.8, a ratio of means and no mean of ratios.
    found = pick(table, method="net", metric="skill_mean")
    assert found["value"] == pytest.approx(1 - 0.3 / 0.8)
    assert found["pm"] == pytest.approx(0.2 / np.sqrt(2) / 0.8)


def test_gains_are_over_cokriging_on_the_same_sets(tmp_path: Path) -> None:
    """Every set's score is 0.8 of cokriging's, so there is no doubt about a gain of 0.2."""
    path, values = tmp_path / "scores.csv", (0.5, 1.0, 4.0)
    rows = [
        f"{method},0,paper,3,{s},{metric},{factor * value if metric == 'crps' else 1}\n"
        for method, factor in zip(("net", *BASELINES), (0.8, 2.0, 1.0, 0.9), strict=True)
        for metric in ("err_mean", "err_std", "crps")
        for s, value in enumerate(values)
    ]
    path.write_text("method,trial,evaluation,sensors,set,metric,value\n" + "".join(rows))
    table = summarise([path], **hand_config(trials=1, sets=3))
    for method, gained in (("net", 0.2), ("regression", 0.1)):
        gain = pick(table, method=method, metric="gain_crps")
        assert (gain["value"], gain["low"], gain["high"]) == pytest.approx((gained,) * 3)
    assert (table["metric"] == "gain_crps").sum() == 2
    assert not (table["metric"] == "gain_energy").any()


def test_one_trial_has_no_spread(tmp_path: Path) -> None:
    table = summarise(by_hand(tmp_path), **hand_config())
    assert np.isnan(pick(table, method="sensor_free", metric="err_std")["pm"])


def test_files_in_any_order_give_the_same_table(tmp_path: Path) -> None:
    files = write_scores(make_scores(), tmp_path)
    pd.testing.assert_frame_equal(summarise(files), summarise(files[::-1]))


def test_skill_is_paired() -> None:
    """An error proportional to the targets's, set by set, has a skill without uncertainty."""
    targets = np.random.default_rng(1).uniform(0.1, 1, (1, 20))
    of, over = estimate(0.25 * targets), estimate(targets)
    row = skill(of, over).row()
    assert row["low"] == pytest.approx(0.75) and row["high"] == pytest.approx(0.75)
    assert of.row()["high"] - of.row()["low"] > 0.01


def test_no_skill_for_the_targets_itself(tmp_path: Path) -> None:
    table = summarise(write_scores(make_scores(), tmp_path))
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


@settings(max_examples=50)
@given(SCORES)
def test_estimates_stay_within_the_scores(scores: np.ndarray) -> None:
    found = estimate(scores)
    assert found.copies.shape == (RESAMPLES,)
    row = found.row()
    assert row["value"] == pytest.approx(scores.mean())
    slack = 1e-9
    assert scores.min() - slack <= row["low"] <= row["high"] <= scores.max() + slack


@settings(max_examples=25)
@given(SCORES, st.floats(0.1, 10))
def test_skill_has_no_unit(scores: np.ndarray, factor: float) -> None:
    over = np.full((1, scores.shape[1]), 0.7)
    one = skill(estimate(scores), estimate(over)).row()
    other = skill(estimate(factor * scores), estimate(factor * over)).row()
    assert [one[k] for k in ("value", "low", "high")] == pytest.approx(
        [other[k] for k in ("value", "low", "high")]
    )


@pytest.mark.parametrize("bad", ["nan", "", "inf", "many"])
def test_what_is_no_number_is_refused(tmp_path: Path, bad: str) -> None:
    files = by_hand(tmp_path)
    files[1].write_text(files[1].read_text().replace("0.2", bad))
    with pytest.raises(DataError, match=r"b\.csv: row 2 .*err_mean of method 'net'"):
        summarise(files)


def test_a_score_given_twice_is_refused(tmp_path: Path) -> None:
    files = by_hand(tmp_path)
    with pytest.raises(DataError, match="given twice"):
        summarise([*files, files[0]])


def test_other_sets_are_refused(tmp_path: Path) -> None:
    files = by_hand(tmp_path)
    files[1].write_text(files[1].read_text().replace("3,0,err", "3,5,err"))
    with pytest.raises(DataError, match="sets: unknown 5"):
        summarise(files, **hand_config())


def test_skill_needs_the_targets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sensor_free"):
        summarise(by_hand(tmp_path)[:2], **hand_config())


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "experiment,method\n"])
def test_foreign_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"x\.csv"):
        summarise([path])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.csv"):
        summarise([tmp_path / "nothing.csv"])
