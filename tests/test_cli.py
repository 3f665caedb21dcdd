"""The command line of the study: checks, estimates, clear messages."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uqsonet.errors import ConfigError
from uqsonet_study import estimate
from uqsonet_study.cli import app, read_config
from uqsonet_study.config import json_schema
from uqsonet_study.problems import get_problem
from uqsonet_study.references import for_sampling
from uqsonet_study.storage.arrays import write_arrays

ROOT = Path(__file__).resolve().parents[1]
SMOKE = [ROOT / "config.yaml", ROOT / "config" / "smoke.yaml"]
runner = CliRunner()


def test_schema_prints_what_is_committed():
    result = runner.invoke(app, ["schema"])
    assert result.exit_code == 0
    assert result.stdout == json_schema()


def test_weights_and_published_files_pass_the_check() -> None:
    files = [
        ROOT / "src/uqsonet/emulator/weights/diffusion1d.safetensors",
        ROOT / "published/config.json",
    ]
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


def test_estimate_adds_up_a_run_from_pieces_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "ENOUGH", 0.0)  # nothing is repeated
    few = tmp_path / "few.yaml"
    selected = "select: [diffusion1d, diffusion1d_ensemble, elliptic_sde1d]"
    few.write_text(f"{selected}\nresults: results/nowhere\n")  # nothing is finished there
    result = runner.invoke(app, ["estimate", *map(str, [*SMOKE, few]), "--cores", "2"])
    assert result.exit_code == 0, result.output
    assert "core-hours" in result.output
    for stage in ("simulate", "reference", "train", "evaluate"):
        assert stage in result.output


def test_references_cost_what_their_estimator_does_and_no_finer_solutions_than_it_needs():
    evaluation = read_config(SMOKE).evaluation_of("poisson2d", "precise")
    found = estimate._reference_seconds("poisson2d", evaluation, 7)
    assert found == 7 * estimate.CLOSED_FORM_SECONDS
    flow = get_problem("navier_stokes")
    assert for_sampling(flow).tolerance > flow.tolerance > 0


def test_estimate_measures_what_is_asked_for_and_nothing_else(tmp_path, monkeypatch):
    config, timed = read_config(SMOKE), []
    monkeypatch.setattr(estimate, "_timed", lambda action, repeats=3: timed.append(1) or 0.5)
    estimate._pair_seconds.cache_clear()
    functions = f"{config.results}/simulate/diffusion1d.h5"
    costs = {cost.stage: cost for cost in estimate.estimate(config, tmp_path, {functions})}
    estimate._pair_seconds.cache_clear()
    assert {stage for stage, cost in costs.items() if cost.jobs} == {"simulate"}
    assert len(timed) == 1 and costs["simulate"].jobs == 1 and costs["simulate"].seconds > 0
    (tmp_path / "left").write_text("")
    named = ["estimate", *map(str, SMOKE), "--left", str(tmp_path / "left")]
    result = runner.invoke(app, named)
    assert result.exit_code == 0 and result.output == "" and len(timed) == 1


def test_times_are_those_of_the_processor_and_the_least_of_a_few():
    calls: list[int] = []
    assert estimate._timed(lambda: (calls.append(1), time.sleep(0.1)), 2) < 0.05
    assert len(calls) == 2


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "problems: 3"])
def test_an_unreadable_configuration_names_its_file(tmp_path, text):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_config([path])


def test_a_step_of_groups_is_timed_in_whole_groups():
    config = read_config([ROOT / "config.yaml", ROOT / "config" / "attention.yaml"])
    assert estimate.Meter(config).step("diffusion1d", "uqsonet") > 0
