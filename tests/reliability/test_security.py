"""Nothing that is read can run code or write outside the results folder."""

import re
import time
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import ROOT, Project, fresh_copy
from uqsonet.errors import ConfigError
from uqsonet_study.check import check_path
from uqsonet_study.cli import read_config
from uqsonet_study.config.loading import read_mapping
from uqsonet_study.pipeline import Plan

FORBIDDEN = re.compile(
    r"(import|from) (c?[Pp]ickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|(?<![.\w])(eval|exec|compile|__import__)\("
    r"|\b(torch|torch\.jit|np|numpy|yaml)\.(load|save|unsafe_load|full_load)\("
    r"|\bos\.(system|popen)\(|read_pickle|(shell|allow_pickle)=True"
)
"""What could run what a file holds."""


def test_no_source_unpickles_or_evaluates() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]
    assert sources and not [p for p in sources if FORBIDDEN.search(p.read_text(encoding="utf-8"))]


TAG = "seed: !!python/object/apply:os.mkdir [{}]\n"
RUNS = """\
__use_yte__: true
__definitions__:
  - import pathlib
  - pathlib.Path({!r}).write_text("ran")
"""
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}\n" for k in range(1, 22)
)
NOISES, SIZES = [k / 1000 for k in range(1000)], list(range(1, 1001))
CASES = f"experiments: {{diffusion1d: {{noise_std: {NOISES}, sweep: {{latent_dim: {SIZES}}}}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUNS.format("ran.txt"), "line 1: __use_yte__ makes Snakemake run code; remove it"),
        (TAG.format("ran.txt"), "could not determine a constructor"),
        ("a: " + "[" * 1500, "cannot be read"),
        ("".join(f"key{k}: 1\n" for k in range(150)), "... and 100 more"),
        (MERGED, "more than 40 levels deep, or it holds itself"),
        ("seed: &a [*a]\n", "it holds itself"),
        ("[" * 50 + "]" * 50, "must hold a mapping, found seq"),
        ("a: " + "[" * 50 + "]" * 50, "nested more than 40 levels deep"),
        ("a: b\n" * 200_000, "1000000 characters, at most 524288 are read"),
        ("jobs: {device: cpu, device: cuda}\n", "line 1: device stands twice"),
        ("seed: 1:30:00\n", "line 1: 1:30:00 would be read to the base of 60"),
        (f"seed: 0x{'f' * 5000}\n", "fff is no integer in plain decimal digits"),
        ("experiments: {diffusion1d: {trials: true}}", "trials: must be a number, found True"),
        ("results: Published/x\n", "results: is a part of the project itself"),
        (CASES, "cases together, at most 5000"),
        ("recipe: tunde\n", "'; did you mean 'tuned'?"),
        ("select: [diffusoin1d]\n", "did you mean 'diffusion1d'?"),
        ("jobs: {checkpoint_minute: 1}\n", "unknown key; did you mean 'checkpoint_minutes'?"),
    ],
)
def test_a_configuration_is_refused_in_a_moment(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_config([ROOT / "config.yaml", file])
    assert message in str(caught.value) and len(str(caught.value)) < 30_000
    assert time.process_time() - start < 10
    assert not (tmp_path / "ran.txt").exists() and not Path("ran.txt").exists()


def test_all_configurations_of_the_project_are_read_as_before() -> None:
    for file in sorted([ROOT / "config.yaml", *(ROOT / "config").glob("*.yaml")]):
        text = file.read_text(encoding="utf-8")
        assert read_mapping(text, str(file)) == yaml.safe_load(text)


def test_a_named_configuration_is_checked(tmp_path: Path) -> None:
    odd = tmp_path / "odd.yaml"
    odd.write_text(RUNS.format("ran.txt"))
    assert [*check_path(ROOT / "config/smoke.yaml")] == [(ROOT / "config/smoke.yaml", None)]
    assert "__use_yte__" in str([*check_path(odd)])


def test_a_selection_says_what_it_leaves_alone() -> None:
    config = read_config([ROOT / "config.yaml", ROOT / "config/smoke.yaml"])
    one = Plan(config.model_copy(update={"select": ["poisson2d"]}))
    text = one.left_alone()
    assert text.startswith("select: poisson2d alone. results/smoke/tables/all.tex")
    assert "1d-pde-error" in text and all(name not in text for name in one.tables())
    assert Plan(config).left_alone().endswith("tables none; figures none")


def refused(project: Project, *arguments: str) -> str:
    """Plan a run that must be refused; return what it says."""
    result = project.snakemake("--dry-run", *arguments)
    assert result.returncode != 0 and not (project.path / "ran.txt").exists()
    return result.stdout + result.stderr


@pytest.mark.dag
def test_the_workflow_runs_no_code_and_leaves_its_folder_alone(tmp_path: Path) -> None:
    """A file of --configfile is read by Snakemake before the Snakefile; see docs/reliability.md."""
    project = fresh_copy(tmp_path / "project")
    (project.path / "config/tag.yaml").write_text(TAG.format("ran.txt"))
    (project.path / "config/twice.yaml").write_text("seed: 1\nseed: 2\n")
    assert "is not valid" in refused(project, "--configfile", "config/tag.yaml")
    assert "line 2: seed stands twice" in refused(project, "--configfile", "config/twice.yaml")
    for target in (
        "results/data/../../outside.h5",
        "results/train/diffusion1d/../../../outside/trial_0.safetensors",
        "results/tables/../../outside.tex",
        "results/summary/diffusion1d;touch ran.txt.csv",
    ):
        output = refused(project, "--", target)
        assert "MissingRuleException" in output or "not a valid" in output, output
    own = project.path / "config.yaml"
    own.write_text(RUNS.format("ran.txt") + own.read_text())
    assert "__use_yte__ makes Snakemake run code" in refused(project)
