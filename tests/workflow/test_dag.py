"""What real Snakemake does again, refuses and shares; `tests/test_pipeline.py` asks the plan."""

import filecmp
from pathlib import Path

import h5py
import pytest
import yaml

from tests.workflow.conftest import CORES, TINY, Project, fresh_copy, read
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Paths

pytestmark = [pytest.mark.dag, pytest.mark.timeout(0)]
ONE_EACH = {"jobs": {"together": False}}
"""One job each, as in the full run."""


def trained(project: Project) -> list[str]:
    files = ("config.yaml", "config/smoke.yaml", "config/tiny.yaml")
    config = read_config([project.path / file for file in files])
    return Paths(config).trained(config.cases["diffusion1d"], "uqsonet", "safetensors")


def test_one_job_each_on_other_cores_gives_the_same_bytes(tiny: Project, tmp_path: Path) -> None:
    other = fresh_copy(tmp_path / "other")
    overlays = other.overlay(read("tiny"), "tiny"), other.overlay(ONE_EACH)
    result = other.smoke(*overlays, cores=2 if CORES == 1 else 1)
    assert result.returncode == 0, result.stdout + result.stderr
    names = {
        str(path.relative_to(tiny.path))
        for path in (tiny.path / TINY).rglob("*")
        if path.suffix in (".h5", ".safetensors", ".csv", ".tex", ".pdf", ".png")
    }
    # They hold measured times, or which job made what.
    times = [name for name in names if "/train/" in name and name.endswith(".csv")]
    times += [str(TINY / f"tables/{name}") for name in ("training-cost.csv", "training-cost.tex")]
    times += [str(TINY / f"tables/all.{kind}") for kind in ("csv", "tex")]
    assert len(names - {*times}) > 20
    for name in names - {*times}:
        assert filecmp.cmp(tiny.path / name, other.path / name, shallow=False), name


def test_a_bad_configuration_is_refused_at_once_with_every_key(editable: Project) -> None:
    values = {"experimentz": {}, "results": "../elsewhere"}
    values |= {"experiments": {"diffusion1d": {"noise_std": -1}}}
    result = editable.smoke("config/tiny.yaml", editable.overlay(values), dry=True)
    output = result.stdout + result.stderr
    assert result.returncode != 0 and "Traceback" not in output
    for words in ("experimentz: unknown key", "results: ", "diffusion1d.noise_std: "):
        assert words in output


def test_damaged_data_stop_the_job_that_reads_them(editable: Project) -> None:
    path = editable.path / TINY / "data/diffusion1d.h5"
    (weights,) = trained(editable)
    (editable.path / weights).unlink()
    with h5py.File(path, "r+") as file:
        file["training/kappa"][3, 7] = float("nan")
    result = editable.smoke("config/tiny.yaml", targets=(weights,))
    output = result.stdout + result.stderr
    assert result.returncode != 0 and not (editable.path / weights).exists()
    assert "results/tiny/data/diffusion1d.h5" in output and "SHA-256" in output


def test_a_new_problem_and_a_new_method_need_one_file_each(editable: Project) -> None:
    source = editable.path / "src/uqsonet"
    problems = editable.path / "src/uqsonet_study/problems"
    text = (problems / "diffusion1d.py").read_text()
    text = text.replace('name = "diffusion1d"', 'name = "reaction1d"').replace("std=0.5", "std=0.4")
    (problems / "reaction1d.py").write_text(text)
    text = (source / "networks/vidon.py").read_text()
    text = text.replace('method = "vidon"', 'method = "other"')
    (source / "networks/other.py").write_text(text.replace("KarhunenLoeveVIDON(", "Other("))
    recipe = yaml.safe_load((editable.path / "config.yaml").read_text())
    recipe = recipe["recipes"]["tuned"]["diffusion1d"]["vidon"]
    recipe["training"] |= {"iterations": 10, "batch_size": 100}
    small = read("tiny")["experiments"]["diffusion1d"]
    values = {
        "select": ["reaction"],
        "problems": {"reaction1d": read("tiny")["problems"]["diffusion1d"]},
        "experiments": {"reaction": small | {"problem": "reaction1d", "methods": ["other"]}},
        "recipes": {"tuned": {"reaction1d": {"other": recipe}}},
    }
    target = TINY / "summary/reaction.csv"
    editable.run("config/tiny.yaml", editable.overlay(values), targets=(str(target),))
    assert "other" in (editable.path / target).read_text()
