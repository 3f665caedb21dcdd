"""Own data through the whole DAG: a file and field names, no code."""

import json
import shutil
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.reference.files import Reference, load_sets

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.xdist_group("own_data"),  # one worker makes what they share
]

POINTS, RUNS, COUNTS = 33, 400, [2, 4, 12]
UNSEEN = 0.3
"""Size of a second load that no sensor reads: the operator is random."""

RESULTS = Path("results/own")
OVERLAY: dict[str, Any] = {
    "results": str(RESULTS),
    "scale": "smoke",
    "select": ["membrane"],
    "problems": {
        "membrane": {
            "data": {"file": "mine/runs.npz", "input": "load", "output": "w"},
            "training": 300,
            "validation": 50,
            "test": 50,
        }
    },
    "experiments": {
        "membrane": {
            "problem": "membrane",
            "sensors": {"counts": COUNTS, "pool": 100},
            "methods": ["uqsonet"],
            "trials": 2,
            "evaluations": ["precise"],
        }
    },
    "evaluations": {
        "validation": {"sets": 20},
        "precise": {"sets": 30, "model_samples": 300},
    },
    "tables": {
        "mine": {
            "layout": "scores",
            "experiments": ["membrane"],
            "metrics": ["err_mean", "crps", "gain_crps", "coverage_90"],
        }
    },
    "figures": {"mine-plot": {"layout": "posterior", "experiment": "membrane", "counts": [2, 4]}},
    "jobs": {"trials_per_job": 2, "methods_together": True},
}


