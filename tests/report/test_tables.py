"""Tables of every layout: right numbers in right cells, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import count, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import (
    EXPERIMENT,
    make_scores,
    make_study,
    make_summary,
    overlay,
    whole_study,
    write_scores,
    write_summaries,
)
from tests.test_config import BASE
from uqsonet.errors import DataError
from uqsonet_study import BASELINES
from uqsonet_study.beyond.scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.beyond.scores import law_name
from uqsonet_study.cases import Row, Study
from uqsonet_study.report import inputs
from uqsonet_study.report.names import method_title
from uqsonet_study.report.summary import summarise
from uqsonet_study.report.tables.write import all_tables, write_table

NAME = "1d-pde-error"
OVERLAYS = {"ablation": "ablation", "any-law": "laws"}
"""Table that the default run does not have -> the file of `config/` that has it."""

NAMES = [*BASE["tables"], *OVERLAYS]

ERRORS = {
    "1d-pde-error": (30, "10", "UQ-SONet", "errσ[u]", "8.35 ± 0.38"),
    "1d-pde-addnoise-error": (20, "0.1", "UQ-SONet", "m = 3", "errσ[u]", "9.43"),
    "2d-pde-error": (28, "4", "UQ-SONet", "noiseless", "errE[u]", "5.48"),
    "2d-sde-error": (32, "1", "UQ-SONet", "x = 0.5", "errE[u]", "4.23"),
}
"""Table of errors -> how many numbers the paper prints beside ours, and one of them."""


def write(study: Study, name: str = NAME) -> pd.DataFrame:
    """Write a table from what lies where the study looks for it; returns its numbers."""
    folder = study.root / "tables"
    write_table(name, study, folder)
    return pd.read_csv(folder / f"{name}.csv")


def made(study: Study, name: str = NAME) -> pd.DataFrame:
    """Write a table from synthetic inputs."""
    write_inputs(study, name)
    return write(study, name)


def write_inputs(study: Study, name: str) -> None:
    """Write what the jobs before a table leave for it."""
    table = study.config.tables[name]
    cases = study.of(table.experiments)
    if table.layout in ("errors", "bands", "scores"):
        summary = make_summary(study)
        write_summaries(study, summary[summary["experiment"].isin(table.experiments)])
    if table.layout in ("costs", "ablation"):
        for case in cases:
            for method in case.methods:
                write_logs(study, case, method)
    for path in study.paths(inputs.timings_of_table(study, name)):
        methods = study.config.experiments[path.stem].methods
        timing = {"seconds": dict.fromkeys(methods, 0.0125), "samples": 1000, "sensors": 4}
        write_text(path, json.dumps(timing | {"threads": 1, "processor": "CPU_7 & co"}))
    if table.layout == "laws":
        number, rows = count(1), []
        for case in cases:
            laws = [*BASELINES, *(law_name(study, case, method) for method in case.methods)]
            for place in product([case.problem], laws, case.counts):
                rows.append((*place, *(1 + 0.618034 * next(number) % 9 for _ in LAW_COLUMNS[3:])))
        write_rows(scores_of_laws(study), LAW_COLUMNS, rows)


def write_logs(study: Study, case: Row, method: str) -> None:
    """Logs of trials 1, 2, ... hours long; the std of `few_inputs` is worst at two sensors."""
    names = "trial iteration seconds skill_mean_1 skill_mean_2 skill_std_1 skill_std_2"
    low = 0.2 if "few_inputs" in case.name else 0.7
    last = study.settings(case, method).training.iterations
    for k, path in enumerate(study.paths(study.logs(case, method))):
        ends = [(i * last // 2, 1800.0 * i * (k + 1)) for i in (1, 2)]
        write_rows(path, names.split(), [(k, *end, 0.5 + k / 10, 0.9, 0.8, low) for end in ends])


def scores_of_laws(study: Study) -> Path:
    return study.root / study.config.results / "scores.csv"


def write_rows(path: Path, names: list[str], rows: list[tuple[Any, ...]]) -> None:
    write_text(path, pd.DataFrame(rows, columns=pd.Index(names)).to_csv(index=False))


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cells_of(folder: Path, name: str) -> dict[tuple[str, ...], str]:
    """Return what stands in each cell of a page's table by panel, row labels and headings.

    Bold text is between asterisks. Every row of a panel has to span the same columns.
    """
    found = {}
    page = (folder / f"{name}.html").read_text().removeprefix("<!doctype html>")
    body = ElementTree.fromstring(page.replace("&nbsp;", "")).find("body")
    assert body is not None
    for title, root in zip(body.findall("h2"), body.iter("table"), strict=True):
        grid: dict[tuple[int, int], str] = {}
        for i, row in enumerate(root.iter("tr")):
            for cell in row:
                j = next(j for j in count() if (i, j) not in grid)
                spans = (range(int(cell.get(f"{side}span", 1))) for side in ("row", "col"))
                text = "".join(cell.itertext())
                for down, right in product(*spans):
                    assert (i + down, j + right) not in grid
                    grid[i + down, j + right] = text if cell.find("strong") is None else f"*{text}*"
        rows, columns = (1 + max(place[k] for place in grid) for k in (0, 1))
        assert len(grid) == rows * columns
        heads = len(root.findall("thead/tr"))
        labels = len(root.findall("tbody/tr[1]/th"))
        for i, j in product(range(heads, rows), range(labels, columns)):
            above = filter(None, dict.fromkeys(grid[k, j] for k in range(heads)))
            key = str(title.text)[:3], *(grid[i, k] for k in range(labels)), *above
            found[(*key, "again") if key in found else key] = grid[i, j]
    return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every table of the default run and of the overlays, beside the results they are made of."""
    root = tmp_path_factory.mktemp("tables")
    for name in NAMES:
        made(study_of(root, name), name)
    return root / "tables"


