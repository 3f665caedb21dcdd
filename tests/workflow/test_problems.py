"""All problems, tables and figures: the small run of `make tables`."""

import csv
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser import inspect
from tests.workflow.conftest import CONFIG, SMOKE, Project
from uqsonet_study import BASELINES


@pytest.mark.dag
@pytest.mark.timeout(0)
def test_all_of_it_is_made_and_needs_nothing_more(small: Project) -> None:
    results = small.path / SMOKE
    files = [f"tables/{name}.{kind}" for name in CONFIG.tables for kind in ("tex", "csv", "html")]
    files += [f"figures/{name}.{kind}" for name in CONFIG.figures for kind in ("pdf", "png")]
    for file in (*files, "tables/all.tex", "tables/all.csv"):
        assert (results / file).stat().st_size > 0, file
    assert small.planned() == {}
    with (results / "scorecard.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["ours"]]
    assert len(rows) == 142
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
    for piece in ("Figures", "Tables", "SMOKE SCALE"):
        assert piece in text


@pytest.mark.browser
@pytest.mark.timeout(0)
def test_a_table_of_the_report_is_a_page_without_faults(small: Project) -> None:
    shown = inspect(small.path / SMOKE / "tables/1d-pde-error.html")
    assert shown.faults == []


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
