"""What is in `published/`, and that the full data sets are made again: a shard from its seed."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import uqsonet
from uqsonet.files import array_digest, file_digest
from uqsonet.operator.devices import processor
from uqsonet_study import problems
from uqsonet_study.problems import get_problem
from uqsonet_study.publish import shown
from uqsonet_study.simulation import simulate_shard

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "published"
SIZES = {"diffusion1d": 20_000} | dict.fromkeys(
    ("poisson2d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes"), 80_000
)
DEAR = ("elliptic_sde2d", "navier_stokes")


def test_published_are_numbers_tables_logs_and_the_pictures_of_pages() -> None:
    files = [path for path in PUBLISHED.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".csv", ".json", ".tex", ".yaml", ".png"}
    pictures = {path for path in shown(ROOT) if path.is_relative_to(PUBLISHED)}
    assert {path for path in files if path.suffix == ".png"} == pictures
    assert sum(path.stat().st_size for path in files) < 15_000_000


def test_published_files_are_those_that_the_provenance_names() -> None:
    found = sorted(PUBLISHED.rglob("provenance.json"))
    assert len(found) == 7
    for path in found:
        runs = json.loads(path.read_text())["runs"]
        for run in runs.values():
            for name, digest in run["sha256"].items():
                assert file_digest(path.parent / name) == digest, name
        card = pd.read_csv(path.parent / "scorecard.csv")
        assert set(card["run"].dropna()) <= set(runs)
        assert card.loc[card["ours"].notna(), "run"].notna().all()


def test_the_weights_of_the_library_load_without_the_file_of_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model knows its fields: the name of a problem that nobody has is no obstacle."""
    monkeypatch.setattr(problems, "get_problem", None)
    monkeypatch.setattr(problems, "problem_names", list)
    for name in ("diffusion1d", "poisson2d"):
        model = uqsonet.load(name)
        mean = model.condition(model.fields.input.grid.points()[[3, -4]], [0.9, 1.1]).mean()
        assert mean.shape == (model.fields.output.grid.size,) and mean.isfinite().all()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in DEAR else ()) for n in SIZES]
)
def test_a_shard_of_the_full_set_is_made_again(name: str) -> None:
    """Byte for byte on the same processor; elsewhere to the rounding of another BLAS."""
    record = json.loads((PUBLISHED / f"data/{name}.json").read_text())
    config = record["config"]
    assert config["training"] == SIZES[name]
    shard = simulate_shard(get_problem(name), record["seed"], "test", 0, config["shard"])
    for key, values in zip(("kappa", "u"), shard, strict=True):
        array = values[: config["test"]].float().numpy()
        probe = np.array(record["probe"][key])
        np.testing.assert_allclose(array[0, :: array.shape[1] // 7], probe, rtol=1e-4, atol=1e-5)
        if record["processor"] == processor():
            assert array_digest(array) == record["arrays"][f"test/{key}"]["sha256"]
