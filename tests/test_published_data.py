"""The full data sets that were generated can be made again: a shard of each, from its seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from uqsonet.devices import processor
from uqsonet.problems import get_problem
from uqsonet.storage.files import array_digest
from uqsonet_study.simulation import simulate_shard

RECORDS = sorted((Path(__file__).parents[1] / "published" / "simulate").glob("*.json"))


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
