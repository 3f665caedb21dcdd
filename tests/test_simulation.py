"""Generation shard by shard: killed, resumed and uninterrupted runs write the same bytes."""

import json
import logging
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import uqsonet
from tests.watch import wait_for
from uqsonet import blocks
from uqsonet.baselines import Cokriging
from uqsonet.data import Functions, load_functions
from uqsonet.errors import DataError
from uqsonet.problems import get_problem
from uqsonet.storage import arrays
from uqsonet.storage.arrays import write_arrays
from uqsonet.storage.files import file_digest, provenance
from uqsonet.storage.reading import ArrayFile
from uqsonet_study import parts, simulation
from uqsonet_study.check import check_path
from uqsonet_study.config import ProblemConfig
from uqsonet_study.simulation import simulate, simulate_shard

SIZES = ProblemConfig(training=23, validation=3, test=9, shard=5)
NAMES = [f"{s}/{a}" for s in ("training", "validation", "test") for a in ("kappa", "u")]


class StopError(Exception):
    """Ends a generation early."""


def interrupted(folder: Path, monkeypatch, after: int, **changes) -> Path:
    """Generate until `after` shards are stored; returns the folder of shards."""
    made = []

    def shard(*arguments):
        if len(made) == after:
            raise StopError
        made.append(arguments)
        return simulate_shard(*arguments)

    with monkeypatch.context() as patch, pytest.raises(StopError):
        patch.setattr(simulation, "simulate_shard", shard)
        simulate("toy_linear", SIZES, 7, folder / "f.h5", folder / "state", **changes)
    return folder / "state"


def count_shards(monkeypatch) -> list:
    made = []

    def shard(problem, seed, split, number, size, device):
        made.append((split, number))
        return simulate_shard(problem, seed, split, number, size, device)

    monkeypatch.setattr(simulation, "simulate_shard", shard)
    return made


@pytest.fixture
def whole(tmp_path) -> str:
    """SHA-256 of an uninterrupted run; nothing else is left of it."""
    simulate("toy_linear", SIZES, 7, tmp_path / "whole.h5")
    assert [p.name for p in tmp_path.iterdir()] == ["whole.h5"]
    return file_digest(tmp_path / "whole.h5")


def test_a_stopped_generation_continues_with_the_next_shard(tmp_path, monkeypatch, whole, caplog):
    state = interrupted(tmp_path, monkeypatch, 6)
    assert len(list(state.iterdir())) == 6 and not (tmp_path / "f.h5").exists()
    assert all(problem is None for _, problem in check_path(state))
    made = count_shards(monkeypatch)
    with caplog.at_level(logging.INFO, "uqsonet"):
        simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", state, tmp_path / "f.json")
    assert made == [("test", 0), ("test", 1)] and "6 of 8 parts are there" in caplog.text
    assert file_digest(tmp_path / "f.h5") == whole and not state.exists()
    record = json.loads((tmp_path / "f.json").read_text())
    assert record["shards"] == {"all": 8, "of_earlier_sessions": 6}


@pytest.mark.parametrize("damage", ["flip", "truncate", "value", "width"])
def test_a_damaged_shard_is_noticed_and_made_again(tmp_path, monkeypatch, whole, caplog, damage):
    state = interrupted(tmp_path, monkeypatch, 3)
    victim = state / "training_000001.h5"
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        with ArrayFile(victim, "part") as file:
            position = data.find(file.read("kappa").tobytes()[:16])
        data[position + 1] ^= 0x10
        victim.write_bytes(data)
    elif damage == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    else:
        with h5py.File(victim, "r+") as file:
            file["u"][2, 3] = 0.125 if damage == "value" else np.inf
    made = count_shards(monkeypatch)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", state)
    assert made[0] == ("training", 1) and len(made) == 6
    assert "a part is made again" in caplog.text and victim.name in caplog.text
    assert file_digest(tmp_path / "f.h5") == whole