def study_of(root: Path, name: str) -> Study:
    """Return a study that declares a table."""
    return overlay(root, OVERLAYS[name]) if name in OVERLAYS else whole_study(root)


def test_numbers_are_those_of_the_summary(study: Study) -> None:
    write_scores(study, make_scores(study))
    summary = summarise(study, "e_1")
    write_summaries(study, summary)
    table = write(study)
    keys = ["evaluation", "method", "metric", "sensors"]
    merged = table.merge(summary, on=keys, suffixes=("", "_given"))
    assert len(merged) == len(table)
    scale = merged["unit"].map({"percent": 100.0, "1": 1.0})
    for column in ("value", "pm", "low", "high"):
        np.testing.assert_allclose(merged[column], scale * merged[f"{column}_given"])


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_stands_in_its_cell(tables: Path, name: str) -> None:
    table, cells = pd.read_csv(tables / f"{name}.csv"), cells_of(tables, name)
    count, *place, start = ERRORS[name]
    assert cells["(a)", *place, "paper"].startswith(start)
    assert table["paper"].notna().sum() == count
    lines, by_noise = table["metric"].str.contains("@").any(), "noise" in name
    for row in table.to_dict("records"):
        metric, _, line = row["metric"].partition("@")
        trained = row["method"] in ("vidon", "uqsonet")
        skill, paper = metric.startswith("skill"), row["evaluation"] == "paper"
        if skill and paper:
            continue  # too few sets to print
        panel = "(c)" if skill else "(a)" if paper else "(b)"
        full = not skill and (trained or (row["method"] == "cokriging" and not paper))
        group = [f"m = {row['sensors']}"] if by_noise else []
        if name == "2d-pde-error":
            group = [f"σ = {row['noise_std']:g}" if row["noise_std"] else "noiseless"]
        if lines and not skill:
            group += [line.replace("=", " = ") or "domain"]
        label = f"{row['noise_std']:.1f}" if by_noise else str(row["sensors"])
        shown = ("err" if full else "") + ("E[u]" if "mean" in metric else "σ[u]")
        heads = filter(None, (method_title(row["method"]), ", ".join(group), shown))
        key = panel, label, *heads, *(["ours"] if panel == "(a)" and trained else [])
        printed, value = cells.pop(key), f"{row['value']:.2f}"
        if panel == "(a)" and trained:
            value += f" ± {row['pm']:.2f}"
            better = row["value"] < row["paper"]
            assert printed == (f"*{value}*" if better else value)
        assert printed.strip("*").startswith(value), key
        assert ("†" in printed) == (skill and trained and row["low"] < 0)
        if pd.notna(row["paper"]):
            printed = cells.pop((*key[:-1], "paper"))
            assert printed == f"{row['paper']:.2f} ± {row['paper_pm']:.2f}"
    assert set(cells.values()) <= {"–"}


def test_what_is_not_run_is_left_out_and_a_small_run_says_so(tmp_path: Path) -> None:
    table = made(make_study(tmp_path, experiment={"evaluations": ["paper"]}, scale="smoke"))
    assert set(table["evaluation"]) == {"paper"} and len(table) == 40
    for kind in ("tex", "html"):
        assert "SMOKE SCALE" in (tmp_path / f"tables/{NAME}.{kind}").read_text()


def test_cases_of_one_sensor_each_look_like_one_case_of_several(
    tables: Path, tmp_path: Path
) -> None:
    """The paper's networks are trained for each number of sensors."""
    study, name = overlay(tmp_path, "paper"), "1d-pde-addnoise-error"
    assert "diffusion1d_noise-noise0.5-m3" in study.cases.index
    made(study, name)
    split, together = cells_of(tmp_path / "tables", name), cells_of(tables, name)
    assert list(split) == list(together)
    assert all((split[key] == "–") == (together[key] == "–") for key in together)


