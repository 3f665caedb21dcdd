"""Synthetic scores and configurations, small and with known answers."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from uqsonet_study.cli import read_config
from uqsonet_study.config import BASELINES, Config, load_config
from uqsonet_study.report.summary import COLUMNS, GAINS, SKILLS, summarise, write_csv

ROOT = Path(__file__).parents[2]
COUNTS = [1, 3]
SETS = {"paper": 4, "precise": 6}


def make_config(**changes: Any) -> Config:
    """One experiment `e_1` and its table, with changes; `experiment` changes that alone."""
    network = {"architecture": "karhunen_loeve", "input_modes": 2, "output_modes": 2, "branch": [8]}
    method = {"network": network, "training": {"iterations": 1, "batch_size": 2}}
    experiment = {"problem": "diffusion1d", "sensors": {"counts": COUNTS}, "trials": 2}
    experiment["methods"] = ["vidon", "uqsonet"]
    used = {"reference_samples": 50, "model_samples": 40}
    raw: dict[str, Any] = {
        "recipe": "my_recipe",
        "problems": {"diffusion1d": {"training": 1234, "validation": 4, "test": 6}},
        "experiments": {"e_1": experiment | changes.pop("experiment", {})},
        "tables": {"1d-pde-error": {"layout": "errors", "experiments": ["e_1"]}},
        "evaluations": {k: used | {"sets": n} for k, n in ({"validation": 4} | SETS).items()},
    }
    raw |= changes
    methods = {name for e in raw["experiments"].values() for name in e["methods"]}
    entry: dict[str, Any] = dict.fromkeys(methods, method)
    entry["vidon"] = method | {"network": network | {"architecture": "karhunen_loeve_set"}}
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


def overlay(name: str, *more: Path) -> Config:
    """The configuration of the default run under a file of `config/`, and more."""
    return read_config([ROOT / "config.yaml", ROOT / f"config/{name}.yaml", *more])


def metrics_of(method: str) -> list[str]:
    """Return what a method is scored by; VIDON predicts a mean alone."""
    if method == "vidon":
        return ["err_mean"]
    bands = [f"{kind}_{level}" for kind in ("coverage", "within") for level in (50, 90, 95)]
    metrics = ["err_mean", "err_std", "mean_std", "crps", "energy", *bands]
    return metrics if method == "reference" else [*metrics, "narrower"]


def make_scores(
    methods: tuple[str, ...] = ("vidon", "uqsonet"),
    trials: int = 2,
    counts: list[int] = COUNTS,
    sets: dict[str, int] = SETS,
    seed: int = 0,
) -> pd.DataFrame:
    """Scores of all methods: sensor_free about 0.5, everything else about 0.05."""
    generator = np.random.default_rng(seed)
    rows = []
    for method in (*methods, *BASELINES, "reference"):
        level, single = 0.5 if method == "sensor_free" else 0.05, method not in methods
        for label, size in sets.items():
            trained = range(1 if single else trials)
            for place in product(trained, [label], counts, range(size), metrics_of(method)):
                rows.append((method, *place, level * generator.uniform(0.8, 1.2)))
    columns = "method trial evaluation sensors set metric value".split()
    return pd.DataFrame(rows, columns=pd.Index(columns))


def write_scores(scores: pd.DataFrame, folder: Path) -> list[Path]:
    """Write one file per method and evaluation, as the pipeline does."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for (method, label), part in scores.groupby(["method", "evaluation"], sort=False):
        path = folder / f"{method}_{label}.csv"
        part.to_csv(path, index=False)
        files.append(path)
    return files


def keep(table: pd.DataFrame, path: Path) -> Path:
    """Write a summary as the pipeline does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, table, 17)
    return path


def summary_of(config: Config, folder: Path) -> pd.DataFrame:
    """Summarise synthetic scores, every case with scores of its own."""
    files = {}
    for seed, case in enumerate(config.cases.values()):
        sets = {label: SETS[label] for label in case.evaluations}
        scores = make_scores(case.methods, case.trials, case.sensors.counts, sets, seed)
        files[case.name] = write_scores(scores, folder / case.name)
    return summarise(files, config)


def make_summary(config: Config) -> pd.DataFrame:
    """Return a summary without files: no two numbers agree, VIDON may have no skill."""
    rows: list[tuple[Any, ...]] = []
    for case in config.cases.values():
        about = case.experiment, case.name, case.noise_std, case.training, case.latent_dim
        for method in (*case.methods, *BASELINES, "reference"):
            single = method not in case.methods or config.ensemble_of(case.experiment, method)
            metrics = metrics_of(method)
            errors = [m for m in metrics if m in SKILLS]
            metrics += [f"{error}@{line}" for error in errors for line in case.cut_lines]
            if method != "sensor_free":
                gains = [f"gain_{m}" for m in metrics if m in GAINS and method != "cokriging"]
                metrics += [*(SKILLS[error] for error in errors), *gains]
            for label, m, metric in product(case.evaluations, case.counts, metrics):
                level = 0.5 if method == "sensor_free" else 0.05
                value = level * (0.8 + 0.61803398875 * len(rows) % 0.4)
                trials = 1 if single else case.trials
                none = (method, metric, m) == ("vidon", "skill_mean", case.counts[-1])
                ends = -value if none else 0.9 * value, 1.1 * value
                numbers = value, value / 8 if trials > 1 else np.nan, *ends, trials, SETS[label]
                rows.append((*about, method, label, m, metric, *numbers))
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS)).astype({"latent_dim": "Int64"})


@pytest.fixture
def config() -> Config:
    return make_config()


@pytest.fixture
def summary(config: Config) -> pd.DataFrame:
    return make_summary(config)
