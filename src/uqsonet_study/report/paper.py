"""What the paper's tables print, to stand beside ours."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pandas as pd

COLUMNS = "table problem method sensors noise_std cut_line metric paper paper_pm".split()


def paper_cells() -> pd.DataFrame:
    """Return every error cell of the paper's six error tables, in percent.

    Returns
    -------
    DataFrame
        142 rows with the columns `COLUMNS`: the printed mean over five trials and the printed ±.
        `cut_line` is empty except in tab:2d-sde-error, whose errors are on lines such as
        ``x=0.5``.
    """
    cells = packaged("paper_errors.csv", dtype={"noise_std": float}, keep_default_na=False)
    return cells.loc[:, COLUMNS]


def paper_scores() -> pd.DataFrame:
    """Return the cells with metrics as scores name them: ``err_mean@x=0.5`` on a cut line."""
    cells = paper_cells()
    line = cells.pop("cut_line")
    cells["metric"] += line.where(line == "", "@" + line)
    return cells


def paper_costs() -> pd.DataFrame:
    """Return tab:training-cost: hours and seconds on an RTX 3090, iterations from the text."""
    return packaged("paper_costs.csv")


def paper_networks() -> pd.DataFrame:
    """Return tab:NN with p and the training of sections 4.1 to 4.5, one row per problem.

    All values are text as tables print it. VIDON has the same sizes.
    """
    return packaged("paper_networks.csv", dtype=str)


def packaged(name: str, **options: Any) -> pd.DataFrame:
    """Return a CSV file of this package."""
    with files("uqsonet_study.report").joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, **options)
