"""Laws of the input: scores.csv, and the plan that makes it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.report.conftest import COUNTS, SETS, make_config, make_scores, write_scores
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Config, load_config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.law_scores import COLUMNS, law_scores

METHODS = ("uqsonet", "chosen")
LAWS = [*BASELINES, "gaussian", "auto"]


@pytest.fixture
def config() -> Config:
    """One experiment whose method `chosen` is law `auto` of the operator of `uqsonet`."""
    raw = make_config(
        experiment={"methods": list(METHODS)},
        tables={"any-law": {"layout": "laws", "experiments": ["e_1"]}},
    ).model_dump(mode="json")
    for problems in raw["recipes"].values():
        problems["diffusion1d"]["chosen"] = {"law_of": "uqsonet", "law": "auto"}
    return load_config(raw)


@pytest.fixture
def scores() -> pd.DataFrame:
    """Scores with W1, of one set so bad that means are not medians."""
    found = make_scores(METHODS, seed=3)
    w1 = found[found["metric"] == "err_mean"].assign(metric="w1")
    found.loc[(found["metric"] == "err_std") & (found["set"] == 0), "value"] *= 100
    return pd.concat([found, w1.assign(value=2 * w1["value"])], ignore_index=True)


def written(scores: pd.DataFrame, config: Config, folder: Path) -> pd.DataFrame:
    return law_scores({"e_1": write_scores(scores, folder)}, config)


def test_means_medians_and_floors_are_those_of_the_precise_evaluation(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    found = written(scores, config, tmp_path)
    assert list(found.columns) == COLUMNS
    assert list(found["law"]) == [law for law in LAWS for _ in COUNTS]
    by_set = scores[scores["evaluation"] == "precise"].groupby(
        ["method", "sensors", "metric", "set"]
    )
    sets = by_set["value"].mean()
    names = dict(zip(LAWS, (*BASELINES, *METHODS), strict=True))
    for row in found.to_dict("records"):
        own, floor = sets[names[row["law"]], row["sensors"]], sets["reference", row["sensors"]]
        for part, metric in (("mean", "err_mean"), ("std", "err_std"), ("w1", "w1")):
            assert len(own[metric]) == SETS["precise"]
            assert row[metric] == pytest.approx(100 * own[metric].mean())
            assert row[f"median_{part}"] == pytest.approx(100 * own[metric].median())
            assert row[f"floor_{part}"] == pytest.approx(100 * floor[metric].mean())
        assert row["median_std"] < row["err_std"] / 5
        assert row["crps"] == pytest.approx(own["crps"].mean())
        # The reference's mass in a band is free of the chance of single truths.
        assert row["cover_90"] == pytest.approx(100 * own["within_90"].mean())


def test_without_quantiles_truths_are_counted_and_w1_is_absent(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    some = scores[~scores["metric"].str.startswith(("w1", "within"))]
    found = written(some, config, tmp_path)
    assert found[["w1", "median_w1", "floor_w1"]].isna().to_numpy().all()
    rows = some.query("method == 'chosen' and evaluation == 'precise' and metric == 'coverage_50'")
    row = found.query("law == 'auto' and sensors == 3").iloc[0]
    assert row["cover_50"] == pytest.approx(100 * rows.query("sensors == 3")["value"].mean())
    with pytest.raises(DataError, match="methods: lacks 'chosen'"):
        written(scores[scores["method"] != "chosen"], config, tmp_path / "fewer")


def test_the_plan_makes_the_scores_of_the_shown_experiments(config: Config) -> None:
    plan = Plan(config)
    assert plan.of_laws() == ["e_1"]
    assert plan.table_inputs("any-law") == {"scores": ["results/scores.csv"]}
    assert plan.law_files() == {"e_1": plan.scores("e_1")}
    assert any("/chosen-" in file for file in plan.scores("e_1"))
    assert Plan(config.model_copy(update={"tables": {}})).of_laws() == []
