"""What users do with the workflow: own data, laws of the input."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.workflow.conftest import Project, fresh_copy, jobs, read
from uqsonet.operator.file import load
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet_study.config import BASELINES
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
    run("config/laws.yaml", read("laws"))
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
    more = {"mixture1d": {"methods": ["uqsonet", "mixture", "analogue", "auto"]}}
    planned = jobs(run("config/laws.yaml", read("laws"), {"experiments": more}, flags=("-n",)))
    assert planned["law"] == 2
    assert not {"train", "reference", "sensors", "simulate"} & set(planned)


POINTS, RUNS = 33, 400
UNSEEN = 0.3
"""Size of a second load that no sensor reads: the operator is random."""


def membrane() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places, the law's covariance of the load, and the Green's function of -w'' = load."""
    x = np.linspace(0, 1, POINTS)
    covariance = np.exp(-((x[:, None] - x) ** 2) / (2 * 0.15**2))
    green = np.minimum(x[:, None], x) * (1 - np.maximum(x[:, None], x)) / (POINTS - 1)
    return x, covariance, green


def write_runs(path: Path) -> np.ndarray:
    """Write a user's file and return its outputs."""
    x, covariance, green = membrane()
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.clip(values, 0, None))
    generator = np.random.default_rng(7)
    load, unseen = (generator.standard_normal((RUNS, POINTS)) @ root.T for _ in range(2))
    w = ((1 + load + UNSEEN * unseen) @ green).astype(np.float32)
    np.savez(path, load=(1 + load).astype(np.float32), w=w, x=x)
    return w


def exact_errors(file: Path, outputs: np.ndarray) -> dict[int, float]:
    """Return the mean relative error of the exact conditional mean, in percent, by count."""
    _, covariance, green = membrane()
    sets, _, _ = load_sets(file)
    assert not isinstance(sets, Reference)
    found: dict[int, list[float]] = {}
    for s, m in enumerate(sets.observations.counts.tolist()):
        places = np.rint(sets.observations.locations[s, :m, 0].numpy() * (POINTS - 1)).astype(int)
        inner = covariance[np.ix_(places, places)] + 1e-9 * np.eye(m)
        gain = np.linalg.solve(inner, covariance[places]).T
        mean = (1 + gain @ (sets.observations.values[s, :m].numpy() - 1)) @ green
        w = outputs[-50:][int(sets.function[s])].astype(float)  # the last rows: test functions
        found.setdefault(m, []).append(100 * float(np.linalg.norm(mean - w) / np.linalg.norm(w)))
    return {m: fmean(errors) for m, errors in found.items()}


def test_own_data_need_a_file_and_names_and_come_close_to_the_exact_posterior(
    project: Project, run: Run
) -> None:
    file, results = project.path / "runs.npz", project.path / "results/own"
    outputs = write_runs(file)
    run(read("own_data"))
    table = pd.read_csv(results / "tables/mine.csv").set_index(["method", "metric", "sensors"])
    (sets,) = (results / "reference/membrane").rglob("precise-*.h5")
    exact, value = exact_errors(sets, outputs), table["value"]
    for m in (2, 4, 12):
        # Nobody does better than the exact mean by more than chance, nor much worse.
        assert value["uqsonet", "err_mean", m] == pytest.approx(exact[m], rel=0.15, abs=0.5)
        assert value["uqsonet", "crps", m] < 0.8 * value["sensor_free", "crps", m]
        # With many sensors only the unseen load is left, which residuals alone put into the band.
        # 30 functions: chance alone is worth some six points.
        assert 78 <= value["uqsonet", "coverage_90", m] <= 98
    assert exact[12] < 0.8 * exact[2]
    summary = pd.read_csv(results / "summary/membrane.csv")
    assert set(summary["method"]) == {"uqsonet", "sensor_free", "cokriging", "regression"}
    assert not {"err_std", "w2_gaussian", "narrower"} & set(summary["metric"])  # no reference
    page = (results / "report.html").read_text()
    assert "Own data: membrane" in page and "true output stands in its place" in page
    assert json.loads((results / "data/membrane.json").read_text())["read"].keys() == {file.name}
    # A touch of the file reruns nothing, an edit all that comes from it. Wrong names stop at once.
    file.touch()
    assert jobs(run(read("own_data"), flags=("-n",))) == {}
    with np.load(file) as runs:
        np.savez(file, load=runs["load"], w=2 * runs["w"], x=runs["x"])
    planned = jobs(run(read("own_data"), flags=("-n",)))
    assert {"simulate", "sensors", "reference", "train", "evaluate", "table"} <= set(planned)
    wrong = project.overlay({"problems": {"membrane": {"data": {"input": "laod"}}}}, "wrong")
    result = project.snakemake("--configfile", "config/extra0.yaml", wrong, "-n")
    text = result.stdout + result.stderr
    assert result.returncode != 0 and "Traceback" not in text and "Job stats" not in text
    assert "problems.membrane.data: runs.npz" in text and "laod" in text