def membrane() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places, the law's covariance of the load, and the Green's function of -w'' = load."""
    x = np.linspace(0, 1, POINTS)
    covariance = np.exp(-((x[:, None] - x) ** 2) / (2 * 0.15**2))
    green = np.minimum(x[:, None], x) * (1 - np.maximum(x[:, None], x)) / (POINTS - 1)
    return x, covariance, green


def write_runs(path: Path) -> None:
    x, covariance, green = membrane()
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.clip(values, 0, None))
    generator = np.random.default_rng(7)
    load, unseen = (generator.standard_normal((RUNS, POINTS)) @ root.T for _ in range(2))
    w = (1 + load + UNSEEN * unseen) @ green
    path.parent.mkdir(exist_ok=True)
    np.savez(path, load=(1 + load).astype(np.float32), w=w.astype(np.float32), x=x)


def exact_errors(project: Project) -> dict[int, float]:
    """Return the mean relative error of the exact conditional mean, in percent, by count."""
    _, covariance, green = membrane()
    file = next((project.path / RESULTS / "reference/membrane").glob("precise-*.h5"))
    sets, _, _ = load_sets(file)
    assert not isinstance(sets, Reference)
    with np.load(project.path / "mine/runs.npz") as runs:
        truth = runs["w"][-50:].astype(float)  # the last rows are the test functions
    found: dict[int, list[float]] = {}
    for s, m in enumerate(sets.observations.counts.tolist()):
        places = np.rint(sets.observations.locations[s, :m, 0].numpy() * (POINTS - 1)).astype(int)
        values = sets.observations.values[s, :m].numpy()
        gain = np.linalg.lstsq(
            covariance[np.ix_(places, places)] + 1e-9 * np.eye(m), covariance[places]
        )[0].T
        mean = (1 + gain @ (values - 1)) @ green
        w = truth[int(sets.function[s])]
        error = float(np.linalg.norm(mean - w) / np.linalg.norm(w))
        found.setdefault(m, []).append(100 * error)
    return {m: fmean(errors) for m, errors in found.items()}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = fresh_copy(tmp_path_factory.mktemp("own") / "project")
    write_runs(project.path / "mine/runs.npz")
    write_overlay(project, OVERLAY)
    result = run(project)
    assert result.returncode == 0, result.stdout + result.stderr
    return project


def write_overlay(project: Project, overlay: dict) -> None:
    (project.path / "mine.yaml").write_text(yaml.safe_dump(overlay))


def run(project: Project, *flags: str) -> subprocess.CompletedProcess[str]:
    return project.snakemake("--configfile", "mine.yaml", *flags)


def planned(project: Project) -> set[str]:
    result = run(project, "--dry-run")
    assert result.returncode == 0, result.stdout + result.stderr
    text = result.stdout + result.stderr
    if "Nothing to be done" in text:
        return set()
    table = text.split("Job stats:")[1].split("\n\n")[0].splitlines()
    return {line.split()[0] for line in table[3:] if line.strip()} - {"total", "all"}


def test_own_data_are_scored_against_truths_and_close_to_the_exact_posterior(own: Project) -> None:
    table = pd.read_csv(own.path / RESULTS / "tables/mine.csv")
    keys = zip(table["method"], table["metric"], table["sensors"], strict=True)
    scores = dict(zip(keys, table["value"], strict=True))
    assert set(table["metric"]) == {"err_mean", "crps", "gain_crps", "coverage_90"}
    exact = exact_errors(own)
    for m in COUNTS:
        # Nobody does better than the exact mean by more than chance, nor much worse.
        assert scores["uqsonet", "err_mean", m] == pytest.approx(exact[m], rel=0.15, abs=0.5)
        assert scores["uqsonet", "crps", m] < 0.8 * scores["sensor_free", "crps", m]
        # With many sensors only the unseen load is left, which residuals alone put into the band.
        # 30 functions: chance alone is worth some six points.
        assert 78 <= scores["uqsonet", "coverage_90", m] <= 98
    assert exact[12] < 0.8 * exact[2]


def test_no_score_needs_a_reference_and_the_page_says_so(own: Project) -> None:
    results = own.path / RESULTS
    summary = pd.read_csv(results / "summary/membrane.csv")
    assert set(summary["method"]) == {"uqsonet", "sensor_free", "cokriging", "regression"}
    unknown = {"err_std", "skill_std", "w2", "w2_gaussian", "narrower", "crps_expected"}
    assert not unknown & set(summary["metric"])
    assert {"rank_1", "energy", "coverage_50", "coverage_95", "mean_std", "skill_mean"} <= set(
        summary["metric"]
    )
    page = (results / "report.html").read_text()
    assert "Own data: membrane" in page
    assert "true output stands in its place" in page
    assert "against true functions" in (results / "tables/all.tex").read_text()
    for figure in ("mine-plot", "membrane_data", "membrane_training"):
        assert (results / f"figures/{figure}.pdf").stat().st_size > 0
    log = pd.read_csv(next((results / "train/membrane").rglob("*.csv")))
    few, some, many = (float(log[f"skill_mean_{m}"].iloc[-1]) for m in COUNTS)
    assert 0.02 < few < some - 0.2 < some < many - 0.2
    record = json.loads((results / "simulate/membrane.json").read_text())
    assert set(record["read"]) == {"mine/runs.npz"}


def test_an_edit_of_the_file_reruns_its_stages_and_a_touch_none(own: Project) -> None:
    file = own.path / "mine/runs.npz"
    file.touch()
    assert planned(own) == set()
    before = file.read_bytes()
    with np.load(file) as runs:
        np.savez(file, **{name: 2 * runs[name] if name == "w" else runs[name] for name in runs})
    try:
        assert {"simulate", "sensors", "reference", "train", "evaluate", "table"} <= planned(own)
    finally:
        file.write_bytes(before)


def test_the_document_of_tables_compiles(own: Project, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (apt install texlive-latex-extra lmodern)")
    shutil.copy(own.path / RESULTS / "tables/all.tex", tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:]


def test_wrong_data_stop_before_any_job(own: Project) -> None:
    problem = OVERLAY["problems"]["membrane"]
    wrong = {"membrane": problem | {"data": problem["data"] | {"input": "laod"}}}
    write_overlay(own, OVERLAY | {"problems": wrong})
    try:
        result = run(own, "--dry-run")
    finally:
        write_overlay(own, OVERLAY)
    text = result.stdout + result.stderr
    assert result.returncode != 0
    assert "problems.membrane.data: mine/runs.npz" in text
    assert "laod" in text
    assert "Traceback" not in text
    assert "Job stats" not in text
