"""How we read the paper's open choices and what differs from it: the single source of both.

`readings.csv` feeds the tables of docs/reproduction.md and those of the page of a run.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.report.markers import replaced

KINDS = {"reading": "readings", "difference": "differences"}
"""Kind of a row -> marker of its table in the document."""

HEADINGS = {
    "reading": {"paper": "the paper", "reading": "reading here", "why": "why", "key": "key"},
    "difference": {"paper": "the paper", "reading": "here", "why": "why", "key": "key"},
}
"""Columns as they are printed, in their order."""


def load_readings() -> pd.DataFrame:
    """Return every open choice (`reading`) and every difference (`difference`).

    Returns
    -------
    DataFrame
        Columns `kind`, `number`, `paper`, `reading`, `key` (of the configuration, or a file) and
        `why`. Absent text is empty; code stands between backticks.
    """
    with files("uqsonet_study.report.page").joinpath("readings.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False)


def markdown_table(readings: pd.DataFrame, kind: str) -> str:
    """Return the rows of a kind as a Markdown table."""
    headings = HEADINGS[kind]
    rows = readings.loc[readings["kind"] == kind]
    lines = [
        "| # | " + " | ".join(headings.values()) + " |",
        "|---" * (1 + len(headings)) + "|",
    ]
    for row in rows.to_dict("records"):
        cells = (str(row[name]).replace("|", r"\|") for name in ("number", *headings))
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(lines)


def updated(document: str, readings: pd.DataFrame) -> str:
    """Return docs/reproduction.md with both tables made anew.

    Raises
    ------
    DataError
        If a row is of another kind, or a marker is missing.
    """
    unknown = sorted(set(readings["kind"]) - set(KINDS))
    if unknown:
        raise DataError(f"readings.csv: kind {unknown} is none of {sorted(KINDS)}")
    for kind, marker in KINDS.items():
        table = markdown_table(readings, kind)
        document = replaced(document, marker, table, "docs/reproduction.md")
    return document
