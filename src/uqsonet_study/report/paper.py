"""What the paper's tables print, cell by cell, to stand beside ours."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from uqsonet_study.config import Case

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

    @property
    def score(self) -> str:
        """The metric as scores name it: ``err_mean`` or, on a cut line, ``err_mean@x=0.5``."""
        return f"{self.metric}@{self.cut_line}" if self.cut_line else self.metric

    def is_of(self, table: str, case: Case) -> bool:
        """Return whether a case of a table (without ``tab:``) repeats this cell."""
        return (
            (self.table, self.problem) == (f"tab:{table}", case.problem)
            and math.isclose(self.noise_std, case.noise_std)
            and self.sensors in case.sensors.counts
            and (not self.cut_line or self.cut_line in case.cut_lines)
        )


@cache
def cells() -> tuple[PaperCell, ...]:
    """Return every error cell of the paper's six error tables, 142 of them, in percent."""
    table = _table("paper_errors.csv", dtype={"noise_std": float}, keep_default_na=False)
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


def cells_of(table: str, case: Case) -> dict[tuple[str, int, str], PaperCell]:
    """Return (method, sensors, score) -> cell for what a case of a table repeats."""
    return {(c.method, c.sensors, c.score): c for c in cells() if c.is_of(table, case)}


def paper_costs() -> pd.DataFrame:
    """Return tab:training-cost: hours and seconds on an RTX 3090, iterations from the text."""
    return _table("paper_costs.csv")


def paper_networks() -> pd.DataFrame:
    """Return tab:NN with p and the training of sections 4.1 to 4.5, one row per problem.

    All values are text; `40 40` are two hidden layers of 40 neurons. VIDON has the same sizes.
    """
    return _table("paper_networks.csv", dtype=str)


def _table(name: str, **options: Any) -> pd.DataFrame:
    with files("uqsonet_study.report").joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, **options)