@pytest.mark.parametrize(
    ("changes", "config", "made", "word"),
    [
        ({"code": "another"}, SIZES, 8, "code changed"),
        ({"code": "one"}, SIZES.model_copy(update={"shard": 4}), 10, "size changed"),
        # Growing data keep whole shards; the last one had been cut.
        ({"code": "one"}, SIZES.model_copy(update={"training": 24}), 4, "kept changed"),
    ],
)
def test_shards_of_another_run_are_refused(
    tmp_path, monkeypatch, caplog, changes, config, made, word
):
    state = interrupted(tmp_path, monkeypatch, 5, code="one")
    found = count_shards(monkeypatch)
    simulate("toy_linear", config, 7, tmp_path / "f.h5", state, **changes)
    assert len(found) == made and word in caplog.text
    simulate("toy_linear", config, 7, tmp_path / "fresh.h5", **changes)
    assert file_digest(tmp_path / "f.h5") == file_digest(tmp_path / "fresh.h5")
    assert not state.exists()


def test_another_version_of_the_package_keeps_finished_parts(tmp_path, monkeypatch, whole):
    state = interrupted(tmp_path, monkeypatch, 5)
    for module in (parts, arrays):
        monkeypatch.setattr(module, "provenance", released(provenance()))
    made = count_shards(monkeypatch)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", state)
    assert len(made) == 3
    with ArrayFile(tmp_path / "f.h5", "functions") as file:
        assert file.meta["versions"]["uqsonet"] == "99.0.0"


def released(found: dict) -> Callable[[], dict]:
    """Return the versions of a later release, in the same environment."""
    return lambda: found | {"versions": found["versions"] | {"uqsonet": "99.0.0"}}


def test_a_stop_while_the_file_is_put_together_loses_no_shard(tmp_path, monkeypatch, whole):
    def stopped(*_):
        raise StopError

    with monkeypatch.context() as patch, pytest.raises(StopError):
        patch.setattr(simulation, "write_arrays", stopped)
        simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", tmp_path / "state")
    (tmp_path / ".f.h5.killed.part").touch()
    made = count_shards(monkeypatch)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", tmp_path / "state")
    assert made == [] and file_digest(tmp_path / "f.h5") == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.h5", "whole.h5"]


def test_other_files_in_the_state_folder_stay(tmp_path, whole):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "notes.txt").write_text("mine")
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", tmp_path / "state")
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["notes.txt"]


def test_a_single_shard_made_alone_is_in_the_file_to_the_byte(tmp_path):
    simulate("diffusion1d", ProblemConfig(training=14, shard=5), 7, tmp_path / "f.h5")
    problem = get_problem("diffusion1d")
    kappa, u = simulate_shard(problem, 7, "training", 1, 5)
    with ArrayFile(tmp_path / "f.h5", "functions") as file:
        for name, alone in (("kappa", kappa), ("u", u[:, ::4])):
            stored = file.read(f"training/{name}", slice(5, 10))
            assert stored.tobytes() == alone.float().numpy().tobytes()


def test_the_record_describes_the_file(tmp_path):
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", record=tmp_path / "f.json")
    record = json.loads((tmp_path / "f.json").read_text())
    assert record["file"]["sha256"] == file_digest(tmp_path / "f.h5")
    assert record["file"]["bytes"] == (tmp_path / "f.h5").stat().st_size
    assert sorted(record["arrays"]) == sorted(NAMES)
    with h5py.File(tmp_path / "f.h5") as file:
        for name, entry in record["arrays"].items():
            assert entry["sha256"] == file[name].attrs["sha256"].decode()
            assert tuple(entry["shape"]) == file[name].shape and entry["dtype"] == file[name].dtype
            assert entry["bytes"] == file[name].nbytes
    assert record["functions_drawn"] == 40 and record["shards"]["of_earlier_sessions"] == 0
    assert record["functions_per_second"] > 0 and record["peak_memory_mib"] > 10
    assert {"seconds", "threads", "platform", "versions", "python"} <= record.keys()


