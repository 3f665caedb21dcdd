"""The benchmarks run: their rows, their ratios and the operations that they count."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rows import COLUMNS, NOT_RUN, Row, not_run, read, write
from benchmarks.workloads import flops
from uqsonet.networks.config import AttentionNetwork

ROOT = Path(__file__).parents[2]


def quick_rows(module: str, folder: Path, *options: str) -> list[dict[str, str]]:
    """Run benchmarks in small, and return their rows."""
    command = [sys.executable, "-m", module, "--quick", "--out", str(folder), *options]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return read(folder / "benchmarks.csv")


@pytest.mark.long
def test_what_is_measured_on_a_gpu_runs_on_a_cpu(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in quick_rows("benchmarks.gpu", tmp_path, "--device", "cpu")}
    gradients = [row for name, row in rows.items() if "gradient" in name]
    rates = [row for row in rows.values() if row["unit"] == "steps/s"]
    assert len(gradients) == len(rates) >= 6, "one training of each architecture and method"
    assert all(float(row["value"]) < 1e-5 for row in gradients)
    assert all(0 < float(row["value"]) < math.inf for row in rates)


@pytest.mark.long
def test_a_quick_run_writes_every_row_with_finite_values(tmp_path: Path) -> None:
    rows = quick_rows("benchmarks", tmp_path)
    assert list(rows[0]) == COLUMNS and len(rows) > 12
    for row in rows:
        if row["value"] == NOT_RUN:
            assert not row["ratio"] and not row["fraction_of_floor"]
            continue
        for column in ("value", "peer_value", "ratio", "floor", "fraction_of_floor"):
            number = float(row[column] or 1)
            assert math.isfinite(number) and number > 0, row
    assert {"training", "inference", "Navier-Stokes", "peak"} <= {
        row["name"].split()[0].strip(",") for row in rows
    }
    assert (tmp_path / "benchmarks.json").stat().st_size > 1000


def test_rows_know_their_ratio_and_what_was_not_run(tmp_path: Path) -> None:
    rows = [Row("a", "cpu", 2.0, "s", "b", 3.0, 1.0), not_run("c", "gpu", "s", "no GPU")]
    write(rows, tmp_path)
    first, second = read(tmp_path / "benchmarks.csv")
    assert (first["ratio"], first["fraction_of_floor"]) == ("1.5", "0.5")
    assert second["value"] == NOT_RUN and second["ratio"] == ""


def test_operations_of_a_step_are_those_of_the_products() -> None:
    """One hidden layer each, sizes small enough to count by hand."""
    layers = ("location_embedding", "value_embedding", "attention", "branch", "trunk", "encoder")
    sizes = dict.fromkeys(("embedding_dim", "heads", "head_width", "latent_dim", "truncation"), 1)
    network = AttentionNetwork.model_validate(sizes | {key: [1] for key in layers})
    # a token: location 2, value 2, score 2, projection 2 weights; a sample: encoder (1 + 3) + 2,
    # branch 2 + 1, expansion 3; the trunk 2 weights at each of 3 points; u's gradient 3 unneeded
    assert flops(network, 1, 3, 10, 2) == 6 * (10 * (2 * 8 + 6 + 3 + 3) + 3 * 2) - 2 * 10 * 3
