"""Ours beside each of the paper's 142 error cells: what is reproduced, and what is still empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.storage.files import write_text
from uqsonet_study.config import BASELINES, Case, Config, ErrorTable
from uqsonet_study.report.names import FLOOR
from uqsonet_study.report.numbers import Numbers
from uqsonet_study.report.paper import COLUMNS as PAPER_COLUMNS
from uqsonet_study.report.paper import PaperCell, cells, cells_of
from uqsonet_study.report.tables.guards import require_distinct

BESIDE = {"sensor_free": "sensor_free", "cokriging": "cokriging", FLOOR: "mc_floor"}
MORE_SETS = ["precise", "precise_low", "precise_high", "precise_sensor_free", "precise_cokriging"]
"""The same errors over the many sets of the `precise` evaluation, with the interval of ours."""

COLUMNS = [*PAPER_COLUMNS, "ours", "ours_pm", "trials", *BESIDE.values(), *MORE_SETS]
COLUMNS += ["recipe", "run"]


def scorecard(summaries: pd.DataFrame, config: Config, run: str, out: Path) -> None:
    """Write `scorecard.csv`: one row per cell of the paper, in percent.

    Parameters
    ----------
    summaries : DataFrame
        Summaries of all experiments, one below the other.
    config : Config
        Its experiments say which cells were run; all others stay empty.
    run : str
        Names the run in the last column.
    out : Path

    Raises
    ------
    DataError
        If a number is missing or NaN, if two experiments claim one cell, or if two cells of
        trained models agree in every digit, which only a mix-up of files explains.
    """
    ours: dict[PaperCell, dict[str, Any]] = {}
    claimed: dict[PaperCell, str] = {}
    for table, case in _shown(config):
        numbers = Numbers(summaries, case.name, config)
        for cell in cells_of(table, case).values():
            if cell in claimed:
                raise DataError(
                    f"cases {claimed[cell]} and {case.name} both claim {cell}; take the experiment "
                    f"of one of them out of tables.{table}"
                )
            claimed[cell] = case.name
            found = _numbers(numbers, cell, trained=cell.method in case.methods)
            ours[cell] = found | {"recipe": config.recipe_of(case.experiment), "run": run}
    trained = [
        _record(cell, claimed[cell], found) for cell, found in ours.items() if "ours" in found
    ]
    require_distinct(pd.DataFrame(trained), config)
    rows = [asdict(cell) | ours.get(cell, {}) for cell in cells()]
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS)).astype({"trials": "Int64"})
    write_text(out, table.to_csv(index=False, float_format="%.12g", lineterminator="\n"))


def _shown(config: Config) -> Iterator[tuple[str, Case]]:
    """Yield every table of errors with each case that it shows in this run."""
    for name, table in config.tables.items():
        if isinstance(table, ErrorTable):
            experiments = [e for e in table.experiments if e in config.selected]
            for case in config.cases_of(experiments):
                if "paper" in case.evaluations:
                    yield name, case


def _numbers(numbers: Numbers, cell: PaperCell, trained: bool) -> dict[str, Any]:
    """Return our numbers for one cell, `ours` only if this configuration trains its method."""
    where = cell.score, cell.sensors
    found: dict[str, Any] = {
        column: 100 * numbers.get("paper", method, *where).value
        for method, column in BESIDE.items()
    }
    if trained:
        ours = numbers.get("paper", cell.method, *where)
        found |= {"ours": 100 * ours.value, "ours_pm": 100 * ours.pm, "trials": ours.trials}
        if "precise" in numbers.case.evaluations:
            many = [numbers.get("precise", method, *where) for method in (cell.method, *BASELINES)]
            values = [many[0].value, many[0].low, many[0].high, *(one.value for one in many[1:])]
            found |= dict(zip(MORE_SETS, (100 * value for value in values), strict=True))
    return found


def _record(cell: PaperCell, case: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return one of our numbers as `uqsonet_study.report.tables.guards` reads it."""
    return {
        "case": case,
        "evaluation": "paper",
        "method": cell.method,
        "metric": cell.score,
        "sensors": cell.sensors,
        "value": found["ours"],
    }