def test_costs_beside_the_papers(tables: Path) -> None:
    cells = cells_of(tables, "training-cost")
    places = product(("training (h)", "iterations", "inference (s)"), ("paper", "ours"))
    found = [cells["Hou", "4.1", "UQ-SONet", *place] for place in places]
    assert found == ["6.03", "3.00", "100\u202f000", "2\u202f000", "0.030", "0.013"]
    assert cells["Hou", "4.5", "VIDON", "training (h)", "paper"] == "–"  # nothing printed


def test_networks_beside_the_papers(tables: Path, tmp_path: Path) -> None:
    cells = cells_of(tables, "NN")
    assert cells["(b)", "1D PDE", "VIDON", "modes of κ (dz)"] == "56"
    assert cells["(c)", "1D PDE", "VIDON", "learning rate"] == "2·10−3"
    # tab:NN against `recipes.paper`: two transcriptions of one table.
    table = write(whole_study(tmp_path, recipe="paper"), "NN")
    # VIDON has neither encoder nor latent variable.
    assert not {"encoder", "latent_dim"} & set(table[table["method"] == "vidon"]["metric"])
    stated = table[table["paper_setting"].notna()]
    assert len(stated) > 100 and (stated["setting"] == stated["paper_setting"]).all()


def test_bands_compare_widths(tmp_path: Path) -> None:
    experiment = {"methods": ["deep_ensemble", "uqsonet"], "noise": 0.3, "recipe": "other"}
    declared = {"bands": {"layout": "bands", "experiments": ["e_1"]}}
    table = made(make_study(tmp_path, experiment=experiment, tables=declared), "bands")
    found = table[table["metric"] == "mean_std"].set_index(["method", "evaluation", "sensors"])
    widths = found["value"]
    for place in product(("paper", "precise"), (1, 3)):
        ratio = found.loc[("deep_ensemble", *place), "ratio_to_reference"]
        expected = widths[("deep_ensemble", *place)] / widths[("reference", *place)]
        assert ratio == pytest.approx(expected)
    cells = cells_of(tmp_path / "tables", "bands")
    assert cells["(c)", "3", "Deep ensemble", "ratio"] == f"{ratio:.2f}"


def test_scores_stand_beside_all_baselines(tmp_path: Path) -> None:
    study = make_study(tmp_path, tables={"s": {"layout": "scores", "experiments": ["e_1"]}})
    summary = make_summary(study)
    gains = summary["method"].eq("uqsonet") & summary["evaluation"].eq("precise")
    for metric, numbers in (("gain_crps", (0.49, 0.47)), ("gain_energy", (0.0025, 0.009))):
        summary.loc[gains & summary["metric"].eq(metric), "value"] = numbers
    write_summaries(study, summary)
    table = write(study, "s")
    assert set(table["method"]) == {*BASELINES, "uqsonet"}
    samples = table["metric"].str.startswith("within")
    assert set(table["evaluation"][samples]) == {"paper"}
    assert set(table["evaluation"][~samples]) == {"precise"}
    assert set(table["unit"][table["metric"] == "crps"]) == {"1"}
    cells = cells_of(tmp_path / "tables", "s")
    assert cells["1D ", "3", "UQ-SONet", "gain, %"].startswith("47.0 [")
    # Percent below one to two places.
    assert cells["1D ", "3", "UQ-SONet", "gain, %", "again"].startswith("0.90 [")


def test_scores_of_several_recipes_go_by_recipe(tmp_path: Path) -> None:
    one = EXPERIMENT | {"methods": ["uqsonet"]}
    declared = {"layout": "scores", "experiments": ["e_1", "e_2"], "metrics": ["err_mean", "crps"]}
    both = {"e_1": one, "e_2": one | {"recipe": "other"}}
    made(make_study(tmp_path, experiments=both, tables={"s": declared}), "s")
    cells = cells_of(tmp_path / "tables", "s")
    heads = [key[2] for key in cells if key[1] == "1" and key[3] == "CRPS"]
    assert heads == ["Sensor-free", "Cokriging", "Regression", "my recipe", "other"]


def test_laws_stand_beside_baselines_and_floor(tables: Path) -> None:
    given = pd.read_csv(scores_of_laws(study_of(tables.parent, "any-law"))).query(
        "problem == 'mixture1d'"
    )
    given, cells = given[given["sensors"] == 4].set_index("law"), cells_of(tables, "any-law")
    for law, row in given.iterrows():
        best = "*" if row["w1"] == given["w1"].min() else ""
        printed = cells["(a)", method_title(str(law)), "W1", "m = 4"]
        assert printed == f"{best}{row['w1']:.1f}{best}"
    floor = given.loc["sensor_free", "floor_w1"]
    assert cells["(a)", "MC floor", "W1", "m = 4"] == f"{floor:.1f}"
    records = pd.read_csv(tables / "any-law.csv").set_index(["experiment", "method", "sensors"])
    found = records.loc[("mixture1d", "auto", 4)].set_index("metric")["value"]
    assert found.to_dict() == pytest.approx(given.loc["auto", found.index].to_dict())


