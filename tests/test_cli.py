"""The command line: checks, estimates, clear messages."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from uqsonet.errors import ConfigError
from uqsonet.storage.arrays import write_arrays
from uqsonet_study.cli import app, read_config
from uqsonet_study.config import json_schema

ROOT = Path(__file__).resolve().parents[1]
runner = CliRunner()


def test_schema_prints_what_is_committed() -> None:
    result = runner.invoke(app, ["schema"])
    assert result.exit_code == 0
    assert result.stdout == json_schema()


def test_published_weights_pass_the_check() -> None:
    result = runner.invoke(app, ["check", str(ROOT / "published")])
    assert result.exit_code == 0, result.stdout
    assert result.stdout.count("ok ") >= 2


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.h5", b"not hdf5", "not a readable HDF5 file"),
        ("a.safetensors", b"\x00" * 20, "not a readable safetensors file"),
        ("a.txt", b"", "neither .h5 nor .safetensors"),
    ],
)
def test_check_says_what_is_wrong(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    result = runner.invoke(app, ["check", str(tmp_path / name)])
    assert result.exit_code == 1
    assert words in result.stdout


def test_check_of_an_empty_folder_fails(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 1
    assert "no .h5" in result.stdout


def test_check_refuses_an_unknown_kind(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.h5", "poems", {}, {})
    result = runner.invoke(app, ["check", str(tmp_path / "a.h5")])
    assert result.exit_code == 1
    assert "poems" in result.stdout


def test_estimate_adds_up_the_default_run_in_seconds() -> None:
    files = [str(ROOT / "config.yaml"), str(ROOT / "config" / "smoke.yaml")]
    result = runner.invoke(app, ["estimate", *files, "--cores", "2"])
    assert result.exit_code == 0, result.output
    assert "core-hours" in result.output
    for stage in ("simulate", "reference", "train", "evaluate"):
        assert stage in result.output


def test_overlays_that_change_what_is_run_have_their_own_results() -> None:
    """No two share a folder; some only add experiments or outputs (tests/test_config.py)."""
    base = ROOT / "config.yaml"
    overlays = {path.stem: path for path in (ROOT / "config").glob("*.yaml")}
    added = {read_config([base, overlays.pop(n)]).results for n in ("ablation",)}
    roots = {read_config([base, path]).results for path in overlays.values()}
    assert len(roots) == len(overlays) and added == {read_config([base]).results}
    assert not added & roots


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "problems: 3"])
def test_an_unreadable_configuration_names_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_config([path])