def test_functions_are_the_same_from_disk_in_memory_and_in_blocks(tmp_path):
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5")
    lazy = load_functions(tmp_path / "f.h5", "training")
    assert lazy.size == 23 and lazy.fields.name == "toy_linear"
    pairs = list(lazy.blocks(10))  # before anything is held
    assert [len(u) for _, u in pairs] == [10, 10, 3]
    for k, part in enumerate((lazy.kappa, lazy.u)):
        assert part.dtype == torch.float32 and torch.equal(torch.cat([p[k] for p in pairs]), part)
    assert lazy.kappa is lazy.kappa
    held = Functions(lazy.fields, "training", lazy.kappa, lazy.u)
    for (a, b), (c, d) in zip(held.blocks(4), lazy.blocks(4), strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)


def test_the_first_pairs_are_the_data_set_of_that_size(tmp_path):
    for name, training in (("large", 23), ("small", 13)):
        simulate("toy_linear", ProblemConfig(training=training, shard=10), 7, tmp_path / name)
    first = load_functions(tmp_path / "large", "training", 13)
    small = load_functions(tmp_path / "small", "training")
    assert first.size == 13 and [len(u) for _, u in first.blocks(5)] == [5, 5, 3]
    assert torch.equal(first.kappa, small.kappa) and torch.equal(first.u, small.u)
    with pytest.raises(DataError, match="has 23 training pairs, asked for 24"):
        load_functions(tmp_path / "large", "training", 24)


def test_damage_behind_the_first_pairs_is_found_too(tmp_path):
    path = tmp_path / "f.h5"
    simulate("toy_linear", SIZES, 7, path)
    with h5py.File(path, "r+") as file:
        file["training/kappa"][20, 3] += 1
    with pytest.raises(DataError, match="SHA-256"):
        _ = load_functions(path, "training", 5).kappa


@pytest.mark.parametrize(
    ("value", "message"),
    [(-1.0, "must be positive, found -1"), (np.nan, r"not finite at .*\[2, 5")],
)
@pytest.mark.parametrize("use", ["kappa", "blocks"])
def test_impossible_inputs_are_refused_when_they_are_read(tmp_path, value, message, use):
    simulate("diffusion1d", ProblemConfig(training=4, shard=4), 7, tmp_path / "f.h5")
    with ArrayFile(tmp_path / "f.h5", "functions") as file:
        arrays = {name: [file.read(name)] for name in NAMES}
        meta = file.meta
    arrays["training/kappa"][0][2, 5] = value
    write_arrays(tmp_path / "g.h5", "functions", meta, arrays)
    functions = load_functions(tmp_path / "g.h5", "training")
    assert functions.u.shape == (4, 101)
    with pytest.raises(DataError, match=message):
        functions.kappa if use == "kappa" else list(functions.blocks(3))
    ((_, problem),) = check_path(tmp_path / "g.h5")
    assert problem and re.search(message, problem)


def test_damage_of_the_last_array_is_noticed_by_a_pass_over_pairs(tmp_path):
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        file["training/u"][22, 0] = 3.0
    with pytest.raises(DataError, match="training/u' does not match its SHA-256"):
        list(load_functions(tmp_path / "f.h5", "training").blocks(23))


def test_cokriging_from_many_blocks_is_that_from_one(monkeypatch):
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(0), 300)
    functions = Functions(problem.fields, "training", kappa.float(), u[:, ::4].float())
    x, y = torch.tensor([[-0.5], [0.1], [0.6]]), torch.tensor([0.6, 1.1, 0.8])
    one = Cokriging(functions, 0.1).condition(x, y)
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 401 * 17)
    many = Cokriging(functions, 0.1).condition(x, y)
    torch.testing.assert_close(many.mean(), one.mean(), rtol=0, atol=1e-6)
    torch.testing.assert_close(many.std(), one.std(), rtol=0, atol=1e-6)


def child(code: str, *arguments: object, **more: str) -> subprocess.Popen[str]:
    """Start Python with code, its arguments and more of an environment."""
    environment = os.environ | {"PYTHONPATH": str(Path(uqsonet.__file__).parents[1])} | more
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, env=environment, text=True)


