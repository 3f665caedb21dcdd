"""Synthetic scores and configurations, small and with known answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from uqsonet_study.config import BASELINES, Case, Config, load_config
from uqsonet_study.report.summary import summarise

ROOT = Path(__file__).parents[2]
COUNTS = [1, 3]
COVERAGES = [f"{kind}_{v}" for kind in ("coverage", "within") for v in (50, 90, 95)]
SETS = {"paper": 4, "precise": 6}
Change = Callable[[pd.DataFrame], pd.DataFrame]


def make_config(**changes: Any) -> Config:
    """One experiment `e_1` and its table, with changes; `experiment` changes that alone."""
    method = {
        "network": {
            "architecture": "karhunen_loeve",
            "input_modes": 2,
            "output_modes": 2,
            "branch": [8],
        },
        "training": {"iterations": 1, "batch_size": 2},
    }
    experiment = {
        "problem": "diffusion1d",
        "sensors": {"counts": COUNTS},
        "methods": ["vidon", "uqsonet"],
        "trials": 2,
    }
    used = {"reference_samples": 50, "model_samples": 40}
    raw: dict[str, Any] = {
        "recipe": "my_recipe",
        "problems": {"diffusion1d": {"training": 1234, "validation": 4, "test": 6}},
        "experiments": {"e_1": experiment | changes.pop("experiment", {})},
        "tables": {"1d-pde-error": {"layout": "errors", "experiments": ["e_1"]}},
        "evaluations": {
            "validation": used | {"sets": 4},
            **{label: used | {"sets": sets} for label, sets in SETS.items()},
        },
    }
    raw |= changes
    methods = {name for e in raw["experiments"].values() for name in e["methods"]}
    entry: dict[str, Any] = dict.fromkeys(methods, method)
    entry["vidon"] = method | {
        "network": method["network"] | {"architecture": "karhunen_loeve_set"}
    }
    if "deep_ensemble" in methods:
        entry["deep_ensemble"] = {"ensemble_of": "vidon", "members": 5}
    raw["recipes"] = {
        recipe: dict.fromkeys(raw["problems"], entry) for recipe in {raw["recipe"], "other"}
    }
    return load_config(raw)


def whole_config(**changes: Any) -> Config:
    """The configuration of the default run with few observation sets, which scores are made for."""
    raw = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    for label, sets in SETS.items():
        raw["evaluations"][label]["sets"] = sets
    return load_config(raw | changes)


def make_scores(
    methods: tuple[str, ...] = ("vidon", "uqsonet"),
    trials: int = 2,
    counts: list[int] = COUNTS,
    sets: dict[str, int] = SETS,
    seed: int = 0,
    lines: Iterable[str] = (),
) -> pd.DataFrame:
    """Scores of all methods: sensor_free about 0.5, everything else about 0.05."""
    generator = np.random.default_rng(seed)
    rows = []
    for method in (*methods, *BASELINES, "reference"):
        point = method == "vidon"
        errors = [e for e in ("err_mean", "err_std") if not (point and e == "err_std")]
        metrics = [*errors, *(f"{e}@{line}" for e in errors for line in lines)]
        metrics += [] if point else ["mean_std", "crps", "energy", *COVERAGES]
        metrics += [] if point or method == "reference" else ["narrower"]
        for label, size in sets.items():
            single = method not in methods or method == "deep_ensemble"
            for trial in range(1 if single else trials):
                for m in counts:
                    for s in range(size):
                        head = (method, trial, label, m, s)
                        level = 0.5 if method == "sensor_free" else 0.05
                        for metric in metrics:
                            rows.append((*head, metric, level * generator.uniform(0.8, 1.2)))
    columns = "method trial evaluation sensors set metric value".split()
    return pd.DataFrame(rows, columns=pd.Index(columns))


def case_scores(case: Case, seed: int = 0) -> pd.DataFrame:
    """Scores of a case, with the trials, counts and cut lines that it declares."""
    return make_scores(
        methods=case.methods,
        trials=case.trials,
        counts=case.sensors.counts,
        sets={label: SETS[label] for label in case.evaluations},
        seed=seed,
        lines=case.cut_lines,
    )


def write_scores(scores: pd.DataFrame, folder: Path) -> list[Path]:
    """Write one file per method and evaluation, as the pipeline does."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for (method, label), part in scores.groupby(["method", "evaluation"], sort=False):
        path = folder / f"{method}_{label}.csv"
        part.to_csv(path, index=False)
        files.append(path)
    return files


def summary_of(
    config: Config, folder: Path, change: Change = lambda scores: scores, only: Iterable[str] = ()
) -> pd.DataFrame:
    """Summarise changed synthetic scores of cases, every case with scores of its own."""
    chosen = [c for c in config.cases.values() if c.name in only or not only]
    files = {
        case.name: write_scores(change(case_scores(case, seed)), folder / case.name)
        for seed, case in enumerate(chosen)
    }
    return summarise(files, config)


@pytest.fixture
def config() -> Config:
    return make_config()


@pytest.fixture
def summary(config: Config, tmp_path: Path) -> pd.DataFrame:
    return summary_of(config, tmp_path / "scores")
