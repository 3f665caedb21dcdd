"""The profiles for one machine and for SLURM, as dry runs: no SLURM is needed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import ROOT

PROFILES = ROOT / "profiles"
LOCAL = {"all", "save_config"}
"""Rules that Snakemake runs where it stands."""
WITH_LAWS = {
    "experiments": {"diffusion1d": {"methods": ["vidon", "uqsonet", "auto"]}},
    "recipes": {"tuned": {"diffusion1d": {"auto": {"law_of": "uqsonet"}}}},
    "tables": {
        "laws": {"layout": "laws", "experiments": ["diffusion1d"]},
    },
}
"""What no problem of the paper has, so that every rule has a job."""


def profile(name: str) -> dict:
    return yaml.safe_load((PROFILES / name / "config.yaml").read_text())


def snakemake(*arguments: str, **environment: str) -> tuple[int, str]:
    """Return the exit status of Snakemake in the project's folder, and what it prints."""
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


def dry_run(*arguments: str) -> str:
    status, text = snakemake("--dry-run", "--forceall", *arguments)
    assert status == 0, text
    return text


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a dry run with the profile for SLURM prints."""
    laws = tmp_path_factory.mktemp("laws") / "laws.yaml"
    laws.write_text(yaml.safe_dump(WITH_LAWS))
    slurm = "--workflow-profile", "profiles/slurm"
    targets = "--", "all", "results/smoke/tables/time.tex", "results/smoke/tables/gaps.tex"
    return dry_run("--configfile", "config/smoke.yaml", str(laws), *slurm, *targets)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Give rule and description of every job."""
    for block in re.split(r"^\s*\[\w{3} \w{3} .*\].*$", text, flags=re.MULTILINE):
        if found := re.match(r"\s*(?:local)?rule (\w+):", block):
            yield found[1], block


def test_the_profile_for_slurm_keeps_what_the_default_one_says(submitted: str) -> None:
    slurm, default = profile("slurm"), profile("default")
    # On a cluster SLURM shares out GPUs; here one job at a time has the one that there is.
    assert default.pop("resources") == ["gpu=1"] and "resources" not in slurm
    # There few jobs are submitted in a minute; here jobs are looked at every few seconds.
    assert default.pop("max-jobs-per-timespan") == "100/3s"
    assert slurm["max-jobs-per-timespan"] == "30/1m"
    assert {key: slurm[key] for key in default} == default
    assert "profile profiles/slurm" in submitted


def declared() -> dict[str, str]:
    """Return rule -> text of all rules in `workflow/rules`."""
    texts = (path.read_text() for path in Path(ROOT, "workflow/rules").glob("*.smk"))
    parts = [p for t in texts for p in re.split(r"^ *rule ", t, flags=re.MULTILINE)[1:]]
    return {part.partition(":")[0]: part for part in parts}


def test_every_rule_says_time_and_memory(submitted: str) -> None:
    seen = {rule for rule, _ in blocks(submitted)}
    assert seen - {"all"} == set(declared())
    for rule, block in blocks(submitted):
        if rule not in LOCAL:
            assert re.search(r"\bruntime=\d+", block), rule
            assert re.search(r"\bmem_mb=\d+", block), rule
    for rule, text in declared().items():
        # Written out: the default of the executor depends on the sizes of input files.
        assert "**cost(" in text or ("mem_mb=" in text and "runtime=" in text), rule


def test_what_computes_is_submitted_one_by_one_and_the_rest_in_groups(submitted: str) -> None:
    groups = dict(entry.split("=") for entry in profile("slurm")["groups"])
    rules = {rule for rule, _ in blocks(submitted)}
    alone = {"simulate", "reference", "train", "law", "evaluate"}
    alone |= {"trajectories", "over_time", "over_time_report", "gaps", "gaps_report"}
    assert rules - set(groups) - LOCAL == alone and set(groups) <= rules
    # One job each: of the report because all of it hangs together.
    for group in set(groups.values()):
        assert submitted.count(f"Group job {group} ") == 1, group


def test_rules_are_read_without_the_package_and_jobs_say_that_it_is_missing(tmp_path: Path) -> None:
    absent = tmp_path / "uqsonet" / "__init__.py"
    absent.parent.mkdir()
    absent.write_text("raise ModuleNotFoundError(name='uqsonet')\n")
    status, text = snakemake("--lint", PYTHONPATH=str(tmp_path))
    assert status == 0, text
    status, text = snakemake("--dry-run", "--forceall", "--cores", "1", PYTHONPATH=str(tmp_path))
    assert status and "no uqsonet here: jobs need the package, pip install '.[study]'" in text


def test_the_smallest_study_is_complete() -> None:
    """Its configuration stands alone: one of each rule that the paper's tables need."""
    text = dry_run("--directory", ".test", "--snakefile", "workflow/Snakefile", "--cores", "1")
    assert {rule for rule, _ in blocks(text)} >= {
        "simulate",
        "train",
        "evaluate",
        "table",
        "figure",
    }
