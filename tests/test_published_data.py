"""The full data sets that were generated can be made again: a shard of each, from its seed."""

import json
from pathlib import Path

import numpy as np
import pytest

import uqsonet
from uqsonet import problems
from uqsonet.devices import processor
from uqsonet.problems import get_problem
from uqsonet.storage.files import array_digest, file_digest
from uqsonet_study.simulation import simulate_shard

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted((ROOT / "published" / "simulate").glob("*.json"))


def test_there_is_a_record_of_every_data_set_at_full_size():
    sizes = {path.stem: json.loads(path.read_text())["config"]["training"] for path in RECORDS}
    assert sizes == {
        "diffusion1d": 20_000,
        "poisson2d": 80_000,
        "elliptic_sde1d": 80_000,
        "elliptic_sde2d": 80_000,
        "navier_stokes": 80_000,
    }


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_shard_of_the_full_set_is_made_again(path):
    """Byte for byte on the same processor; elsewhere to the rounding of another BLAS."""
    record = json.loads(path.read_text())
    config = record["config"]
    problem = get_problem(record["problem"])
    kappa, u = simulate_shard(problem, record["seed"], "test", 0, config["shard"])
    arrays = {
        "kappa": kappa[: config["test"]].float().numpy(),
        "u": u[: config["test"]].float().numpy(),
    }
    for name, array in arrays.items():
        probe = np.array(record["probe"][name])
        np.testing.assert_allclose(array[0, :: array.shape[1] // 7], probe, rtol=1e-4, atol=1e-5)
        if record["processor"] == processor():
            assert array_digest(array) == record["arrays"][f"test/{name}"]["sha256"]


def test_published_files_are_those_that_the_provenance_names() -> None:
    folder = ROOT / "published"
    runs = json.loads((folder / "provenance.json").read_text())["runs"]
    for run in runs.values():
        for name, digest in run["sha256"].items():
            assert file_digest(folder / name) == digest, name


def test_published_weights_load_without_the_file_of_a_problem(monkeypatch) -> None:
    """A model knows its fields: the name of a problem that nobody has is no obstacle."""
    monkeypatch.setattr(problems, "get_problem", None)
    monkeypatch.setattr(problems, "problem_names", list)
    found = sorted((ROOT / "published").rglob("*.safetensors"))
    assert len(found) >= 5
    for path in found:
        model = uqsonet.load(path)
        points = model.fields.input.grid.points()[[3, -4]]
        mean = model.condition(points, [0.7, 1.4]).mean()
        assert mean.shape == (model.fields.output.grid.size,) and mean.isfinite().all()
