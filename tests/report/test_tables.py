"""Tables of every layout: right numbers in right cells, what is refused, how four of them look."""

from __future__ import annotations

import json
import os
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

from tests.report.conftest import keep, make_config, make_summary, overlay, summary_of, whole_config
from uqsonet.errors import DataError
from uqsonet_study.beyond.scores import COLUMNS as LAW_COLUMNS
from uqsonet_study.beyond.scores import law_name
from uqsonet_study.config import BASELINES, Case, Config
from uqsonet_study.pipeline import Plan, flat
from uqsonet_study.report.names import method_title
from uqsonet_study.report.tables.write import all_tables, write_table

NAME = "1d-pde-error"
OVERLAYS = "ablation", "laws"
"""Tables that the default run does not have, but a file of `config/`."""

ERRORS = {
    "1d-pde-error": (30, "10", "UQ-SONet", "errσ[u]", "8.35 ± 0.38"),
    "1d-pde-addnoise-error": (20, "0.1", "UQ-SONet", "m = 3", "errσ[u]", "9.43"),
    "2d-pde-error": (28, "4", "UQ-SONet", "noiseless", "errE[u]", "5.48"),
    "2d-sde-error": (32, "1", "UQ-SONet", "x = 0.5", "errE[u]", "4.23"),
}
"""Table of errors -> how many numbers the paper prints beside ours, and one of them."""

BANDS = {"methods": ["deep_ensemble", "uqsonet"], "noise_std": 0.3, "recipe": "other"}
ERROR = {"methods": ["vidon"], "sensors": {"counts": [1, 11]}}
SNAPSHOTS = {
    NAME: make_config(scale="smoke", experiment=ERROR),
    "bands": make_config(
        experiment=BANDS, tables={"bands": {"layout": "bands", "experiments": ["e_1"]}}
    ),
    "s": make_config(tables={"s": {"layout": "scores", "experiments": ["e_1"]}}),
    "costs": make_config(tables={"costs": {"layout": "costs", "experiments": ["e_1"]}}),
}
"""Tables that are compared as a whole -> their configurations."""


def config_of(name: str) -> Config:
    """Return a configuration that declares a table."""
    return overlay(name.replace("-", "_")) if name in OVERLAYS else whole_config()


def write(config: Config, folder: Path, name: str = NAME, **given: Any) -> pd.DataFrame:
    """Write a table from what is given, or else from synthetic inputs; returns its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    given = inputs_of(config, name, folder) | given if name in config.tables else given
    write_table(name, config, given, folder)
    return pd.read_csv(folder / f"{name}.csv")


def inputs_of(config: Config, name: str, folder: Path) -> dict[str, Any]:
    """Return what the jobs before it hand to a table."""
    table = config.tables[name]
    if table.layout in ("errors", "bands", "scores"):
        return {"summaries": [keep(make_summary(config), folder / f"{name}-summary.csv")]}
    cases = config.cases_of([e for e in table.experiments if e in config.selected])
    if table.layout in ("costs", "ablation"):
        found = {"logs": {case.name: logs_of(config, case, folder) for case in cases}}
        return found | ({"inference": timings(cases, folder)} if table.layout == "costs" else {})
    if table.layout == "networks":
        return {}
    number, rows = count(1), []
    for case in cases:
        laws = [*BASELINES, *(law_name(config, case.experiment, m) for m in case.methods)]
        places = product([case.problem], laws, case.counts)
        for place in places:
            rows.append((*place, *(1 + 0.618034 * next(number) % 9 for _ in LAW_COLUMNS[3:])))
    return {"scores": [write_rows(folder / f"{name}-scores.csv", LAW_COLUMNS, rows)]}


def logs_of(config: Config, case: Case, folder: Path) -> dict[str, list[Path]]:
    """Logs of three stacks of two trials; the std of `few_inputs` is worst at two sensors."""
    names = "trial iteration seconds skill_mean_1 skill_mean_2 skill_std_1 skill_std_2"
    low = 0.2 if "few_inputs" in case.name else 0.7
    logs: dict[str, list[Path]] = {method: [] for method in case.methods}
    for method, k in product(case.methods, range(3)):
        last = config.method_of(case.name, method).training.iterations
        ends = [(i * last // 2, 3600.0 * i * (k + 1)) for i in (1, 2)]
        skills = 0.5 + k / 10, 0.9, 0.8, low
        rows = [(t, *end, *skills) for end in ends for t in (2 * k, 2 * k + 1)]
        path = folder / f"{case.name}_{method}_{k}.csv"
        logs[method].append(write_rows(path, names.split(), rows))
    return logs


def timings(cases: list[Case], folder: Path) -> list[Path]:
    for case in cases:
        timing = {"seconds": dict.fromkeys(case.methods, 0.0125), "samples": 1000, "sensors": 4}
        timing |= {"threads": 1, "processor": "CPU_7 & co"}
        (folder / f"{case.name}.json").write_text(json.dumps(timing))
    return [folder / f"{case.name}.json" for case in cases]


def write_rows(path: Path, names: list[str], rows: list[tuple[Any, ...]]) -> Path:
    pd.DataFrame(rows, columns=pd.Index(names)).to_csv(path, index=False)
    return path


def cells_of(folder: Path, name: str) -> dict[tuple[str, ...], str]:
    """Return what stands in each cell of a page's table by panel, row labels and headings.

    Bold text is between asterisks. Every row of a panel has to span the same columns.
    """
    found = {}
    for title, table in json.loads((folder / f"{name}.json").read_text())["panels"]:
        ElementTree.fromstring(f"<p>{title}</p>")
        root, grid = ElementTree.fromstring(table), {}
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
            key = title[:3], *(grid[i, k] for k in range(labels)), *above
            found[(*key, "again") if key in found else key] = grid[i, j]
    return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every table of the default run and of the overlays."""
    folder = tmp_path_factory.mktemp("tables")
    for name in (*whole_config().tables, *OVERLAYS):
        write(config_of(name), folder, name)
    return folder


