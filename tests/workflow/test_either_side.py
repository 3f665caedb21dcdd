"""Sensors of both sides through the whole DAG, with `config/either_side.yaml` in small."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import fresh_copy

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]

FILES = "config/smoke.yaml", "config/either_side.yaml", "tiny.yaml"
RESULTS = Path("results/smoke")
SMALL: dict[str, Any] = {
    "training": 500,
    "output_noise": [0.05],
    "sensors": {"counts": [1, 3], "pool": 100},
    "output_sensors": {"counts": [1, 3], "pool": 100},
    "sets": {"precise": 2},
    "reference_samples": {"precise": 20},
    "model_samples": {"precise": 400},
}
NAMES = ("either_side", "either_side_input")


def test_both_sides_are_scored_against_chains_beside_the_baselines(tmp_path: Path) -> None:
    project = fresh_copy(tmp_path / "project")
    overlay = {"results": str(RESULTS), "experiments": dict.fromkeys(NAMES, SMALL)}
    (project.path / "tiny.yaml").write_text(yaml.safe_dump(overlay))
    wanted = [str(RESULTS / f"summary/{name}.csv") for name in NAMES]
    result = project.snakemake("--configfile", *FILES, "--", *wanted)
    assert result.returncode == 0, result.stdout + result.stderr
    for path in wanted:
        table = pd.read_csv(project.path / path)
        methods = {"sensor_free", "cokriging", "regression", "uqsonet", "reference"}
        assert methods <= set(table["method"])
        assert set(table["sensors"]) == {1, 3}
        assert "effective_size" in set(table["metric"])
