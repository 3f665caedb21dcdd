"""Generation shard by shard: killed, resumed and uninterrupted runs write the same bytes."""

import json
import logging
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from uqsonet.errors import DataError
from uqsonet.files import file_digest, provenance
from uqsonet.gauss import blocks
from uqsonet.operator.baselines import Cokriging
from uqsonet.runs.functions import Functions
from uqsonet_study import parts, simulation, storage
from uqsonet_study.problems import get_problem
from uqsonet_study.settings import Sizes
from uqsonet_study.simulation import simulate, simulate_shard
from uqsonet_study.storage import ArrayFile, load_functions, write_arrays

SIZES = Sizes(training=23, validation=3, test=9, shard=5)
NAMES = [f"{s}/{a}" for s in ("training", "validation", "test") for a in ("kappa", "u")]


class StopError(Exception):
    """Ends a generation early."""


def count_shards(monkeypatch, stop: int | None = None) -> list:
    """Return the list of shards that are made from now on; the one after `stop` ends it all."""
    made = []

    def shard(problem, seed, split, number, *rest):
        if len(made) == stop:
            raise StopError
        made.append((split, number))
        return simulate_shard(problem, seed, split, number, *rest)

    monkeypatch.setattr(simulation, "simulate_shard", shard)
    return made


def interrupted(folder: Path, monkeypatch, after: int, **changes) -> Path:
    """Generate until `after` shards are stored; returns the folder of shards."""
    with monkeypatch.context() as patch, pytest.raises(StopError):
        count_shards(patch, after)
        simulate("toy_linear", SIZES, 7, folder / "f.h5", folder / "state", **changes)
    return folder / "state"


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """The file of an uninterrupted run and its record; nothing else is left of it."""
    folder = tmp_path_factory.mktemp("whole")
    simulate("toy_linear", SIZES, 7, folder / "f.h5", record=folder / "f.json")
    assert sorted(path.name for path in folder.iterdir()) == ["f.h5", "f.json"]
    return folder / "f.h5"


@pytest.fixture(scope="module")
def whole(stored) -> str:
    """The SHA-256 of that file."""
    return file_digest(stored)


def test_a_stopped_generation_continues_with_the_next_shard(tmp_path, monkeypatch, whole, caplog):
    state = interrupted(tmp_path, monkeypatch, 6)
    assert len(list(state.iterdir())) == 6 and not (tmp_path / "f.h5").exists()
    (state / "notes.txt").write_text("mine")
    made = count_shards(monkeypatch)
    with caplog.at_level(logging.INFO, "uqsonet"):
        simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", state, tmp_path / "f.json")
    assert made == [("test", 0), ("test", 1)] and "6 of 8 parts are there" in caplog.text
    assert file_digest(tmp_path / "f.h5") == whole
    assert [p.name for p in state.iterdir()] == ["notes.txt"]  # other files stay
    record = json.loads((tmp_path / "f.json").read_text())
    assert record["shards"] == {"all": 8, "of_earlier_sessions": 6}


@pytest.mark.parametrize("damage", ["flip", "truncate", "infinite"])
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
            file["u"][2, 3] = np.inf
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


def test_another_version_of_the_package_keeps_finished_parts(tmp_path, monkeypatch):
    state = interrupted(tmp_path, monkeypatch, 5)
    found = provenance()
    later = found | {"versions": found["versions"] | {"uqsonet": "99.0.0"}}
    for module in (parts, storage):
        monkeypatch.setattr(module, "provenance", lambda: later)
    made = count_shards(monkeypatch)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", state)
    assert len(made) == 3
    with ArrayFile(tmp_path / "f.h5", "functions") as file:
        assert file.meta["versions"]["uqsonet"] == "99.0.0"


def test_a_stop_while_the_file_is_put_together_loses_no_shard(tmp_path, monkeypatch, whole):
    def stopped(*_):
        raise StopError

    with monkeypatch.context() as patch, pytest.raises(StopError):
        patch.setattr(simulation, "write_arrays", stopped)
        simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", tmp_path / "state")
    (tmp_path / ".f.h5.killed00.part").touch()
    made = count_shards(monkeypatch)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5", tmp_path / "state")
    assert made == [] and file_digest(tmp_path / "f.h5") == whole
    assert [p.name for p in tmp_path.iterdir()] == ["f.h5"]


def test_a_single_shard_made_alone_is_in_the_file_to_the_byte(stored):
    kappa, u = simulate_shard(get_problem("toy_linear"), 7, "training", 1, 5)
    with ArrayFile(stored, "functions") as file:
        for name, alone in (("kappa", kappa), ("u", u[:, ::2])):
            found = file.read(f"training/{name}", slice(5, 10))
            assert found.tobytes() == alone.float().numpy().tobytes()