def test_numbers_are_those_of_the_summary(config: Config, tmp_path: Path) -> None:
    summary = summary_of(config, tmp_path / "scores")
    table = write(config, tmp_path, summaries=[keep(summary, tmp_path / "summary.csv")])
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


def test_what_is_not_run_is_left_out(tmp_path: Path) -> None:
    table = write(make_config(experiment={"evaluations": ["paper"]}), tmp_path)
    assert set(table["evaluation"]) == {"paper"} and len(table) == 40
    table = write(whole_config(select=["poisson2d"]), tmp_path, "2d-pde-error")
    assert set(table["experiment"]) == {"poisson2d"} and len(table) == 160


def test_a_model_for_each_count_gives_the_same_table(tables: Path, tmp_path: Path) -> None:
    """Cases split by sensor count are looked up one by one, and look like unsplit ones."""
    config, name = whole_config(recipe="paper", select=["diffusion1d_noise"]), list(ERRORS)[1]
    assert "diffusion1d_noise-noise0.5-m3" in config.cases
    write(config, tmp_path, name)
    split, whole = cells_of(tmp_path, name), cells_of(tables, name)
    assert list(split) == list(whole)
    assert all((split[key] == "–") == (whole[key] == "–") for key in whole)


def test_costs_beside_the_papers(tables: Path, tmp_path: Path) -> None:
    cells = cells_of(tables, "training-cost")
    places = product(("training (h)", "iterations", "inference (s)"), ("paper", "ours"))
    found = [cells["Hou", "4.1", "UQ-SONet", *place] for place in places]
    assert found == ["6.03", "2.00", "100\u202f000", "2\u202f000", "0.030", "0.013"]
    assert cells["Hou", "4.5", "VIDON", "training (h)", "paper"] == "–"  # nothing printed
    write(whole_config(), tmp_path, "training-cost", logs={}, inference=[])
    for key, cell in cells_of(tmp_path, "training-cost").items():
        assert cell == ("–" if key[-1] == "ours" else cells[key])


def test_networks_beside_the_papers(tables: Path, tmp_path: Path) -> None:
    cells = cells_of(tables, "NN")
    assert cells["(b)", "1D PDE", "VIDON", "modes of κ (dz)"] == "56"
    assert cells["(c)", "1D PDE", "VIDON", "learning rate"] == "2·10−3"
    # tab:NN against `recipes.paper`: two transcriptions of one table.
    table = write(whole_config(recipe="paper"), tmp_path, "NN")
    # VIDON has neither encoder nor latent variable.
    assert not {"encoder", "latent_dim"} & set(table[table["method"] == "vidon"]["metric"])
    stated = table[table["paper_setting"].notna()]
    assert len(stated) > 100 and (stated["setting"] == stated["paper_setting"]).all()


