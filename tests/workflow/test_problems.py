"""All five problems through the whole DAG at smoke scale."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import inspect
from tests.workflow.conftest import CONFIG, PLAN, ROOT, SMOKE, Project
from uqsonet_study.cli import read_config
from uqsonet_study.config import BASELINES

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]  # what takes time is watched
# The paper's labels without "tab:" and "fig:", and the deep ensemble's.
TABLES = (
    "1d-pde-error 1d-pde-addnoise-error 1d-pde-ensemble 2d-pde-error 1d-sde-error 2d-sde-error \
2d-ns-error NN training-cost".split()
)
FIGURES = "1d-pde-compare 1d-pde-plot 1d-pde-addnoise 1d-pde-ensemble-plot 2d-pde-plot \
1d-sde-compare 1d-sde-plot 2d-sde-plot 2d-ns-plot".split()
PROBLEMS = ("diffusion1d", "poisson2d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes")


def test_every_table_figure_and_picture_is_there(complete: Project) -> None:
    results = complete.path / SMOKE
    assert set(TABLES) <= set(CONFIG.tables) and set(FIGURES) <= set(CONFIG.figures)
    files = [f"tables/{name}.{kind}" for name in CONFIG.tables for kind in ("tex", "csv", "json")]
    names = [*CONFIG.figures, *PLAN.pictures()]
    files += [f"figures/{name}.{kind}" for name in names for kind in ("pdf", "png")]
    files += [f"simulate/{name}.json" for name in PROBLEMS]
    for file in [*files, "tables/all.tex", "scorecard.csv", "report.html"]:
        assert (results / file).stat().st_size > 0, file


def test_smoke_scale_drops_no_experiment_panel_or_point() -> None:
    full = read_config([ROOT / "config.yaml"])
    assert CONFIG.tables == full.tables and CONFIG.figures == full.figures
    assert list(CONFIG.experiments) == list(full.experiments)
    for name, experiment in full.experiments.items():
        small = CONFIG.experiments[name]
        assert small.sensors.counts == experiment.sensors.counts
        assert small.noise_std == experiment.noise_std and small.cut_lines == experiment.cut_lines
        assert len(CONFIG.cases_of([name])) == len(full.cases_of([name]))
        assert small.methods == experiment.methods


def test_every_cell_of_the_paper_has_ours_beside_it(complete: Project) -> None:
    with (complete.path / SMOKE / "scorecard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 142
    for row in rows:
        for column in ("ours", *BASELINES, "mc_floor"):
            assert float(row[column]) >= 0, row


def test_the_document_of_all_tables_compiles_and_says_smoke(
    complete: Project, tmp_path: Path
) -> None:
    text = (complete.path / SMOKE / "tables" / "all.tex").read_text()
    captions = text.count(r"\caption{")
    assert captions >= len(CONFIG.tables) and text.count("SMOKE SCALE") == captions
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (apt install texlive-latex-extra lmodern)")
    (tmp_path / "all.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:]
    assert "Overfull" not in done.stdout and "multiply defined" not in done.stdout


def test_the_page_shows_everything_in_a_browser(complete: Project) -> None:
    page = complete.path / SMOKE / "report.html"
    text = page.read_text()
    assert "SMOKE SCALE" in text
    shown = inspect(page)
    assert shown.faults == []
    assert len(shown.pictures) == len([*CONFIG.figures, *PLAN.pictures()])


def test_snakemake_reports_too(complete: Project) -> None:
    result = complete.smoke("--report", "report-of-snakemake.html")
    assert result.returncode == 0, result.stdout + result.stderr
    text = (complete.path / "report-of-snakemake.html").read_text()
    for piece in ("Figures of the paper", "Data and training", "SMOKE SCALE"):
        assert piece in text


def test_baselines_and_models_are_scored_for_every_experiment(complete: Project) -> None:
    for name in CONFIG.experiments:
        with (complete.path / SMOKE / "summary" / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        scored = {(row["method"], row["metric"]) for row in rows}
        methods = CONFIG.experiments[name].methods
        for method in (*BASELINES, "reference", *methods):
            if method == "vidon":
                continue  # has a mean and no spread
            assert {(method, "err_mean"), (method, "err_std")} <= scored, (name, method)


def test_cokriging_beats_the_sensor_free_predictor_where_the_operator_is_affine(
    complete: Project,
) -> None:
    with (complete.path / SMOKE / "summary" / "poisson2d.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["evaluation"] == "precise"]
    error = {(r["method"], r["metric"], r["sensors"]): float(r["value"]) for r in rows}
    for metric in ("err_mean", "err_std"):
        for m in "1234":
            assert error["cokriging", metric, m] < error["sensor_free", metric, m]


def test_the_whole_tree_passes_the_check_and_needs_nothing_more(complete: Project) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "uqsonet", "check", str(complete.path / SMOKE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert complete.planned() == {}
