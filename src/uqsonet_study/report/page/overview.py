"""The scorecard for a reader: how many of the paper's cells were run, how many came out below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.report.names import method_title

METRICS = {"err_mean": "mean of u", "err_std": "std of u"}
NUMBERS = ("paper", "paper_pm", "ours", "ours_pm", "sensor_free", "cokriging", "mc_floor")
NEEDED = ("table", "method", "sensors", "noise_std", "cut_line", "metric", *NUMBERS)
NOTHING = "–"


@dataclass(frozen=True)
class Count:
    """Cells of one method in one table of the paper: all, run, and below the paper's value."""

    table: str
    method: str
    cells: int
    run: int
    below: int
    ratio: str  # median of ours / paper


@dataclass(frozen=True)
class Cell:
    """One cell of the paper beside ours, as printed, in percent."""

    table: str
    method: str
    sensors: str
    noise: str
    cut_line: str
    metric: str
    paper: str
    ours: str
    ratio: str
    verdict: str  # "below", "above" or "" where nothing was run
    beside: tuple[str, str, str]  # sensor-free, cokriging, Monte Carlo floor


@dataclass(frozen=True)
class Scorecard:
    """Counts by table and method, and every cell."""

    counts: tuple[Count, ...]
    cells: tuple[Cell, ...]

    @property
    def run(self) -> int:
        """Cells that were run."""
        return sum(count.run for count in self.counts)

    @property
    def below(self) -> int:
        """Cells with an error below the paper's."""
        return sum(count.below for count in self.counts)


def overview(scorecard: pd.DataFrame) -> Scorecard:
    """Return counts and printed cells of a scorecard.

    Parameters
    ----------
    scorecard : DataFrame
        As `uqsonet_study.report.scorecard.scorecard` writes it, read from CSV.

    Raises
    ------
    DataError
        If a column is missing or holds no numbers.
    """
    missing = [name for name in NEEDED if name not in scorecard.columns]
    if missing:
        raise DataError(f"scorecard: columns {missing} are missing")
    try:
        numbers = scorecard[list(NUMBERS)].astype(float)
    except ValueError as error:
        raise DataError(f"scorecard: {error}") from None
    table = scorecard.assign(**numbers, ratio=numbers["ours"] / numbers["paper"])
    table["cut_line"] = table["cut_line"].fillna("")
    rows = table.to_dict(orient="records")
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        ratios.setdefault((row["table"], row["method"]), []).append(row["ratio"])
    counts = (_count(*place, found) for place, found in ratios.items())
    return Scorecard(tuple(counts), tuple(map(_cell, rows)))


def _count(table: str, method: str, ratios: list[float]) -> Count:
    run = [ratio for ratio in ratios if not math.isnan(ratio)]
    middle = median(run) if run else math.nan
    below = sum(ratio < 1 for ratio in run)
    return Count(table, method_title(method), len(ratios), len(run), below, _number(middle))


def _cell(row: dict[Any, Any]) -> Cell:
    verdict = "" if math.isnan(row["ratio"]) else "below" if row["ratio"] < 1 else "above"
    return Cell(
        table=str(row["table"]),
        method=method_title(str(row["method"])),
        sensors=str(row["sensors"]),
        noise=f"{row['noise_std']:g}",
        cut_line=str(row["cut_line"]) or NOTHING,
        metric=METRICS.get(row["metric"], str(row["metric"])),
        paper=_number(row["paper"], row["paper_pm"]),
        ours=_number(row["ours"], row["ours_pm"]),
        ratio=_number(row["ratio"]),
        verdict=verdict,
        beside=(
            _number(row["sensor_free"]),
            _number(row["cokriging"]),
            _number(row["mc_floor"]),
        ),
    )


def _number(value: float, pm: float = math.nan) -> str:
    """Return a number with its ±, a dash where there is none."""
    if math.isnan(value):
        return NOTHING
    return f"{value:.2f}" + ("" if math.isnan(pm) else f" ± {pm:.2f}")