def test_bands_compare_widths(tmp_path: Path) -> None:
    table = write(SNAPSHOTS["bands"], tmp_path, "bands")
    found = table[table["metric"] == "mean_std"].set_index(["method", "evaluation", "sensors"])
    widths = found["value"]
    for place in product(("paper", "precise"), (1, 3)):
        ratio = found.loc[("deep_ensemble", *place), "ratio_to_reference"]
        expected = widths[("deep_ensemble", *place)] / widths[("reference", *place)]
        assert ratio == pytest.approx(expected)
    assert cells_of(tmp_path, "bands")["(c)", "3", "Deep ensemble", "ratio"] == f"{ratio:.2f}"


def test_scores_stand_beside_all_baselines(tmp_path: Path) -> None:
    summary = make_summary(SNAPSHOTS["s"])
    gains = summary["method"].eq("uqsonet") & summary["evaluation"].eq("precise")
    for metric, numbers in (("gain_crps", (0.49, 0.47)), ("gain_energy", (0.0025, 0.009))):
        summary.loc[gains & summary["metric"].eq(metric), "value"] = numbers
    table = write(
        SNAPSHOTS["s"], tmp_path, "s", summaries=[keep(summary, tmp_path / "summary.csv")]
    )
    assert set(table["method"]) == {*BASELINES, "uqsonet"}
    samples = table["metric"].str.startswith("within")
    assert set(table["evaluation"][samples]) == {"paper"}
    assert set(table["evaluation"][~samples]) == {"precise"}
    assert set(table["unit"][table["metric"] == "crps"]) == {"1"}
    cells = cells_of(tmp_path, "s")
    assert cells["1D ", "3", "UQ-SONet", "gain, %"].startswith("47.0 [")
    # Percent below one to two places.
    assert cells["1D ", "3", "UQ-SONet", "gain, %", "again"].startswith("0.90 [")


def test_scores_of_several_recipes_go_by_recipe(tmp_path: Path) -> None:
    one = make_config(experiment={"methods": ["uqsonet"]}).experiments["e_1"].model_dump()
    declared = {"layout": "scores", "experiments": ["e_1", "e_2"], "metrics": ["err_mean", "crps"]}
    both = {"e_1": one, "e_2": one | {"recipe": "other"}}
    write(make_config(experiments=both, tables={"s": declared}), tmp_path, "s")
    heads = [key[2] for key in cells_of(tmp_path, "s") if key[1] == "1" and key[3] == "CRPS"]
    assert heads == ["Sensor-free", "Cokriging", "Regression", "my recipe", "other"]


def test_laws_stand_beside_baselines_and_floor(tables: Path) -> None:
    given = pd.read_csv(tables / "laws-scores.csv").query("problem == 'mixture1d'")
    given, cells = given[given["sensors"] == 4].set_index("law"), cells_of(tables, "laws")
    for law, row in given.iterrows():
        best = "*" if row["w1"] == given["w1"].min() else ""
        printed = cells["(a)", method_title(str(law)), "W1", "m = 4"]
        assert printed == f"{best}{row['w1']:.1f}{best}"
    floor = given.loc["sensor_free", "floor_w1"]
    assert cells["(a)", "MC floor", "W1", "m = 4"] == f"{floor:.1f}"
    records = pd.read_csv(tables / "laws.csv").set_index(["experiment", "method", "sensors"])
    found = records.loc[("mixture1d", "auto", 4)].set_index("metric")["value"]
    assert found.to_dict() == pytest.approx(given.loc["auto", found.index].to_dict())


def test_an_ablation_averages_the_last_skills_of_each_recipe(tables: Path) -> None:
    table = pd.read_csv(tables / "ablation.csv").set_index(["experiment", "metric"])
    row = table.loc[("diffusion1d_tuned", "skill_mean")]
    assert row["value"] == pytest.approx(0.75) and row["pm"] == pytest.approx(0.002**0.5)
    assert table.loc[("diffusion1d_few_inputs", "skill_std_worst"), "value"] == pytest.approx(0.2)
    assert table.loc[("sde1d_linear", "minutes"), "value"] == pytest.approx(120)
    assert len(table) == 5 * len(config_of("ablation").tables["ablation"].experiments)
    worst = cells_of(tables, "ablation")["(a)", "few inputs", "skill of the std", "worst m"]
    assert worst == "0.200 ± 0.000"
    # The recipe itself is trained in the default run; here it has no training of its own.
    plan = Plan(config_of("ablation"))
    files = plan.table_files("ablation")["logs"]["diffusion1d_tuned"]["uqsonet"]
    assert files == plan.paths.trained(plan.config.cases["diffusion1d"], "uqsonet", "csv")[:3]
    assert set(files) < set(flat(plan.table_files("ablation")))


