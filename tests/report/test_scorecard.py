"""Numbers before they are printed: the scorecard of 142 cells, guards against mixed-up files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import make_config, make_scores, make_summary, whole_config
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES, Config
from uqsonet_study.report.paper import paper_cells
from uqsonet_study.report.scorecard import scorecard
from uqsonet_study.report.summary import summarise
from uqsonet_study.report.tables.errors import errors_table
from uqsonet_study.report.tables.guards import require_distinct, require_finite

NAME = "1d-pde-error"


def write(summary: pd.DataFrame, config: Config, folder: Path) -> pd.DataFrame:
    scorecard(summary, config, "run7", folder / "scorecard.csv")
    return pd.read_csv(folder / "scorecard.csv")


def test_the_paper_has_142_cells() -> None:
    cells = paper_cells()
    assert len(cells) == 142
    assert cells.notna().all(axis=None)
    assert cells["table"].nunique() == 6
    assert not cells.duplicated(list(cells.columns[:7])).any()
    first = cells[(cells["table"] == "tab:1d-pde-error") & (cells["sensors"] == 10)]
    assert first["paper"].tolist() == [7.10, 5.97, 8.35]
    assert first["paper_pm"].tolist() == [1.16, 0.37, 0.38]
    assert set(cells["cut_line"]) == {"", "x=0.5", "x=0.7", "y=0.5", "y=0.7"}


def test_the_default_run_fills_every_cell_with_its_own_numbers(tmp_path: Path) -> None:
    config = whole_config()
    summary = make_summary(config)
    card = write(summary, config, tmp_path).fillna({"cut_line": ""})
    assert len(card) == 142 and not card["ours"].duplicated().any()
    tables = [table for table in config.tables.values() if table.layout == "errors"]
    shown = [e for table in tables for e in table.experiments]
    numbers = summary[summary["experiment"].isin(shown)]
    metric = numbers["metric"].str.partition("@")
    problem = numbers["experiment"].map(lambda e: config.experiments[e].problem)
    numbers = numbers.assign(problem=problem, metric=metric[0], cut_line=metric[2])
    keys = ["problem", "noise_std", "sensors", "metric", "cut_line"]
    for label, method, columns in (
        ("paper", "", {"ours": "value", "ours_pm": "pm"}),
        ("precise", "", {"precise": "value", "precise_low": "low", "precise_high": "high"}),
        *(("paper", name, {name: "value"}) for name in BASELINES),
        *(("precise", name, {f"precise_{name}": "value"}) for name in BASELINES),
        ("paper", "reference", {"mc_floor": "value"}),
    ):
        here = numbers[numbers["evaluation"].eq(label)]
        if method:
            here = here[here["method"].eq(method)]
        beside = card.merge(here, on=[*keys, *([] if method else ["method"])])
        assert len(beside) == 142
        for column, number in columns.items():
            np.testing.assert_allclose(beside[column], 100 * beside[number], rtol=1e-9)


def test_what_was_not_run_stays_empty(summary: pd.DataFrame, tmp_path: Path) -> None:
    card = write(summary, make_config(), tmp_path)
    filled = card[card["ours"].notna()]
    assert len(card) == 142 and len(filled) == 6
    assert set(filled["table"]) == {"tab:1d-pde-error"} and (filled["trials"] == 2).all()
    assert (filled["recipe"] == "my_recipe").all() and (filled["run"] == "run7").all()
    assert card.loc[card["ours"].isna(), "ours":].isna().all(axis=None)
    card = write(summary, make_config(experiment={"methods": ["uqsonet"]}), tmp_path)
    vidon = card[(card["method"] == "vidon") & card["sensor_free"].notna()]
    assert len(vidon) == 2 and vidon["ours"].isna().all()
    for change in (
        {"experiment": {"noise_std": 0.2}},
        {"experiment": {"evaluations": ["precise"]}},
        {"tables": {"other": {"layout": "errors", "experiments": ["e_1"]}}},
        {"tables": {"1d-pde-error": {"layout": "bands", "experiments": ["e_1"]}}},
    ):
        assert write(summary, make_config(**change), tmp_path)["ours"].isna().all()


@pytest.mark.parametrize(
    ("rows", "column", "value", "message"),
    [
        ("method == 'uqsonet' and metric == 'err_mean'", "value", 0.05, "same scores were used"),
        ("method == 'uqsonet'", "value", np.nan, "NaN"),
        ("method == 'uqsonet'", "pm", np.nan, "NaN"),
        ("method == 'cokriging'", "value", np.nan, "NaN"),
        ("sensors == 3", "sensors", 4, "not in the summary"),
        ("method == 'uqsonet'", "trials", 5, "5 trials .* configuration says 2"),
    ],
)
def test_mixed_up_or_missing_numbers_are_refused(
    summary: pd.DataFrame, tmp_path: Path, rows: str, column: str, value: Any, message: str
) -> None:
    summary.loc[summary.query(rows).index, column] = value
    with pytest.raises(DataError, match=message):
        write(summary, make_config(), tmp_path)
    assert not (tmp_path / "scorecard.csv").exists()


def test_two_claims_on_a_cell_are_refused(tmp_path: Path) -> None:
    one = make_config().experiments["e_1"].model_dump()
    tables = {"1d-pde-error": {"layout": "errors", "experiments": ["e_1", "e_2"]}}
    config = make_config(experiments={"e_1": one, "e_2": one}, tables=tables)
    with pytest.raises(DataError, match="e_1 and e_2 both claim"):
        write(make_summary(config), config, tmp_path)


Sound = tuple[pd.DataFrame, Config]


@pytest.fixture
def sound(config: Config, summary: pd.DataFrame) -> Sound:
    """Records of a table, with the configuration behind them."""
    return errors_table(NAME, config, summary)[1], config


def ours(records: pd.DataFrame) -> pd.Series:
    trained = records["method"].eq("uqsonet") & records["metric"].eq("err_mean")
    return trained & records["evaluation"].eq("paper")


def test_sound_tables_pass(sound: Sound) -> None:
    records, config = sound
    require_finite(records)
    require_distinct(records, config)
    records.loc[records["method"] == "cokriging", "value"] = 25.0  # equal baselines and shares
    shares = records[ours(records)].assign(metric="narrower", value=100.0)
    require_distinct(pd.concat([records, shares]), config)
    alone = make_config(experiment={"trials": 1})  # a single trial has no spread
    summary = make_summary(alone)
    records = errors_table(NAME, alone, summary)[1]
    assert records["pm"].isna().all()
    require_finite(records)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"evaluations": ["paper"]}, True),
        ({"recipe": "other"}, True),  # its settings are the same
        ({"sensors": {"counts": [1, 2, 3]}}, True),  # trained without sensors
        ({"noise_std": 0.5}, False),
        ({"training": 1000}, False),
        ({"trials": 3}, False),
        ({"sensors": {"counts": [1, 3], "pool": 7}}, False),
        ({"reference_samples": {"paper": 60}}, False),
    ],
)
def test_sharing_needs_equal_inputs(sound: Sound, change: dict[str, Any], allowed: bool) -> None:
    one = make_config().experiments["e_1"].model_dump()
    config = make_config(experiments={"e_1": one, "e_2": one | change})
    found = sound[0][ours(sound[0])]
    both = pd.concat([found, found.assign(case="e_2")])
    if allowed:
        return require_distinct(both, config)
    with pytest.raises(DataError, match=r"e_1: .* and e_2: .* same scores were used twice"):
        require_distinct(both, config)


NO_NUMBER = r"'uqsonet' with 1 sensors \(paper\): {} is {}, which no table may print"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({c: np.nan}, NO_NUMBER.format(c, "nan")) for c in ("value", "pm", "low", "high")),
        ({"value": np.inf}, NO_NUMBER.format("value", "inf")),
    ],
)
def test_numbers_that_are_none(sound: Sound, change: dict[str, object], message: str) -> None:
    records, _ = sound
    row = records[ours(records)].iloc[[0]].assign(**change)
    with pytest.raises(DataError, match=message):
        require_finite(row)


def test_costs_that_are_none() -> None:
    costs = pd.DataFrame([{"method": "uqsonet", "metric": "train_hours", "value": np.inf}])
    with pytest.raises(DataError, match="train_hours of 'uqsonet': value is inf"):
        require_finite(costs)


def test_files_mixed_up(tmp_path: Path) -> None:
    """The mistake that this is for: a case averages the scores of another one."""
    tables = {NAME: {"layout": "errors", "experiments": ["e_1"], "rows": "noise_std"}}
    config = make_config(experiment={"noise_std": [0.1, 0.5]}, tables=tables)
    path = tmp_path / "scores.csv"
    make_scores().to_csv(path, index=False)
    summary = summarise({case: [path] for case in config.cases}, config)
    with pytest.raises(DataError, match=r"e_1-noise0\.1: .* and e_1-noise0\.5: .* used twice"):
        require_distinct(errors_table(NAME, config, summary)[1], config)
