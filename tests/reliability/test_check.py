"""`uqsonet check`: tables, JSON and checkpoints besides data and weights, and whole trees."""

from pathlib import Path

import pytest
import torch

from tests.reliability.fuzz_files import make_files
from uqsonet.models.weights import shipped
from uqsonet.storage.weights import read_weights, write_weights
from uqsonet_study.check import check_path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "files"
    make_files(folder)
    (folder / "t.csv").write_text("method,metric,value\nuqsonet,crps,0.5\nuqsonet,w2,\n")
    (folder / "t.json").write_text('{"a": [1, null]}')
    return folder


def test_a_sound_tree_passes_file_by_file(files: Path) -> None:
    found = dict(check_path(files))
    assert {path.name for path in found} == {
        *("f.h5", "s.h5", "r.h5", "test_000000.h5", "w.safetensors", "c.safetensors"),
        *("m.safetensors", "t.csv", "t.json"),
    }
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b\n1,2,3\n", "line 2 has 3 fields, expected 2"),
        ("a.csv", b"a,b\n1,2\n3", "line 3 has 1 fields"),
        ("a.csv", b"a,value\nx,nan\n", "line 2, value: found 'nan'"),
        ("a.csv", b"a,value\nx,-inf\n", "found '-inf'"),
        ("a.csv", b"a\n\xff\n", "not a readable CSV file"),
        ("a.csv", b'a\n"half', "not a readable CSV file"),
        ("a.json", b'{"a": ', "not a readable JSON file"),
        ("a.json", b'{"a": NaN}', "holds NaN"),
        ("a.json", b"[1, -1e999]", "holds -1e999, which is not finite"),
        ("a.json", b"[" * 100_000, "not a readable JSON file"),
        ("a.json", b"\xff", "not a readable JSON file"),
    ],
)
def test_a_damaged_table_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    ((_, problem),) = check_path(tmp_path / name)
    assert problem is not None and message in problem


def test_a_checkpoint_without_its_parts_is_refused(files: Path, tmp_path: Path) -> None:
    tensors, meta = read_weights(files / "c.safetensors")
    bad = tmp_path / "c.safetensors"
    write_weights(bad, {k: v for k, v in tensors.items() if "generator" not in k}, meta)
    ((_, problem),) = check_path(bad)
    assert problem == "a checkpoint without generator/"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"buffer/bases.output_mean": 1e308}, "trial 0 answers a sensor with values"),
        ({"buffer/bases.input_mean": -1e308}, "trial 0 answers a sensor with values"),
        ({"parameter/network.layers.0.weight": [1, 3e38]}, "trial 1 answers a sensor with values"),
        ({"noise_std": float("nan")}, "noise_std must be finite"),
        ({"noise_std": 1e200}, "noise_std must be finite, at most"),
        ({"noise_std": -0.1}, "not negative, found -0.1"),
        ({"noise_std": "0.1"}, "header cannot be read"),
    ],
)
def test_weights_whose_answers_are_not_finite_are_refused(
    files: Path, tmp_path: Path, changed: dict, message: str
) -> None:
    trained = any("bases" in name for name in changed)
    tensors, meta = read_weights(shipped()["diffusion1d"] if trained else files / "w.safetensors")
    for name, value in changed.items():
        if name in meta:
            meta[name] = value
        else:
            own = tensors[name]
            each = torch.tensor(value, dtype=own.dtype)
            tensors[name] = own + each.view(-1, *[1] * (own.ndim - 1)) if each.ndim else own + each
    write_weights(tmp_path / "w.safetensors", tensors, meta)
    ((_, problem),) = check_path(tmp_path / "w.safetensors")
    assert problem is not None and message in problem


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    ((_, problem),) = check_path(tmp_path / "none.h5")
    assert problem == "no such file"
