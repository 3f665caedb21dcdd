"""All five problems through the whole DAG at smoke scale."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
SMOKE = Path("results/smoke")
EXPERIMENTS = ("diffusion1d", "poisson2d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes")
CLUSTERED = ("poisson2d", "elliptic_sde2d", "navier_stokes")


def test_every_experiment_ends_in_its_tables_and_pictures(complete: Project) -> None:
    results = complete.path / SMOKE
    for name in EXPERIMENTS:
        for file in (
            f"simulate/{name}.json",
            f"tables/{name}.tex",
            f"figures/{name}_data.pdf",
            f"figures/{name}_posterior.pdf",
            f"figures/{name}_training.pdf",
        ):
            assert (results / file).stat().st_size > 0, file
    for name in CLUSTERED:
        assert (results / f"figures/{name}_layouts.pdf").stat().st_size > 0


def test_baselines_and_models_are_scored_for_every_experiment(complete: Project) -> None:
    for name in EXPERIMENTS:
        with (complete.path / SMOKE / "summary" / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        scored = {(row["method"], row["metric"]) for row in rows}
        for method in ("sensor_free", "cokriging", "uqsonet", "reference"):
            assert {(method, "err_mean"), (method, "err_std")} <= scored, (name, method)


def test_cokriging_beats_the_sensor_free_predictor_where_the_operator_is_affine(
    complete: Project,
) -> None:
    with (complete.path / SMOKE / "summary" / "poisson2d.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["evaluation"] == "precise"]
    error = {(r["method"], r["metric"], r["sensors"]): float(r["value"]) for r in rows}
    for metric in ("err_mean", "err_std"):
        for m in "1234":
            assert error["cokriging", metric, m] < error["sensor_free", metric, m]


def test_the_whole_tree_passes_the_check_and_needs_nothing_more(complete: Project) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "uqsonet", "check", str(complete.path / SMOKE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert complete.planned() == {}
