"""Laws of the input through the whole DAG, with `config/any_law.yaml` in small."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.models.weights import load
from uqsonet.reference.files import Reference, load_sets
from uqsonet_study.config import BASELINES
from uqsonet_study.report.law_scores import COLUMNS

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.xdist_group("any_law"),  # one worker makes what they share
]

RESULTS = Path("results/any_law")
SHOWN = ["bounded1d", "mixture1d"]
LINE = {"training": 600, "validation": 40, "test": 12, "shard": 200}
SHORT = {"iterations": 200, "batch_size": 60, "validate_every": 100}
OVERLAY: dict[str, Any] = {
    "scale": "smoke",
    "select": SHOWN,
    "problems": {"mixture1d": LINE, "bounded1d": LINE},
    "experiments": {
        "mixture1d": {
            "sensors": {"counts": [2, 4], "pool": 10},
            "methods": ["uqsonet", "mixture", "auto"],
            "trials": 2,
            "sets": {"precise": 12},
        },
        "bounded1d": {
            "sensors": {"pool": 10},
            "methods": ["uqsonet", "auto"],
            "sets": {"precise": 8},
        },
    },
    "evaluations": {
        "validation": {"sets": 4},
        "precise": {"sets": 4, "reference_samples": 600, "model_samples": 600},
        "paper": {"sets": 4},
    },
    "jobs": {"trials_per_job": 2, "methods_together": True},
    "recipes": {
        "tuned": {
            "mixture1d": {"uqsonet": {"training": SHORT}},
            "bounded1d": {"uqsonet": {"training": SHORT}},
        }
    },
}


def run(project: Project, *flags: str) -> str:
    files = ("--configfile", "config/any_law.yaml", "tiny.yaml")
    result = project.snakemake(*files, *flags)
    text = result.stdout + result.stderr
    assert result.returncode == 0, text
    return text


@pytest.fixture(scope="module")
def laws(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = fresh_copy(tmp_path_factory.mktemp("laws") / "project")
    write_overlay(project, OVERLAY)
    run(project)
    return project


def write_overlay(project: Project, overlay: dict[str, Any]) -> None:
    (project.path / "tiny.yaml").write_text(yaml.safe_dump(overlay))


def test_every_law_is_scored_beside_all_baselines_and_the_floor(laws: Project) -> None:
    scores = pd.read_csv(laws.path / RESULTS / "scores.csv")
    assert list(scores.columns) == COLUMNS
    assert list(dict.fromkeys(scores["problem"])) == SHOWN
    found = {name: set(part["law"]) for name, part in scores.groupby("problem")}
    assert found["mixture1d"] == {*BASELINES, "gaussian", "mixture", "auto"}
    assert found["bounded1d"] == {*BASELINES, "gaussian", "auto"}
    assert scores.notna().to_numpy().all()
    assert (scores[["floor_mean", "floor_std", "floor_w1"]] > 0).to_numpy().all()
    at = scores.set_index(["problem", "law", "sensors"])
    free, ours = (at.loc[("mixture1d", law, 4)] for law in ("sensor_free", "auto"))
    assert ours["crps"] < free["crps"] and ours["w1"] < free["w1"]
    tables = laws.path / RESULTS / "tables"
    assert "Gaussian" in (tables / "any-law.tex").read_text()
    assert "SMOKE" in (tables / "all.tex").read_text()


def stored(weights: Path) -> str:
    """Return the law that a weight file has."""
    model = load(weights)
    assert isinstance(model, KarhunenLoeveModel)
    assert (model.law is None) == (model.config.law == "gaussian")
    return model.config.law


def test_each_trial_has_a_law_and_a_log_of_what_was_tried(laws: Project) -> None:
    folder = laws.path / RESULTS / "law/mixture1d"
    logs = sorted(folder.glob("auto-*/*.csv"))
    assert [path.name for path in logs] == ["trial_0.csv", "trial_1.csv"]
    for trial, path in enumerate(logs):
        log = pd.read_csv(path)
        assert set(log["trial"]) == {trial} and log["chosen"].tolist().count(True) == 1
        assert {"gaussian", "mixture"} <= set(log["law"])
        assert {"seconds", "crps_2", "crps_4"} <= set(log.columns)
        assert stored(path.with_suffix(".safetensors")) == log.loc[log["chosen"], "law"].iloc[0]
    assert {stored(path) for path in folder.glob("mixture-*/*.safetensors")} == {"mixture"}
    # Both trials were trained as one stack, once for all laws.
    assert len(list((laws.path / RESULTS / "train/mixture1d").rglob("*.safetensors"))) == 1


def test_fixed_sensors_stand_where_they_were_told_to(laws: Project) -> None:
    (file,) = (laws.path / RESULTS / "reference/bounded1d").glob("precise-*.h5")
    sets, fields, noise_std = load_sets(file)
    assert isinstance(sets, Reference) and sets.quantiles is not None
    places = fields.input.grid.points()[[17, 50, 79]]
    assert (sets.observations.locations == places).all() and len(sets.function) == 8
    assert math.isclose(noise_std**2, 1e-3)


def test_samples_of_laws_are_drawn_beside_the_reference(laws: Project) -> None:
    figures = laws.path / RESULTS / "figures"
    for name in ("any-law-mixture", "any-law-bounded"):
        assert (figures / f"{name}.pdf").stat().st_size > 10_000
    page = (laws.path / RESULTS / "report.html").read_text()
    assert "Samples of laws, bounded1d, m = 3" in page
    assert not (figures / "any-law-darcy.pdf").exists()


def test_another_law_is_fitted_without_another_training(laws: Project) -> None:
    assert "Nothing to be done" in run(laws, "--dry-run")
    methods = {"mixture1d": {"methods": ["uqsonet", "mixture", "analogue", "auto"]}}
    experiments = {k: v | methods.get(k, {}) for k, v in OVERLAY["experiments"].items()}
    write_overlay(laws, OVERLAY | {"experiments": experiments})
    try:
        table = run(laws, "--dry-run").split("Job stats:")[1].split("\n\n")[0]
    finally:
        write_overlay(laws, OVERLAY)
    planned = dict(line.split()[:2] for line in table.splitlines()[3:] if line.strip())
    assert planned["law"] == "2"  # one for each trial
    assert not {"train", "reference", "sensors", "simulate"} & set(planned)
