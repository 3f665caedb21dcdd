from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import COUNTS, make_config, summary_of, whole_config
from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.report.paper import paper_cells
from uqsonet_study.report.scorecard import scorecard

COLUMNS = (
    "table,problem,method,sensors,noise_std,cut_line,metric,paper,paper_pm,ours,ours_pm,trials,"
    "sensor_free,cokriging,regression,mc_floor,precise,precise_low,precise_high,"
    "precise_sensor_free,precise_cokriging,precise_regression,recipe,run"
)


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


def test_rows_and_columns(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    card = write(summary, config, tmp_path)
    assert (tmp_path / "scorecard.csv").read_text().splitlines()[0] == COLUMNS
    assert len(card) == 142
    filled = card[card["ours"].notna()]
    assert len(filled) == 3 * len(COUNTS)
    assert set(filled["table"]) == {"tab:1d-pde-error"}
    assert (filled["run"] == "run7").all() and (filled["recipe"] == "my_recipe").all()
    assert (filled["trials"] == 2).all()
    # What was not run stays empty.
    assert card.loc[card["ours"].isna(), COLUMNS.split(",")[9:]].isna().all(axis=None)


def test_numbers_are_percent_of_the_paper_evaluation(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    card = write(summary, config, tmp_path).set_index(["table", "method", "metric", "sensors"])
    rows = summary[summary["evaluation"] == "paper"].set_index(["method", "metric", "sensors"])
    cell = card.loc[("tab:1d-pde-error", "uqsonet", "err_std", 3)]
    for column, method in (("ours", "uqsonet"), ("sensor_free",) * 2, ("mc_floor", "reference")):
        expected = 100 * rows.loc[(method, "err_std", 3), "value"]
        assert cell[column] == pytest.approx(expected, rel=1e-9)


def test_the_precise_evaluation_stands_beside_it(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    card = write(summary, config, tmp_path).set_index(["table", "method", "metric", "sensors"])
    rows = summary[summary["evaluation"] == "precise"].set_index(["method", "metric", "sensors"])
    cell = card.loc[("tab:1d-pde-error", "uqsonet", "err_std", 3)]
    ours, linear = (rows.loc[(name, "err_std", 3)] for name in ("uqsonet", "cokriging"))
    found = cell[["precise", "precise_low", "precise_high", "precise_cokriging"]].tolist()
    expected = [ours["value"], ours["low"], ours["high"], linear["value"]]
    assert found == pytest.approx([100 * value for value in expected], rel=1e-9)


def test_a_method_that_is_not_trained_stays_empty(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    only = make_config(experiment={"methods": ["uqsonet"]})
    card = write(summary, only, tmp_path)
    vidon = card[(card["method"] == "vidon") & card["sensor_free"].notna()]
    assert len(vidon) == len(COUNTS) and vidon["ours"].isna().all()


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": {"noise_std": 0.2}},
        {"tables": {"other": {"layout": "errors", "experiments": ["e_1"]}}},
        {"tables": {"1d-pde-error": {"layout": "bands", "experiments": ["e_1"]}}},
        {"experiment": {"evaluations": ["precise"]}},
    ],
)
def test_other_noise_or_table_fills_nothing(
    summary: pd.DataFrame, tmp_path: Path, change: dict[str, Any]
) -> None:
    assert write(summary, make_config(**change), tmp_path)["ours"].isna().all()


def test_the_default_run_fills_every_cell(tmp_path: Path) -> None:
    config = whole_config()
    card = write(summary_of(config, tmp_path / "scores"), config, tmp_path)
    assert card["ours"].notna().all() and (card["ours_pm"] > 0).all()
    assert not card["ours"].duplicated().any()


def test_one_trial_leaves_the_spread_empty(tmp_path: Path) -> None:
    config = make_config(experiment={"trials": 1})
    card = write(summary_of(config, tmp_path / "scores"), config, tmp_path)
    assert card["ours"].notna().sum() == 6 and card["ours_pm"].isna().all()


def test_identical_cells_are_refused(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    trained = summary["method"].eq("uqsonet") & summary["evaluation"].eq("paper")
    where = trained & summary["metric"].eq("err_mean")
    summary.loc[where, "value"] = summary.loc[where, "value"].iloc[0]
    with pytest.raises(DataError, match="same scores were used twice"):
        write(summary, config, tmp_path)
    assert not (tmp_path / "scorecard.csv").exists()


def test_equal_baselines_are_no_offence(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    summary.loc[summary["method"].eq("cokriging"), "value"] = 0.25
    assert (write(summary, config, tmp_path)["cokriging"].dropna() == 25).all()


@pytest.mark.parametrize(
    ("method", "column"), [("uqsonet", "value"), ("uqsonet", "pm"), ("cokriging", "value")]
)
def test_nan_is_refused(
    summary: pd.DataFrame, config: Config, tmp_path: Path, method: str, column: str
) -> None:
    summary.loc[summary["method"].eq(method), column] = np.nan
    with pytest.raises(DataError, match="NaN"):
        write(summary, config, tmp_path)


def test_a_missing_number_is_refused(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not in the summary"):
        write(summary[summary["sensors"] != 3], config, tmp_path)


def test_other_trials_than_configured_are_refused(summary: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 trials"):
        write(summary, make_config(experiment={"trials": 5}), tmp_path)


def test_two_claims_on_a_cell_are_refused(tmp_path: Path) -> None:
    one = make_config().experiments["e_1"].model_dump()
    tables = {"1d-pde-error": {"layout": "errors", "experiments": ["e_1", "e_2"]}}
    config = make_config(experiments={"e_1": one, "e_2": one}, tables=tables)
    with pytest.raises(DataError, match="e_1 and e_2 both claim"):
        write(summary_of(config, tmp_path / "scores"), config, tmp_path)
