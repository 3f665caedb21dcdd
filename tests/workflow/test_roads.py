"""What users do with the workflow: laws of the input, one thing changed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.workflow.conftest import ROOT, Project, fresh_copy, jobs, read
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.weight_files import load
from uqsonet_study import BASELINES
from uqsonet_study.reference.files import Reference, load_sets

pytestmark = [pytest.mark.dag, pytest.mark.timeout(0)]
Run = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return fresh_copy(tmp_path / "project")


@pytest.fixture
def run(project: Project) -> Run:
    """Run with configuration files, the last of them given by what is in it."""

    def start(*files: str | dict[str, Any], flags: tuple[str, ...] = ()) -> str:
        own = (f"extra{k}" for k in range(len(files)))
        paths = [f if isinstance(f, str) else project.overlay(f, next(own)) for f in files]
        result = project.snakemake("--configfile", *paths, *flags)
        text = result.stdout + result.stderr
        assert result.returncode == 0, text
        return text

    return start


def test_laws_are_fitted_to_each_trial_and_scored(project: Project, run: Run) -> None:
    run("config/laws.yaml", read("laws"), flags=("--", "results/laws/tables/any-law.tex"))
    results = project.path / "results/laws"
    scores = pd.read_csv(results / "scores.csv")
    found = {name: set(part["law"]) for name, part in scores.groupby("problem")}
    assert found["mixture1d"] == {*BASELINES, "gaussian", "mixture", "auto"}
    assert found["binary1d"] == {*BASELINES, "gaussian", "auto"}
    assert scores.notna().to_numpy().all() and (scores["floor_w1"] > 0).all()
    at = scores.set_index(["problem", "law", "sensors"])["crps"]
    assert at["mixture1d", "auto", 4] < at["mixture1d", "sensor_free", 4]
    # Both trials were trained once for all laws. Each has a law of its own.
    assert len(list((results / "train/mixture1d").rglob("*.safetensors"))) == 2
    logs = sorted((results / "law/mixture1d").rglob("auto-*/*.csv"))
    assert [path.name for path in logs] == ["trial0.csv", "trial1.csv"]
    for path in logs:
        log, model = pd.read_csv(path), load(path.with_suffix(".safetensors"))
        assert {"gaussian", "mixture"} <= set(log["law"]) and log["chosen"].sum() == 1
        assert isinstance(model, KarhunenLoeveModel)
        assert model.config.law == log.loc[log["chosen"], "law"].iloc[0]
    (file,) = (results / "reference/binary1d").rglob("precise*.h5")
    sets, _, _ = load_sets(file)
    assert isinstance(sets, Reference) and sets.quantiles is not None
    # Another law needs no other training.
    more = {
        "experiments": {"binary1d": {"methods": ["uqsonet", "latent", "auto"]}},
        "recipes": {"tuned": {"binary1d": {"latent": {"law_of": "uqsonet", "law": "latent"}}}},
    }
    planned = jobs(
        run(
            "config/laws.yaml",
            read("laws"),
            more,
            flags=("-n", "--", "results/laws/scores.csv"),
        )
    )
    assert planned["law"] == 1  # there is one trial
    assert not {"train", "reference", "sensors", "simulate"} & set(planned)


def test_sensors_read_over_time(project: Project, run: Run) -> None:
    few = {
        "scale": "smoke",
        "problems": {"navier_stokes": {"test": 2}},
        "over_time": {"training": 50, "test": 2, "steps": 1, "members": 40},
    }
    table = "results/time/tables/time.tex"
    run("config/time.yaml", few, flags=("--", table))
    results = project.path / "results/time"
    for name in ("tables/time.html", "figures/time.pdf", "figures/time.png"):
        assert (results / name).stat().st_size > 0, name
    assert "SMOKE SCALE" in (project.path / table).read_text()
    found = pd.read_csv((project.path / table).with_suffix(".csv"))
    at = found.set_index(["method", "metric", "time"])["value"]
    assert at.index.is_unique and len(at) == 4 * 2 and (at > 0).all()
    assert 80 < at["sensor_free", "error", 1.0] < 105  # percent


def test_runs_with_gaps(project: Project, run: Run) -> None:
    few = {"scale": "smoke", "gaps": {"training": 300, "seen": [30], "sets": 2, "samples": 50}}
    table = "results/gaps/tables/gaps.tex"
    run("config/gaps.yaml", few, flags=("--", table))
    assert "SMOKE SCALE" in (project.path / table).read_text()
    found = pd.read_csv((project.path / table).with_suffix(".csv"))
    at = found.set_index(["seen", "metric", "sensors"])["value"]
    assert at.index.is_unique and len(at) == 2 * 2 * 3 and (at > 0).all()
    assert (at[:, "mean"] < 60).all()  # percent


PAGE = ROOT / "docs/reproduction.md"
HEADING = "Change one thing"


def test_the_page_shows_how_to_change_one_thing_and_see_its_row(project: Project, run: Run) -> None:
    section = PAGE.read_text().split(f"## {HEADING}")[1].split("\n## ")[0]
    (overlay,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (command,) = re.findall(
        r"^snakemake (.*--configfile config/mine\.yaml.*)$", section, re.MULTILINE
    )
    (project.path / "config/mine.yaml").write_text(overlay)
    result = project.snakemake(*command.split("#")[0].split())
    assert result.returncode == 0, result.stdout + result.stderr
    table = pd.read_csv(project.path / command.split()[-1].replace(".tex", ".csv"))
    assert "uqsonet" in set(table["method"]) and set(table["recipe"]) == {"mine"}