def test_the_record_describes_the_file(stored):
    record = json.loads(stored.with_suffix(".json").read_text())
    assert record["file"] == {"sha256": file_digest(stored), "bytes": stored.stat().st_size}
    assert sorted(record["arrays"]) == sorted(NAMES)
    with h5py.File(stored) as file:
        for name, entry in record["arrays"].items():
            assert entry["sha256"] == file[name].attrs["sha256"].decode()
            assert tuple(entry["shape"]) == file[name].shape and entry["dtype"] == file[name].dtype
            assert entry["bytes"] == file[name].nbytes
    assert record["functions_drawn"] == 40 and record["shards"]["of_earlier_sessions"] == 0
    assert record["functions_per_second"] > 0 and record["peak_memory_mib"] > 10
    assert {"seconds", "threads", "platform", "versions", "python"} <= record.keys()


def test_functions_are_the_same_from_disk_in_memory_and_in_blocks(stored):
    lazy = load_functions(stored, "training")
    assert lazy.size == 23 and lazy.fields.name == "toy_linear"
    pairs = list(lazy.blocks(10))  # before anything is held
    assert [len(u) for _, u in pairs] == [10, 10, 3]
    for k, part in enumerate((lazy.kappa, lazy.u)):
        assert part.dtype == torch.float32 and torch.equal(torch.cat([p[k] for p in pairs]), part)
    assert lazy.kappa is lazy.kappa
    held = Functions(lazy.fields, "training", lazy.kappa, lazy.u)
    for (a, b), (c, d) in zip(held.blocks(4), lazy.blocks(4), strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)


def test_the_first_pairs_are_the_data_set_of_that_size(tmp_path, stored):
    simulate("toy_linear", Sizes(training=13, shard=5), 7, tmp_path / "small")
    first, small = (load_functions(p, "training", 13) for p in (stored, tmp_path / "small"))
    assert first.size == 13 and [len(u) for _, u in first.blocks(5)] == [5, 5, 3]
    assert torch.equal(first.kappa, small.kappa) and torch.equal(first.u, small.u)
    with pytest.raises(DataError, match="has 23 training pairs, asked for 24"):
        load_functions(stored, "training", 24)


def test_damage_is_found_behind_the_first_pairs_and_by_a_pass_over_blocks(tmp_path, stored):
    path = Path(shutil.copy(stored, tmp_path))
    with h5py.File(path, "r+") as file:
        file["training/u"][22, 0] = 3.0
    with pytest.raises(DataError, match="training/u' does not match its SHA-256"):
        list(load_functions(path, "training").blocks(23))
    with h5py.File(path, "r+") as file:
        file["training/kappa"][20, 3] += 1
    with pytest.raises(DataError, match="SHA-256"):
        _ = load_functions(path, "training", 5).kappa


@pytest.mark.parametrize(
    ("value", "message"),
    [(-1.0, "must be positive, found -1"), (np.nan, r"not finite at .*\[2, 5")],
)
def test_impossible_inputs_are_refused_when_they_are_read(
    tmp_path, diffusion_files, value, message
):
    with ArrayFile(diffusion_files.functions, "functions") as file:
        arrays, meta = {name: [file.read(name)] for name in NAMES}, file.meta
    arrays["training/kappa"][0][2, 5] = value
    write_arrays(tmp_path / "g.h5", "functions", meta, arrays)
    functions = load_functions(tmp_path / "g.h5", "training")
    assert functions.u.shape == (400, 101)
    with pytest.raises(DataError, match=message):
        list(functions.blocks(300))
    with pytest.raises(DataError, match=message):
        _ = functions.kappa


def test_neither_a_generation_nor_a_fit_holds_more_than_a_block(tmp_path, monkeypatch):
    read, part = [], ArrayFile._part

    def recorded(*arguments):
        found = part(*arguments)
        read.append(found.size)
        return found

    monkeypatch.setattr(ArrayFile, "_part", recorded)
    monkeypatch.setattr(blocks.RowBlocks, "whole", None)  # nobody asks for all pairs
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 5 * 33)
    simulate("toy_linear", SIZES, 7, tmp_path / "f.h5")
    in_parts = Cokriging(load_functions(tmp_path / "f.h5", "training"), 0.1)
    assert len(read) > 10 and max(read) <= 5 * 33
    monkeypatch.undo()
    at_once = Cokriging(load_functions(tmp_path / "f.h5", "training"), 0.1)
    seen = torch.tensor([[-0.5], [0.1]]), torch.tensor([0.6, 1.1])
    one, other = (model.condition(*seen) for model in (in_parts, at_once))
    torch.testing.assert_close(one.mean(), other.mean(), rtol=0, atol=1e-6)
    torch.testing.assert_close(one.std(), other.std(), rtol=0, atol=1e-6)
