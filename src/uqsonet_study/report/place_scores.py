"""Scores of where sensors stand: `scores.csv`, one row a problem, number of sensors, strategy.

The standard error is that of the test functions, by the jackknife: each is left out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from uqsonet.errors import DataError
from uqsonet_study.report.summary import read_numbers

COLUMNS = ["problem", "sensors", "strategy", "std", "error"]
READ = ["problem", "sensors", "strategy", "layout", "function", "std"]
"""Columns of the files of `uqsonet_study.placement`."""

QUARTILES = {"random_low": 0.25, "random": 0.5, "random_high": 0.75}
"""Strategy -> quantile over random layouts."""

STRATEGIES = {
    "greedy": "greedy",
    "random": "random, median",
    "random_low": "random, lower quartile",
    "random_high": "random, upper quartile",
    "space_filling": "space-filling",
    "worst": "worst",
}
"""Strategy -> printed name."""


def place_scores(files: Sequence[Path]) -> pd.DataFrame:
    """Return the mean std of u by problem, number of sensors and strategy, and its standard error.

    Parameters
    ----------
    files : sequence of Path
        CSV files of `uqsonet_study.placement`.

    Raises
    ------
    DataError
        If a file cannot be read, or lacks a strategy.
    """
    found = []
    for path in files:
        scores = read_numbers(path, READ, "std")
        problem, counts = scores["problem"].iloc[0], sorted(set(scores["sensors"]))
        of = {
            key: one.pivot(index="layout", columns="function", values="std").to_numpy()
            for key, one in scores.groupby(["strategy", "sensors"])
        }
        for name, m in product(STRATEGIES, counts):
            std = of.get((name.partition("_")[0] if name in QUARTILES else name, m))
            if std is None:
                raise DataError(f"{path}: no {name!r} with {m} sensors")
            share, size = QUARTILES.get(name, 0.5), std.shape[1]
            without = (std.sum(1, keepdims=True) - std) / max(1, size - 1)
            left = np.quantile(without, share, axis=0)
            error = (size - 1) ** 0.5 * left.std()
            found.append((problem, m, name, np.quantile(std.mean(1), share), error))
    return pd.DataFrame(found, columns=pd.Index(COLUMNS))
