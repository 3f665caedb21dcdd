"""Laws of the input in print: scores.csv, the table, the figure."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.report.conftest import COUNTS, SETS, make_config, make_scores, write_scores
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Config, load_config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.law_scores import COLUMNS, law_scores
from uqsonet_study.report.tables.write import write_table

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
    own = found["metric"] == "err_mean"
    w1 = found.loc[own].assign(metric="w1", value=lambda rows: 2 * rows["value"])
    found.loc[(found["metric"] == "err_std") & (found["set"] == 0), "value"] *= 100
    return pd.concat([found, w1], ignore_index=True)


def written(scores: pd.DataFrame, config: Config, folder: Path) -> pd.DataFrame:
    return law_scores({"e_1": write_scores(scores, folder)}, config)


def test_means_medians_and_floors_are_those_of_the_precise_evaluation(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    found = written(scores, config, tmp_path)
    assert list(found.columns) == COLUMNS
    assert list(found["law"]) == [law for law in LAWS for _ in COUNTS]
    precise = scores.loc[scores["evaluation"] == "precise"]

    def by_set(method: str, m: int, metric: str) -> pd.Series:
        rows = precise.loc[precise["method"].eq(method) & precise["metric"].eq(metric)]
        return rows.loc[rows["sensors"] == m].groupby("set")["value"].mean()

    names = dict(zip(LAWS, (*BASELINES, *METHODS), strict=True))
    for row in found.to_dict("records"):
        method, m = names[row["law"]], row["sensors"]
        for part, metric in (("mean", "err_mean"), ("std", "err_std"), ("w1", "w1")):
            of = by_set(method, m, metric)
            assert len(of) == SETS["precise"]
            assert row[metric] == pytest.approx(100 * of.mean())
            assert row[f"median_{part}"] == pytest.approx(100 * of.median())
            floor = by_set("reference", m, metric)
            assert row[f"floor_{part}"] == pytest.approx(100 * floor.mean())
        assert row["median_std"] < row["err_std"] / 5
        assert row["crps"] == pytest.approx(by_set(method, m, "crps").mean())
        # The reference's mass in a band is free of the chance of single truths.
        assert row["cover_90"] == pytest.approx(100 * by_set(method, m, "within_90").mean())


def test_without_quantiles_truths_are_counted_and_w1_is_absent(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    some = scores.loc[~scores["metric"].str.startswith(("w1", "within"))]
    found = written(some, config, tmp_path)
    assert found[["w1", "median_w1", "floor_w1"]].isna().to_numpy().all()
    rows = some.query("method == 'chosen' and evaluation == 'precise' and metric == 'coverage_50'")
    expected = 100 * rows.loc[rows["sensors"] == 3, "value"].mean()
    row = found.loc[(found["law"] == "auto") & (found["sensors"] == 3)].iloc[0]
    assert row["cover_50"] == pytest.approx(expected)


def test_a_law_without_scores_is_refused(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="methods: lacks 'chosen'"):
        written(scores.loc[scores["method"] != "chosen"], config, tmp_path)


def test_the_table_prints_every_law_and_the_floor(
    scores: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "scores.csv"
    found = written(scores, config, tmp_path / "files")
    found.to_csv(path, index=False)
    out = [tmp_path / f"any-law.{kind}" for kind in ("tex", "csv", "json")]
    write_table("any-law", config, *out, scores=[path])
    tex, records = out[0].read_text(), pd.read_csv(out[1])
    rows = [line.partition("&")[0].strip() for line in tex.splitlines() if line.endswith(r"\\")]
    titles = ["Sensor-free", "Cokriging", "Gaussian", "Auto", "MC floor"]
    assert [row for row in rows if row in titles][: len(titles)] == titles
    assert list(dict.fromkeys(records["method"])) == [*LAWS, "reference"]
    one = records.query("method == 'auto' and sensors == 3 and metric == 'w1'")["value"]
    assert float(one.iloc[0]) == pytest.approx(
        found.query("law == 'auto' and sensors == 3")["w1"].iloc[0]
    )
    assert r"\mathbf" in tex
    found.drop(columns="w1").to_csv(path, index=False)
    with pytest.raises(DataError, match="not scores of laws"):
        write_table("any-law", config, *out, scores=[path])
    found.loc[found["law"] != "auto"].to_csv(path, index=False)
    with pytest.raises(DataError, match="no 'auto' of diffusion1d with 1 sensors"):
        write_table("any-law", config, *out, scores=[path])


def test_the_plan_makes_the_scores_of_the_shown_experiments(config: Config) -> None:
    plan = Plan(config)
    assert plan.of_laws() == ["e_1"]
    assert plan.table_inputs("any-law") == {"scores": ["results/scores.csv"]}
    assert plan.law_files() == {"e_1": plan.scores("e_1")}
    assert any("/chosen-" in file for file in plan.scores("e_1"))
    assert Plan(config.model_copy(update={"tables": {}})).of_laws() == []
