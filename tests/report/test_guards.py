"""Checks of numbers before they are printed: finite, from a declared input, from one model each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import make_config, make_scores, make_summary, write_scores
from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.report.summary import summarise
from uqsonet_study.report.tables.errors import errors_table
from uqsonet_study.report.tables.guards import check_cells, require_distinct

NAME = "1d-pde-error"


@pytest.fixture
def records(config: Config, summary: pd.DataFrame) -> pd.DataFrame:
    return errors_table(NAME, config, summary)[1]


def ours(records: pd.DataFrame) -> pd.Series:
    trained = records["method"].eq("uqsonet") & records["metric"].eq("err_mean")
    return trained & records["evaluation"].eq("paper")


def test_sound_tables_pass(records: pd.DataFrame, config: Config, summary: pd.DataFrame) -> None:
    check_cells(records, config, summary)
    records.loc[records["method"] == "cokriging", "value"] = 25.0  # equal baselines and shares
    shares = records[ours(records)].assign(metric="narrower", value=100.0)
    require_distinct(pd.concat([records, shares]), config)
    alone = make_config(experiment={"trials": 1})  # a single trial has no spread
    summary = make_summary(alone)
    records = errors_table(NAME, alone, summary)[1]
    assert records["pm"].isna().all()
    check_cells(records, alone, summary)


def test_scores_used_twice(records: pd.DataFrame, config: Config) -> None:
    records.loc[ours(records), "value"] = 5.125
    message = (
        r"e_1: err_mean of 'uqsonet' with 1 sensors \(paper\) and e_1: err_mean of 'uqsonet' with "
        r"3 sensors \(paper\) are both 5\.125: two trained models never agree in every digit, so "
        r"the same scores were used twice"
    )
    with pytest.raises(DataError, match=message):
        require_distinct(records, config)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"evaluations": ["paper"]}, True),
        ({"noise_std": 0.5}, False),
        ({"training": 1000}, False),
        ({"recipe": "other"}, True),  # its settings are the same
        ({"trials": 3}, False),
        ({"sensors": {"counts": [1, 3], "pool": 7}}, False),
        ({"sensors": {"counts": [1, 2, 3]}}, True),  # trained without sensors
        ({"reference_samples": {"paper": 60}}, False),
    ],
)
def test_sharing_needs_equal_inputs(
    records: pd.DataFrame, change: dict[str, object], allowed: bool
) -> None:
    one = make_config().experiments["e_1"].model_dump()
    config = make_config(experiments={"e_1": one, "e_2": one | change})
    found = records[ours(records)]
    both = pd.concat([found, found.assign(case="e_2")])
    if allowed:
        require_distinct(both, config)
    else:
        with pytest.raises(DataError, match=r"e_1: .* and e_2: .* same scores were used twice"):
            require_distinct(both, config)


NO_NUMBER = r"'uqsonet' with 1 sensors \(paper\): {} is {}, which no table may print"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"case": "e_9"}, "the configuration runs no case 'e_9'"),
        ({"method": "other"}, "e_1 declares no method 'other'"),
        ({"evaluation": "validation"}, "e_1 declares no evaluation 'validation'"),
        ({"sensors": 2}, "e_1 declares no sensor count 2"),
        ({"metric": "err_mean@x=0.5"}, "e_1 declares no cut line 'x=0.5'"),
        ({"metric": "err_max"}, "e_1 declares no metric 'err_max'"),
        ({"metric": "narrower", "method": "reference"}, "no summary that it reads has it"),
        ({"value": 3.5}, r"is 3\.5 in a table and [45]\.\d+ in its summary"),
        *(({c: np.nan}, NO_NUMBER.format(c, "nan")) for c in ("value", "pm", "low", "high")),
        ({"value": np.inf}, NO_NUMBER.format("value", "inf")),
    ],
)
def test_numbers_from_nowhere(
    records: pd.DataFrame,
    config: Config,
    summary: pd.DataFrame,
    change: dict[str, object],
    message: str,
) -> None:
    row = records[ours(records)].iloc[[0]].assign(**change)
    with pytest.raises(DataError, match=message):
        check_cells(row, config, summary)


def test_an_experiment_that_does_not_run(records: pd.DataFrame, summary: pd.DataFrame) -> None:
    one = make_config().experiments["e_1"].model_dump()
    config = make_config(experiments={"e_1": one, "e_2": one}, select=["e_2"])
    with pytest.raises(DataError, match="runs no case 'e_1'"):
        check_cells(records, config, summary)


def test_costs_and_settings_have_no_scores(config: Config, summary: pd.DataFrame) -> None:
    rows = [
        {"method": "uqsonet", "metric": "train_hours", "value": 1.5},
        {"method": "uqsonet", "metric": "branch", "setting": "3 × 256"},
    ]
    check_cells(pd.DataFrame(rows), config, summary)
    with pytest.raises(DataError, match="train_hours of 'uqsonet': value is inf"):
        check_cells(pd.DataFrame(rows[:1]).assign(value=np.inf), config, summary)


def test_files_mixed_up(tmp_path: Path) -> None:
    """The mistake that this is for: a case averages the scores of another one."""
    tables = {NAME: {"layout": "errors", "experiments": ["e_1"], "rows": "noise_std"}}
    config = make_config(experiment={"noise_std": [0.1, 0.5]}, tables=tables)
    files = write_scores(make_scores(), tmp_path)
    summary = summarise(dict.fromkeys(config.cases, files), config)
    with pytest.raises(DataError, match=r"e_1-noise0\.1: .* and e_1-noise0\.5: .* used twice"):
        check_cells(errors_table(NAME, config, summary)[1], config, summary)
