"""One experiment in real Snakemake at its least size, and what an edit makes it do again."""

import csv
import subprocess
import sys

import pytest

from tests.workflow.conftest import TARGETS, TINY, Project, jobs

OPTIONS = ("--configfile", "config/smoke.yaml", "config/tiny.yaml")


def test_a_table_and_a_figure_are_made_from_nothing(tiny: Project) -> None:
    results = tiny.path / TINY
    names = [f"tables/1d-pde-error.{kind}" for kind in ("tex", "csv", "html")]
    names += [f"figures/1d-pde-plot.{kind}" for kind in ("pdf", "png")]
    names += ["data/diffusion1d.json", "summary/diffusion1d.csv"]
    for name in names:
        assert (results / name).stat().st_size > 0, name
    assert "SMOKE SCALE" in (results / "tables/1d-pde-error.tex").read_text()
    with (results / "tables/1d-pde-error.csv").open() as file:
        assert {"uqsonet", "sensor_free", "reference"} <= {
            row["method"] for row in csv.DictReader(file)
        }
    times = results / "times/train/diffusion1d/tuned/uqsonet-N200/trial0.tsv"
    assert times.read_text().startswith("s\t")


def test_a_second_run_has_nothing_to_do(tiny: Project) -> None:
    result = tiny.snakemake("--dry-run", *OPTIONS, "--", *TARGETS)
    assert result.returncode == 0 and "Nothing to be done" in result.stdout + result.stderr


READERS = {
    "simulate": {"reference", "train", "evaluate", "figure", "summary", "table"},
    "reference": {"train", "evaluate", "figure", "summary", "table"},  # training is validated
    "train": {"evaluate", "figure", "summary", "table"},
    "evaluate": {"summary", "table"},
}
"""Rule -> the rules that read what it makes, at once or by way of another."""


@pytest.mark.parametrize("rule", READERS)
def test_what_reads_a_file_is_made_again_with_it(tiny: Project, rule: str) -> None:
    result = tiny.snakemake("--dry-run", *OPTIONS, "--forcerun", rule, "--", *TARGETS)
    assert result.returncode == 0, result.stderr
    assert set(jobs(result.stdout + result.stderr)) == {rule} | READERS[rule]


def test_the_dag_can_be_drawn_and_the_rules_pass_snakemakes_lint(tiny: Project) -> None:
    result = tiny.snakemake("--dag", *OPTIONS, "--", *TARGETS)
    assert result.returncode == 0 and "digraph" in result.stdout
    for name in ("simulate", "sensors", "reference", "train", "evaluate", "summary", "table"):
        assert f'label = "{name}' in result.stdout
    command = [sys.executable, "-m", "snakemake", "--lint"]
    lint = subprocess.run(command, cwd=tiny.path, capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stderr
