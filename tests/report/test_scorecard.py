"""The scorecard of 142 cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import (
    EXPERIMENT,
    make_study,
    make_summary,
    whole_study,
    write_summaries,
)
from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.cases import Study
from uqsonet_study.report.paper import paper_cells
from uqsonet_study.report.scorecard import scorecard


def write(study: Study, summary: pd.DataFrame) -> pd.DataFrame:
    write_summaries(study, summary)
    scorecard(study, "run7", study.root / "scorecard.csv")
    return pd.read_csv(study.root / "scorecard.csv")


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
    study = whole_study(tmp_path)
    summary = make_summary(study)
    card = write(study, summary).fillna({"cut_line": ""})
    assert len(card) == 142 and not card["ours"].duplicated().any()
    tables = [table for table in study.config.tables.values() if table.layout == "errors"]
    shown = [e for table in tables for e in table.experiments]
    numbers = summary[summary["experiment"].isin(shown)]
    metric = numbers["metric"].str.partition("@")
    problem = numbers["case"].map(study.cases["problem"])
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
    card = write(make_study(tmp_path), summary)
    filled = card[card["ours"].notna()]
    assert len(card) == 142 and len(filled) == 6
    assert set(filled["table"]) == {"tab:1d-pde-error"} and (filled["trials"] == 2).all()
    assert (filled["recipe"] == "my_recipe").all() and (filled["run"] == "run7").all()
    assert card.loc[card["ours"].isna(), "ours":].isna().all(axis=None)
    card = write(make_study(tmp_path, experiment={"methods": ["uqsonet"]}), summary)
    vidon = card[(card["method"] == "vidon") & card["sensor_free"].notna()]
    assert len(vidon) == 2 and vidon["ours"].isna().all()
    for change in (
        {"experiment": {"noise": 0.2}},
        {"experiment": {"evaluations": ["precise"]}},
        {"tables": {"other": {"layout": "errors", "experiments": ["e_1"]}}},
        {"tables": {"1d-pde-error": {"layout": "bands", "experiments": ["e_1"]}}},
    ):
        assert write(make_study(tmp_path, **change), summary)["ours"].isna().all()


@pytest.mark.parametrize(
    ("rows", "column", "value", "message"),
    [
        ("method == 'uqsonet'", "value", np.nan, "NaN"),
        ("method == 'cokriging'", "value", np.nan, "NaN"),
        ("sensors == 3", "sensors", 4, "not in the summary"),
    ],
)
def test_missing_numbers_are_refused(
    study: Study, summary: pd.DataFrame, rows: str, column: str, value: Any, message: str
) -> None:
    summary.loc[summary.query(rows).index, column] = value
    with pytest.raises(DataError, match=message):
        write(study, summary)
    assert not (study.root / "scorecard.csv").exists()


def test_two_claims_on_a_cell_are_refused(tmp_path: Path) -> None:
    tables = {"1d-pde-error": {"layout": "errors", "experiments": ["e_1", "e_2"]}}
    study = make_study(
        tmp_path, experiments=dict.fromkeys(("e_1", "e_2"), EXPERIMENT), tables=tables
    )
    with pytest.raises(DataError, match="e_1 and e_2 both claim"):
        write(study, make_summary(study))
