"""The paper's error tables, cell by cell, to stand beside ours."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files

import pandas as pd

from uqsonet.config import ExperimentConfig

COLUMNS = [
    "table",
    "problem",
    "method",
    "sensors",
    "noise_std",
    "cut_line",
    "metric",
    "paper",
    "paper_pm",
]


@dataclass(frozen=True)
class PaperCell:
    """One cell: where it stands, the printed mean over five trials and the printed ±."""

    table: str
    problem: str
    method: str
    sensors: int
    noise_std: float
    cut_line: str
    metric: str
    paper: float
    paper_pm: float

    def __str__(self) -> str:
        what = f"{self.table} {self.method} {self.metric} {self.cut_line}".rstrip()
        return f"{what} with {self.sensors} sensors, noise {self.noise_std:g}"

    def is_of(self, experiment: ExperimentConfig) -> bool:
        """Return whether an experiment repeats this cell: same table, problem, noise, sensors.

        Never a cell on a cut line: our errors are over the whole domain.
        """
        return (
            (self.table, self.problem) == (experiment.table, experiment.problem)
            and math.isclose(self.noise_std, experiment.noise_std)
            and self.sensors in experiment.sensors.counts
            and not self.cut_line
        )


@cache
def cells() -> tuple[PaperCell, ...]:
    """Return every error cell of the paper's six error tables, 142 of them, in percent."""
    with files("uqsonet.report").joinpath("paper_errors.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file, dtype={"noise_std": float}, keep_default_na=False)
    rows = table[COLUMNS].itertuples(index=False, name=None)
    return tuple(PaperCell(*row) for row in rows)


def paper_cells() -> pd.DataFrame:
    """Return the paper's cells as a table.

    Returns
    -------
    DataFrame
        142 rows with the columns `COLUMNS`, in percent. `cut_line` is empty except in
        tab:2d-sde-error, whose errors are on lines such as ``x=0.5``.
    """
    return pd.DataFrame([astuple(cell) for cell in cells()], columns=COLUMNS)  # type: ignore[arg-type]


def cells_of(experiment: ExperimentConfig) -> dict[tuple[str, int, str], PaperCell]:
    """Return (method, sensors, metric) -> cell for what an experiment repeats."""
    return {(c.method, c.sensors, c.metric): c for c in cells() if c.is_of(experiment)}
