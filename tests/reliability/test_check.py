"""`uqsonet check`: tables, JSON and checkpoints besides data and weights, and whole trees."""

from pathlib import Path

import pytest

from tests.reliability.fuzz_files import make_files
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
        *("t.csv", "t.json"),
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


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    ((_, problem),) = check_path(tmp_path / "none.h5")
    assert problem == "no such file"
