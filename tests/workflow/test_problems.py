"""All problems, tables and figures: the small run of `make tables`."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import inspect
from tests.workflow.conftest import CONFIG, PLAN, ROOT, SMOKE, Project
from uqsonet_study.cli import read_config
from uqsonet_study.config import BASELINES


def test_the_small_run_has_every_experiment_table_figure_and_method() -> None:
    full = read_config([ROOT / "config.yaml"])
    assert CONFIG.tables == full.tables and CONFIG.figures == full.figures
    assert list(CONFIG.experiments) == list(full.experiments)
    for name, experiment in full.experiments.items():
        small = CONFIG.experiments[name]
        assert small.sensors.counts == experiment.sensors.counts
        assert small.cut_lines == experiment.cut_lines and small.methods == experiment.methods
        assert set(small.noise_levels) <= set(experiment.noise_levels)


@pytest.mark.dag
@pytest.mark.timeout(0)
def test_all_of_it_is_made_sound_and_needs_nothing_more(small: Project) -> None:
    results = small.path / SMOKE
    files = [f"tables/{name}.{kind}" for name in CONFIG.tables for kind in ("tex", "csv", "json")]
    names = [*CONFIG.figures, *PLAN.pictures()]
    files += [f"figures/{name}.{kind}" for name in names for kind in ("pdf", "png")]
    for file in (*files, "tables/all.tex", "report.html"):
        assert (results / file).stat().st_size > 0, file
    check = [sys.executable, "-m", "uqsonet", "check", str(results)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert small.planned() == {}
    with (results / "scorecard.csv").open() as file:
        ours = [row for row in csv.DictReader(file) if row["ours"]]
    assert {row["table"] for row in ours} == {
        f"tab:{name}" for name, table in CONFIG.tables.items() if table.layout == "errors"
    }
    assert all(float(row[c]) >= 0 for row in ours for c in ("ours", *BASELINES, "mc_floor"))


@pytest.mark.dag
@pytest.mark.timeout(0)
def test_snakemakes_own_report_shows_tables_and_figures(small: Project) -> None:
    result = small.snakemake("--configfile", "config/smoke.yaml", "--report", "own.html")
    assert result.returncode == 0, result.stdout + result.stderr
    text = (small.path / "own.html").read_text()
    for piece in ("Figures", "Tables", "Everything on one page", "SMOKE SCALE"):
        assert piece in text


@pytest.mark.latex
@pytest.mark.timeout(0)
def test_the_document_of_all_tables_compiles(small: Project, tmp_path: Path) -> None:
    text = (small.path / SMOKE / "tables/all.tex").read_text()
    captions = text.count(r"\captionof{table}{")
    assert captions >= len(CONFIG.tables) and text.count("SMOKE SCALE") == captions
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (apt install texlive-latex-extra lmodern)")
    (tmp_path / "all.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:]
    assert not re.search("Overfull|multiply defined", done.stdout)


@pytest.mark.browser
@pytest.mark.timeout(0)
def test_the_page_shows_everything_in_a_browser(small: Project) -> None:
    shown = inspect(small.path / SMOKE / "report.html")
    assert shown.faults == []
    assert len(shown.pictures) == len([*CONFIG.figures, *PLAN.pictures()])
