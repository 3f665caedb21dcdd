"""Synthetic scores and configurations, small and with known answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from uqsonet.config import Config, load_config

COUNTS = [1, 3]
SETS = {"paper": 4, "precise": 6}
Change = Callable[[pd.DataFrame], pd.DataFrame]


def make_config(**changes: Any) -> Config:
    method = {
        "network": {"architecture": "kriging", "input_modes": 2, "output_modes": 2, "branch": [8]},
        "training": {"iterations": 1, "batch_size": 2},
    }
    experiment = {
        "problem": "diffusion1d",
        "table": "tab:1d-pde-error",
        "sensors": {"counts": COUNTS},
        "methods": ["vidon", "uqsonet"],
        "trials": 2,
        "figure_counts": COUNTS,
    }
    used = {"reference_samples": 50, "model_samples": 40}
    raw: dict[str, Any] = {
        "recipe": "my_recipe",
        "problems": {"diffusion1d": {"training": 1234, "validation": 4, "test": 6}},
        "experiments": {"e_1": experiment | changes.pop("experiment", {})},
        "evaluations": {
            "validation": used | {"sets": 4},
            **{label: used | {"sets": sets} for label, sets in SETS.items()},
        },
    }
    raw |= changes
    methods = {name for e in raw["experiments"].values() for name in e["methods"]}
    entry = dict.fromkeys(methods, method)
    recipes = {raw["recipe"], "other"}
    raw["recipes"] = {r: {p: entry for p in raw["problems"]} for r in recipes}
    return load_config(raw)


def make_scores(
    methods: tuple[str, ...] = ("vidon", "uqsonet"),
    experiment: str = "e_1",
    trials: int = 2,
    counts: list[int] = COUNTS,
    sets: dict[str, int] = SETS,
    seed: int = 0,
) -> pd.DataFrame:
    """Scores of all methods: sensor_free about 0.5, everything else about 0.05."""
    generator = np.random.default_rng(seed)
    rows = []
    for method in (*methods, "sensor_free", "cokriging", "reference"):
        for label, size in sets.items():
            for trial in range(trials if method in methods else 1):
                for m in counts:
                    for s in range(size):
                        head = (experiment, method, trial, label, m, s)
                        level = 0.5 if method == "sensor_free" else 0.05
                        for metric in ("err_mean", "err_std")[: 1 if method == "vidon" else 2]:
                            rows.append((*head, metric, level * generator.uniform(0.8, 1.2)))
    columns = "experiment method trial evaluation sensors set metric value".split()
    return pd.DataFrame(rows, columns=columns)


def write_scores(scores: pd.DataFrame, folder: Path) -> list[Path]:
    """Write one file per method and evaluation, as the pipeline does."""
    files = []
    for (method, label), part in scores.groupby(["method", "evaluation"], sort=False):
        path = folder / f"{method}_{label}.csv"
        part.to_csv(path, index=False)
        files.append(path)
    return files


@pytest.fixture
def config() -> Config:
    return make_config()