KILLED = """
import sys
from pathlib import Path
from uqsonet_study import simulation
from uqsonet_study.config import ProblemConfig
config = ProblemConfig(training=90, validation=7, test=11, shard=6)
make = simulation.simulate_shard
def allowed(*arguments):
    sys.stdin.readline()  # so that kills find it at work; at the end all are allowed
    return make(*arguments)
simulation.simulate_shard = allowed
print("ready", flush=True)
folder = Path(sys.argv[1])
simulation.simulate("diffusion1d", config, 3, folder / "f.h5", folder / "state")
print("done", flush=True)
"""


@pytest.mark.long
def test_kill_dash_nine_at_random_moments_changes_no_byte(tmp_path):
    config = ProblemConfig(training=90, validation=7, test=11, shard=6)
    simulate("diffusion1d", config, 3, tmp_path / "whole.h5")
    chance, found = random.Random(5), [0]

    def shards() -> int:
        return len(list((tmp_path / "state").glob("training*.h5")))

    for kill in range(6):
        with child(KILLED, tmp_path) as process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.stdin.write("\n\n")  # two of the 15 shards
            process.stdin.flush()
            if kill % 2:  # after the first of them; the other kills come at any moment
                wait_for(lambda: shards() > found[-1] or None, lambda: None, pause=0.001)
            time.sleep(chance.uniform(0.0, 0.02))
            process.kill()
        found.append(shards())
        assert not (tmp_path / "f.h5").exists()
    with child(KILLED, tmp_path) as process:
        output, _ = process.communicate()
    assert output == "ready\ndone\n"
    assert found == sorted(found) and found[-1] >= 3, found
    assert file_digest(tmp_path / "f.h5") == file_digest(tmp_path / "whole.h5")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.h5", "whole.h5"]


MEMORY = """
import re, sys
from pathlib import Path
import torch
from uqsonet import blocks
from uqsonet.data import load_functions
from uqsonet.fields import Grid
from uqsonet.gaussian_process import GaussianField
from uqsonet.problems.base import Problem
from uqsonet_study import simulation
from uqsonet_study.config import ProblemConfig

class Wide(Problem):
    name = "wide"
    def __init__(self):
        self.grid = Grid((0.0,), (1.0,), (1024,))
        waves = lambda x: torch.cos(torch.arange(12) * torch.pi * x) / (1 + torch.arange(12))
        self.prior = GaussianField(self.grid.points(), lambda x: 1 + 0 * x[:, 0],
                                   lambda a, b: waves(a) @ waves(b).T)
    def solve(self, kappa):
        return kappa.square()

wide = Wide()
simulation.get_problem = lambda name: wide
from uqsonet.baselines import Cokriging

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

blocks.BLOCK_VALUES = 500 * 1024
folder = Path(sys.argv[1])
def run(size, name):
    config = ProblemConfig(training=size, validation=2, test=2, shard=500)
    simulation.simulate("wide", config, 0, folder / f"{name}.h5")
    made = peak()
    Cokriging(load_functions(folder / f"{name}.h5", "training"), 0.1)
    return made, peak()

for name in ("first", "small"):
    print(*run(1000, name), flush=True)
print(*run(20_000, "large"), flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_grows_by_much_less_than_the_data(tmp_path):
    """Twenty times the data of first, small runs; what those took is there already.

    The allocator gives freed blocks back at once here. By default it learns to keep them, by chance
    up to half of the data.
    """
    at_once = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**18))
    with child(MEMORY, tmp_path, **at_once) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    *_, (_, small), (made, fitted) = (
        [float(x) for x in line.split()] for line in output.split("\n") if line
    )
    data = (tmp_path / "large.h5").stat().st_size / 2**20
    assert data > 155  # MiB: 20,000 rows of 4 KiB, kappa and u
    # Holding kappa or u whole takes half of the data.
    assert made - small < 0.1 * data, f"generation: {small:.0f} to {made:.0f} MiB"
    # Coefficients of all pairs, 120 numbers each, are kept: 9 MiB, and some room for the allocator.
    assert fitted - small < 0.3 * data, f"cokriging: {small:.0f} to {fitted:.0f} MiB"
