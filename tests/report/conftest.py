"""Small studies, with scores and summaries of known values where they look for them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.test_config import BASE, ROOT
from uqsonet_study import BASELINES
from uqsonet_study.cases import BASELINES_OF, Study
from uqsonet_study.loading import load_config, merge, read_config
from uqsonet_study.report.summary import COLUMNS, GAINS, SCORE_COLUMNS, SKILLS, write_csv

COUNTS = [1, 3]
SETS = {"validation": 4, "paper": 4, "precise": 6}
EXPERIMENT = {
    "problem": "diffusion1d",
    "layout": "m1+3",
    "trials": 2,
    "methods": ["vidon", "uqsonet"],
}


def make_study(root: Path, **changes: Any) -> Study:
    """One experiment `e_1` and its table, with changes; `experiment` changes that alone."""
    network = {"architecture": "karhunen_loeve", "input_modes": 2, "output_modes": 2, "branch": [8]}
    method = {"network": network, "training": {"iterations": 1, "batch_size": 2}}
    used = {"samples": 50, "model_samples": 40}
    sets = SETS | changes.pop("sets", {})
    raw: dict[str, Any] = {
        "recipe": "my_recipe",
        "problems": {"diffusion1d": {"training": 1234, "validation": 4, "test": 6}},
        "layouts": {"m1+3": {"counts": COUNTS}, "m3": {"counts": [3]}},
        "experiments": {"e_1": EXPERIMENT | changes.pop("experiment", {})},
        "tables": {"1d-pde-error": {"layout": "errors", "experiments": ["e_1"]}},
        "evaluations": {label: used | {"sets": number} for label, number in sets.items()},
    }
    raw |= changes
    known = {
        "vidon": method | {"network": network | {"architecture": "karhunen_loeve_set"}},
        "deep_ensemble": {"ensemble_of": "vidon", "members": 5},
        "chosen": {"law_of": "uqsonet", "law": "auto"},
    }
    entries = known | {"uqsonet": method}
    recipe = dict.fromkeys(raw["problems"], entries)
    return Study(
        load_config(raw | {"recipes": dict.fromkeys(("my_recipe", "other"), recipe)}), root
    )


def whole_study(root: Path, **changes: Any) -> Study:
    """The default run with few observation sets, which scores are made for."""
    sets = {"evaluations": {label: {"sets": number} for label, number in SETS.items()}}
    return Study(load_config(merge(merge(BASE, sets), changes)), root)


def overlay(root: Path, name: str) -> Study:
    """The default run under a file of `config/`."""
    return Study(read_config([ROOT / "config.yaml", ROOT / f"config/{name}.yaml"]), root)


def metrics_of(method: str) -> list[str]:
    """Return what a method is scored by; VIDON predicts a mean alone."""
    if method == "vidon":
        return ["err_mean"]
    bands = [f"{kind}_{level}" for kind in ("coverage", "within") for level in (50, 90, 95)]
    metrics = ["err_mean", "err_std", "mean_std", "crps", "energy", *bands]
    return metrics if method == "reference" else [*metrics, "narrower"]


def level_of(method: str) -> float:
    """Return about what all scores of a method are."""
    return 0.5 if method == "sensor_free" else 0.05


def make_scores(study: Study) -> pd.DataFrame:
    """Return scores of all answers of a study, each with the `file` that it belongs to."""
    generator, rows = np.random.default_rng(0), []
    for file, row in study.scores.iterrows():
        methods = (*BASELINES, "reference") if row.method == BASELINES_OF else (row.method,)
        trials = range(1 if row.ensemble else len(row.weights) or 1)
        sets = range(study.evaluation(row.problem, row.evaluation).sets)
        for method in methods:
            levels = generator.uniform(0.8, 1.2, 10**4) * level_of(method)
            places = product(trials, [row.evaluation], row.counts, sets, metrics_of(method))
            rows += [(file, method, *place, v) for place, v in zip(places, levels, strict=False)]
    return pd.DataFrame(rows, columns=pd.Index(["file", *SCORE_COLUMNS]))


def write_scores(study: Study, scores: pd.DataFrame) -> None:
    for file, part in scores.groupby("file"):
        path = study.root / str(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        part[SCORE_COLUMNS].to_csv(path, index=False)


def make_summary(study: Study) -> pd.DataFrame:
    """Return summaries without scores: no two numbers agree, VIDON may have no skill."""
    rows: list[tuple[Any, ...]] = []
    for case in study.cases.itertuples():
        about = case.experiment, case.name, case.noise, case.N, case.dz
        for method in (*case.methods, *BASELINES, "reference"):
            single = method not in case.methods or study.members(case, method)
            metrics = metrics_of(method)
            errors = [m for m in metrics if m in SKILLS]
            metrics += [f"{error}@{line}" for error in errors for line in case.cut_lines]
            if method != "sensor_free":
                gains = [f"gain_{m}" for m in metrics if m in GAINS and method != "cokriging"]
                metrics += [*(SKILLS[error] for error in errors), *gains]
            for label, m, metric in product(case.evaluations, case.counts, metrics):
                value = level_of(method) * (0.8 + 0.61803398875 * len(rows) % 0.4)
                trials = 1 if single else case.trials
                none = (method, metric, m) == ("vidon", "skill_mean", case.counts[-1])
                ends = -value if none else 0.9 * value, 1.1 * value
                numbers = value, value / 8 if trials > 1 else np.nan, *ends, trials, SETS[label]
                rows.append((*about, method, label, m, metric, *numbers))
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS)).astype({"latent_dim": "Int64"})


def write_summaries(study: Study, summary: pd.DataFrame) -> None:
    for experiment, part in summary.groupby("experiment"):
        (path,) = study.paths(study.summaries([str(experiment)]))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(path, part, 17)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return make_study(tmp_path)


@pytest.fixture
def summary(study: Study) -> pd.DataFrame:
    return make_summary(study)
