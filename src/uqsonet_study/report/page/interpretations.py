"""How this project interprets what the paper leaves open, and what it does differently.

`interpretations.csv` is the only source of both, for the page of a run and docs/interpretations.md.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

KINDS = ("interpretation", "difference")
HEADINGS = {"number": "#", "paper": "the paper", "here": "here", "why": "why", "key": "key"}
"""Columns as they are printed, in their order."""


def load_interpretations(kind: str) -> pd.DataFrame:
    """Return the rows of one kind: open choices (`interpretation`) or differences (`difference`).

    All is text, in the columns of `HEADINGS`; `key` names a key of the configuration or a file.
    Absent text is empty. Code stands between backticks.
    """
    path = files("uqsonet_study.report.page").joinpath("interpretations.csv")
    with path.open(encoding="utf-8") as file:
        table = pd.read_csv(file, keep_default_na=False, dtype=str)
    return table.loc[table["kind"] == kind, list(HEADINGS)]
