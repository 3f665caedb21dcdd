"""What real Snakemake computes again, refuses and shares."""

import filecmp
from pathlib import Path
from typing import Any

import h5py
import pytest
import yaml

from tests.workflow.conftest import CORES, TARGETS, TINY, Project, fresh_copy, read

pytestmark = [pytest.mark.dag, pytest.mark.timeout(0)]
WEIGHTS = f"{TINY}/train/diffusion1d/tuned/uqsonet-N200/trial0.safetensors"


def test_other_cores_give_the_same_bytes(tiny: Project, tmp_path: Path) -> None:
    other = fresh_copy(tmp_path / "other")
    overlay = other.overlay(read("tiny"), "tiny")
    result = other.smoke(overlay, targets=TARGETS, cores=2 if CORES == 1 else 1)
    assert result.returncode == 0, result.stdout + result.stderr
    names = {
        str(path.relative_to(tiny.path))
        for path in (tiny.path / TINY).rglob("*")
        if path.suffix in (".h5", ".safetensors", ".csv", ".tex", ".html", ".pdf", ".png")
    }
    times = [name for name in names if "/train/" in name and name.endswith(".csv")]
    assert len(names - {*times}) > 10
    for name in names - {*times}:
        assert filecmp.cmp(tiny.path / name, other.path / name, shallow=False), name


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "every mistake": (
        {
            "experimentz": {},
            "results": "../elsewhere",
            "experiments": {"diffusion1d": {"noise": -1}},
        },
        ["experimentz: unknown key", "results: ", "diffusion1d.noise"],
    ),
    "too few pairs": ({"experiments": {"diffusion1d": {"N": 2000}}}, ["N = 2000 exceeds the 1000"]),
    "an unknown method": (
        {"experiments": {"diffusion1d": {"methods": ["uqsonet", "uqsonnet"]}}},
        ["no entry for 'uqsonnet'; did you mean 'uqsonet'"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_configuration_is_refused_before_work(
    tiny: Project, tmp_path: Path, name: str
) -> None:
    values, words = REFUSED[name]
    (tmp_path / "extra.yaml").write_text(yaml.safe_dump(values))
    result = tiny.smoke("config/tiny.yaml", str(tmp_path / "extra.yaml"), targets=TARGETS, dry=True)
    output = " ".join((result.stdout + result.stderr).split())  # lines are broken anywhere
    assert result.returncode != 0 and "Traceback (most recent" not in output
    assert all(word in output for word in words), output


def test_sensors_and_modes_beyond_the_grid_are_refused_before_the_first_job(tmp_path: Path) -> None:
    project = fresh_copy(tmp_path / "project")
    for values, words in (
        ({"layouts": {"m2+4": {"counts": [2, 500]}}}, "500 sensors cannot stand on the 401"),
        (
            {"recipes": {"tuned": {"diffusion1d": {"uqsonet": {"network": {"input_modes": 500}}}}}},
            "input_modes = 500: 200 functions on 401 points give at most 199",
        ),
    ):
        overlays = project.overlay(read("tiny"), "tiny"), project.overlay(values)
        result = project.smoke(*overlays, targets=(WEIGHTS,))
        output = result.stdout + result.stderr
        assert result.returncode != 0 and words in output
        assert not (project.path / TINY / "data").exists()


def test_damaged_data_stop_the_job_that_reads_them(editable: Project) -> None:
    path = editable.path / TINY / "data/diffusion1d.h5"
    (editable.path / WEIGHTS).unlink()
    with h5py.File(path, "r+") as file:
        file["training/kappa"][3, 7] = float("nan")
    result = editable.smoke("config/tiny.yaml", targets=(WEIGHTS,))
    output = result.stdout + result.stderr
    assert result.returncode != 0 and not (editable.path / WEIGHTS).exists()
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
        "problems": {"reaction1d": read("tiny")["problems"]["diffusion1d"]},
        "experiments": {"reaction": small | {"problem": "reaction1d", "methods": ["other"]}},
        "recipes": {"tuned": {"reaction1d": {"other": recipe}}},
    }
    target = TINY / "summary/reaction.csv"
    editable.run("config/tiny.yaml", editable.overlay(values), targets=(str(target),))
    assert "other" in (editable.path / target).read_text()