def test_an_ablation_averages_the_last_skills_of_each_recipe(tables: Path) -> None:
    table = pd.read_csv(tables / "ablation.csv").set_index(["experiment", "metric"])
    row = table.loc[("diffusion1d_tuned", "skill_mean")]
    assert row["value"] == pytest.approx(0.75) and row["pm"] == pytest.approx(0.05)
    assert table.loc[("diffusion1d_few_inputs", "skill_std_worst"), "value"] == pytest.approx(0.2)
    assert table.loc[("sde1d_no_skip", "minutes"), "value"] == pytest.approx(120)
    assert len(table) == 5 * table.index.get_level_values("experiment").nunique()
    worst = cells_of(tables, "ablation")["(a)", "few inputs", "skill of the std", "worst m"]
    assert worst == "0.200 ± 0.000"


def test_each_row_of_the_ablation_changes_one_thing() -> None:
    """Its recipes repeat `tuned`, so that a change there has to be made here too."""
    study = study_of(Path(), "ablation")
    for base in ("diffusion1d", "elliptic_sde1d_more", "navier_stokes"):
        start = base.removeprefix("elliptic_").removesuffix("_more")
        names = study.config.tables["ablation"].experiments
        for name in (name for name in names if name.startswith(start)):
            if name.endswith(("attention", "linear")):
                continue
            cases = study.cases.loc[base], study.cases.loc[name]
            changes = cases[0].N != cases[1].N
            tuned, found = (study.settings(case, "uqsonet") for case in cases)
            for part in ("network", "training"):
                before = getattr(tuned, part).model_dump(exclude={"validate_every", "max_passes"})
                after = getattr(found, part).model_dump(include=set(before))
                changes += sum(after[key] != value for key, value in before.items())
            assert changes == (not name.endswith("tuned")), name


def test_what_no_table_is_made_of_is_refused(study: Study, tmp_path: Path) -> None:
    write_summaries(study, make_summary(study).query("sensors == 1"))
    with pytest.raises(DataError, match="not in the summary"):
        write(study)
    for name, content, words in (
        ("training-cost", "", r"trial0\.csv: not a file of iteration, seconds"),
        ("training-cost", "iteration,seconds\n", "lacks rows"),
        ("training-cost", "iteration,seconds\n7,1\n", "ends at iteration 7"),
        ("ablation", "iteration\n", "lacks seconds"),
    ):
        study = study_of(tmp_path, name)
        write_inputs(study, name)
        write_text(study.root / inputs.logs_of_table(study, name)[0], content)
        with pytest.raises(DataError, match=words):
            write(study, name)
    study = study_of(tmp_path, "any-law")
    write_inputs(study, "any-law")
    given = pd.read_csv(scores_of_laws(study))
    for scores, words in (
        (given[given["law"] != "auto"], "no 'auto' of mixture1d with 1 sensors"),
        (given.drop(columns="law"), "lacks law"),
    ):
        scores.to_csv(scores_of_laws(study), index=False)
        with pytest.raises(DataError, match=words):
            write(study, "any-law")


def test_all_tables_stand_in_one_document(tables: Path, tmp_path: Path) -> None:
    all_tables([tables / f"{name}.tex" for name in NAMES], tmp_path / "all.tex")
    text = (tmp_path / "all.tex").read_text()
    assert r"\input" not in text and text.count(r"\label{") == len(NAMES)
    merged = pd.read_csv(tmp_path / "all.csv", low_memory=False)
    assert set(merged["table"]) == {f"tab:{name}" for name in NAMES}
    assert len(merged) == sum(len(pd.read_csv(tables / f"{name}.csv")) for name in NAMES)
    assert all(cells_of(tables, name) for name in NAMES)
    all_tables([], tmp_path / "all.tex")
    assert "asks for no tables" in (tmp_path / "all.tex").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "all.csv").empty


@pytest.mark.latex
def test_the_document_compiles_and_hardly_anything_is_shrunk(tables: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    all_tables(sorted(tables.glob("*.tex")), tmp_path / "all.tex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert "Overfull" not in log and "Float too large" not in log
    panels = re.findall(r"uqsonet: panel ([\d.]+)pt ?on ([\d.]+)pt", log)
    assert len(panels) > 20 and all(0.95 * float(of) <= float(line) for of, line in panels)
