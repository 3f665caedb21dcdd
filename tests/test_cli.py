"""The command line of the study: checks, estimates, clear messages."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from uqsonet.errors import ConfigError
from uqsonet_study.cli import app, read_config
from uqsonet_study.config import json_schema
from uqsonet_study.estimate import estimate, report_of
from uqsonet_study.problems import get_problem
from uqsonet_study.references import for_sampling
from uqsonet_study.storage import write_arrays

ROOT = Path(__file__).resolve().parents[1]
SMOKE = [ROOT / "config.yaml", ROOT / "config" / "smoke.yaml"]
runner = CliRunner()


def test_schema_prints_what_is_committed():
    result = runner.invoke(app, ["schema"])
    assert result.exit_code == 0
    assert result.stdout == json_schema()


def test_weights_and_published_files_pass_the_check() -> None:
    files = [ROOT / "src/uqsonet/emulator/weights/diffusion1d.safetensors"]
    files += (ROOT / "published").glob("*.csv")
    result = runner.invoke(app, ["check", *map(str, files)])
    assert result.exit_code == 0, result.stdout
    assert result.stdout.count("ok ") == len(files) > 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.h5", b"not hdf5", "not a readable HDF5 file"),
        ("a.safetensors", b"\x00" * 20, "not a readable safetensors file"),
        ("a.txt", b"", "neither .h5 nor .safetensors"),
        ("poems.h5", None, "unknown kind 'poems'"),
        ("", None, "holds no .h5 or .safetensors file"),
    ],
)
def test_check_says_what_is_wrong(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    elif name:
        write_arrays(tmp_path / name, "poems", {}, {})
    result = runner.invoke(app, ["check", str(tmp_path / name)])
    assert result.exit_code == 1
    assert words in result.stdout


def test_estimate_adds_up_what_jobs_took(tmp_path):
    few = tmp_path / "few.yaml"
    selected = "select: [diffusion1d, diffusion1d_ensemble, elliptic_sde1d]"
    few.write_text(f"{selected}\nresults: results/nowhere\n")  # nothing is finished there
    result = runner.invoke(app, ["estimate", *map(str, [*SMOKE, few]), "--cores", "2"])
    assert result.exit_code == 0, result.output
    assert "core-hours" in result.output
    for stage in ("simulate", "reference", "train", "evaluate"):
        assert stage in result.output
    config = read_config(SMOKE)
    costs = {c.stage: c for c in estimate(config, {f"{config.results}/data/navier_stokes.h5"})}
    assert {stage for stage, cost in costs.items() if cost.jobs} == {"simulate"}
    assert costs["simulate"].minutes > 5 and costs["simulate"].total == 5
    assert report_of(config, estimate(config, {}), 1) == [f"Nothing is left in {config.results}/."]


def test_references_are_solved_no_finer_than_they_need():
    flow = get_problem("navier_stokes")
    assert for_sampling(flow).tolerance > flow.tolerance > 0


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "problems: 3"])
def test_an_unreadable_configuration_names_its_file(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_config([path])
