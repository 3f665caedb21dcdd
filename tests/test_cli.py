"""The command line: checks, estimates, clear messages."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uqsonet.errors import ConfigError
from uqsonet.storage.arrays import write_arrays
from uqsonet_study import estimate
from uqsonet_study.cli import app, read_config
from uqsonet_study.config import json_schema

ROOT = Path(__file__).resolve().parents[1]
runner = CliRunner()


def test_schema_prints_what_is_committed() -> None:
    result = runner.invoke(app, ["schema"])
    assert result.exit_code == 0
    assert result.stdout == json_schema()


def test_weights_and_published_files_pass_the_check() -> None:
    files = [ROOT / "src/uqsonet/weights/diffusion1d.safetensors", ROOT / "published/config.json"]
    files += (ROOT / "published").glob("*.csv")
    result = runner.invoke(app, ["check", *map(str, files)])
    assert result.exit_code == 0, result.stdout
    assert result.stdout.count("ok ") == len(files) > 5


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


def test_estimate_measures_what_is_asked_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [ROOT / "config.yaml", ROOT / "config" / "smoke.yaml"]
    config, timed = read_config(files), []
    monkeypatch.setattr(estimate, "_timed", lambda action, repeats=3: timed.append(1) or 0.5)
    estimate._pair_seconds.cache_clear()
    functions = f"{config.results}/simulate/diffusion1d.h5"
    costs = {cost.stage: cost for cost in estimate.estimate(config, tmp_path, {functions})}
    estimate._pair_seconds.cache_clear()
    assert {stage for stage, cost in costs.items() if cost.jobs} == {"simulate"}
    assert len(timed) == 1 and costs["simulate"].jobs == 1 and costs["simulate"].seconds > 0
    estimate.estimate(config, tmp_path, set())
    assert len(timed) == 1
    (tmp_path / "left").write_text("")
    named = ["estimate", *map(str, files), "--left", str(tmp_path / "left")]
    result = runner.invoke(app, named)
    assert result.exit_code == 0 and result.output == ""


def test_times_are_those_of_the_processor() -> None:
    assert estimate._timed(lambda: time.sleep(0.2), 1) < 0.1
    spent = []
    estimate._timed(lambda: spent.append(sum(i * i for i in range(4_000_000))), 100)
    assert len(spent) < 20


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


def test_a_step_of_groups_is_timed_in_whole_groups() -> None:
    config = read_config([ROOT / "config.yaml", ROOT / "config" / "attention.yaml"])
    assert estimate.Meter(config).step("diffusion1d", "uqsonet") > 0