def test_each_row_of_the_ablation_changes_one_thing() -> None:
    """Its recipes repeat `tuned`, so that a change there has to be made here too."""
    config = config_of("ablation")
    for base in ("diffusion1d", "elliptic_sde1d_more", "navier_stokes"):
        start = base.removeprefix("elliptic_").removesuffix("_more")
        for name in (name for name in config.selected if name.startswith(start)):
            if name.endswith(("attention", "linear")):
                continue
            changes = config.cases[name].training != config.cases[base].training
            tuned, found = (config.method_of(case, "uqsonet") for case in (base, name))
            for part in ("network", "training"):
                before = getattr(tuned, part).model_dump(exclude={"validate_every", "max_passes"})
                after = getattr(found, part).model_dump(include=set(before))
                changes += sum(after[key] != value for key, value in before.items())
            assert changes == (not name.endswith("tuned")), name


def test_what_no_table_is_made_of_is_refused(config: Config, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tables\.other"):
        write(config, tmp_path, "other")
    path = tmp_path / "found.csv"
    with pytest.raises(DataError, match="not in the summary"):
        write(config, tmp_path, summaries=[keep(make_summary(config).query("sensors == 1"), path)])
    for name, place, content, words in (
        ("training-cost", "diffusion1d", "", r"found\.csv: not a file of trial, iteration"),
        ("training-cost", "diffusion1d", "trial,iteration,seconds\n", "lacks rows"),
        ("training-cost", "diffusion1d", "trial,iteration,seconds\n0,7,1\n", "ends at iteration 7"),
        ("ablation", "diffusion1d_tuned", "trial,iteration\n", "lacks seconds"),
        ("ablation", "other", "", "no training log of diffusion1d_tuned/uqsonet"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=words):
            write(config_of(name), tmp_path, name, logs={place: {"uqsonet": [path]}})
    name = "laws"
    given = pd.read_csv(*inputs_of(config_of(name), name, tmp_path)["scores"])
    fewer = given[given["law"] != "auto"], given.drop(columns="law")
    missing = "no 'auto' of mixture1d with 1 sensors", "lacks law"
    for scores, words in zip(fewer, missing, strict=True):
        scores.to_csv(path, index=False)
        with pytest.raises(DataError, match=words):
            write(config_of(name), tmp_path, name, scores=[path])


def test_all_tables_stand_in_one_document(tables: Path, tmp_path: Path) -> None:
    names = [*whole_config().tables, *OVERLAYS]
    all_tables([tables / f"{name}.tex" for name in names], tmp_path / "all.tex")
    text = (tmp_path / "all.tex").read_text()
    assert r"\input" not in text and text.count(r"\label{") == len(names)
    merged = pd.read_csv(tmp_path / "all.csv", low_memory=False)
    assert set(merged["table"]) == {f"tab:{name}" for name in names}
    assert len(merged) == sum(len(pd.read_csv(tables / f"{name}.csv")) for name in names)
    assert all(cells_of(tables, name) for name in names)
    all_tables([], tmp_path / "all.tex")
    assert "asks for no tables" in (tmp_path / "all.tex").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "all.csv").empty


@pytest.mark.latex
def test_the_document_compiles_and_hardly_anything_is_shrunk(tables: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    names = [*whole_config().tables, *OVERLAYS]
    all_tables([tables / f"{name}.tex" for name in names], tmp_path / "all.tex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert "Overfull" not in log and "Float too large" not in log
    panels = re.findall(r"uqsonet: panel ([\d.]+)pt ?on ([\d.]+)pt", log)
    assert len(panels) > 20 and all(0.95 * float(of) <= float(line) for of, line in panels)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_tables_look_as_they_did(tmp_path: Path, name: str) -> None:
    """Captions, headings and marks; UQSONET_SNAPSHOTS=write makes the files anew."""
    write(SNAPSHOTS[name], tmp_path, name)
    page = json.loads((tmp_path / f"{name}.json").read_text())
    parts = [page["title"], page["caption_html"], *(part for row in page["panels"] for part in row)]
    found = "\n".join([(tmp_path / f"{name}.tex").read_text(), *parts, ""])
    kept = Path(__file__).parent / "snapshots" / f"{name}.txt"
    if os.environ.get("UQSONET_SNAPSHOTS") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(found, encoding="utf-8")
    assert found == kept.read_text(encoding="utf-8")
