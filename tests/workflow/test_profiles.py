"""The profiles for one machine and for SLURM, as dry runs: no SLURM is needed."""

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.workflow.conftest import ROOT

PROFILES = ROOT / "workflow/profiles"
LOCAL = {"all", "save_config"}
"""Rules that Snakemake runs where it stands."""


def read(name: str) -> dict:
    return yaml.safe_load((PROFILES / name / "config.yaml").read_text())


def dry_run(*arguments: str) -> str:
    result = subprocess.run(
        [
            *(sys.executable, "-m", "snakemake", "--dry-run", "--forceall"),
            *("--configfile", "config/smoke.yaml", *arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


WITH_LAWS = {
    "experiments": {"diffusion1d": {"methods": ["vidon", "uqsonet", "auto"]}},
    "recipes": {"tuned": {"diffusion1d": {"auto": {"law_of": "uqsonet"}}}},
    "tables": {
        "laws": {"layout": "laws", "experiments": ["diffusion1d"]},
        "placement": {"layout": "placement", "experiments": ["diffusion1d"]},
    },
}
"""What no problem of the paper has, so that every rule has a job."""


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a dry run with the profile for SLURM prints."""
    laws = tmp_path_factory.mktemp("laws") / "laws.yaml"
    laws.write_text(yaml.safe_dump(WITH_LAWS))
    return dry_run(str(laws), "--workflow-profile", "workflow/profiles/slurm")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Give rule and description of every job."""
    for block in re.split(r"^\s*\[\w{3} \w{3} .*\].*$", text, flags=re.MULTILINE):
        found = re.match(r"\s*(?:local)?rule (\w+):", block)
        if found:
            yield found[1], block


def test_the_profile_for_slurm_keeps_what_the_default_one_says() -> None:
    slurm = read("slurm")
    for key, value in read("default").items():
        assert slurm[key] == value, key


def test_both_are_found() -> None:
    assert (ROOT / "profiles").resolve() == PROFILES
    alone = dry_run("--cores", "1", "--", "results/smoke/config.json")
    assert "profile profiles/default" in alone


def test_every_rule_says_time_memory_and_threads(submitted: str) -> None:
    assert "profile workflow/profiles/slurm" in submitted
    profile = "--workflow-profile", "workflow/profiles/slurm"
    table = "results/benchmark/benchmark/table.tex"
    others = dry_run("config/benchmark.yaml", *profile, "--", table)
    seen = set()
    for rule, block in blocks(submitted + others):
        seen.add(rule)
        if rule not in LOCAL:
            assert re.search(r"\bruntime=\d+", block), rule
            assert re.search(r"\bmem_mb=\d+", block), rule
    declared = set()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        for part in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]:
            declared.add(part.partition(":")[0])
            # Written out: the default of the executor depends on the sizes of input files.
            for key in ("    threads: ", "mem_mb=", "runtime="):
                assert key in part, (part.partition(":")[0], key)
    assert seen - {"all"} == declared


def test_what_computes_is_submitted_one_by_one_and_the_rest_in_groups(submitted: str) -> None:
    groups = dict(entry.split("=") for entry in read("slurm")["groups"])
    rules = {rule for rule, _ in blocks(submitted)}
    alone = {"simulate", "reference", "train", "law", "evaluate", "placement"}
    assert rules - set(groups) - LOCAL == alone
    assert set(groups) <= rules
    # One job each: of the report because all of it hangs together.
    for group in set(groups.values()):
        assert submitted.count(f"Group job {group} ") == 1, group
