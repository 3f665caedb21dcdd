"""The whole DAG in real Snakemake at its least size, and what an edit makes it do again."""

import csv
import json
import subprocess
import sys

import pytest

from tests.workflow.conftest import TINY, Project, jobs


def test_one_command_makes_everything_from_nothing_to_the_page(tiny: Project) -> None:
    results = tiny.path / TINY
    names = [f"tables/{n}.{s}" for n in ("1d-pde-error", "NN") for s in ("tex", "csv", "json")]
    figures = ("1d-pde-plot", "diffusion1d_data", "diffusion1d_training")
    names += [f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "png")]
    names += ["tables/all.tex", "tables/training-cost.csv", "data/diffusion1d.json"]
    for name in (*names, "summary/diffusion1d.csv"):
        assert (results / name).stat().st_size > 0, name
    assert json.loads((results / "config.json").read_text())["scale"] == "smoke"
    assert "SMOKE SCALE" in (results / "tables/all.tex").read_text()
    page = (results / "report.html").read_text()
    assert "Smoke scale" in page and page.count("<img") == len(figures)
    for stage in ("simulate", "train", "evaluate", "figure"):
        assert f'<th scope="row">{stage}</th>' in page, "the page lacks what a stage took"
    with (results / "scorecard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 142


def test_the_results_pass_the_check(tiny: Project) -> None:
    command = [sys.executable, "-m", "uqsonet", "check", str(tiny.path / TINY)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("ok ") >= 5


REPORT = {"summary", "scorecard", "table", "all_tables", "page"}
READERS = {
    "simulate": {"reference", "train", "evaluate", "inference", "figure"} | REPORT,
    "reference": {"train", "evaluate", "inference", "figure"} | REPORT,  # training is validated
    "train": {"evaluate", "inference", "figure"} | REPORT,
    "evaluate": REPORT,
    "figure": {"page"},
}
"""Rule -> the rules that read what it makes, at once or by way of another."""


@pytest.mark.parametrize("rule", READERS)
def test_what_reads_a_file_is_made_again_with_it(tiny: Project, rule: str) -> None:
    options = ("--configfile", "config/smoke.yaml", "config/tiny.yaml", "--forcerun", rule)
    result = tiny.snakemake("--dry-run", *options)
    assert result.returncode == 0, result.stderr
    assert set(jobs(result.stdout + result.stderr)) == {rule} | READERS[rule]
