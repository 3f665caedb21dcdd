from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests.report.conftest import (
    COUNTS,
    ROOT,
    Change,
    make_config,
    make_scores,
    summary_of,
    whole_config,
    write_scores,
)
from uqsonet.errors import ConfigError, DataError
from uqsonet_study.cli import read_config
from uqsonet_study.config import BASELINES, Config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.summary import summarise
from uqsonet_study.report.tables.costs import Logs
from uqsonet_study.report.tables.write import all_tables, write_table

NAME = "1d-pde-error"
Measured = tuple[Config, dict[str, list[Path]], list[Path]]


def write(
    config: Config,
    folder: Path,
    name: str = NAME,
    summary: pd.DataFrame | None = None,
    logs: Logs | None = None,
    inference: list[Path] | None = None,
) -> str:
    """Write a table from synthetic scores, by default of all its cases; returns the LaTeX."""
    if summary is None and config.tables[name].layout in ("errors", "bands", "scores"):
        shown = [e for e in config.tables[name].experiments if e in config.selected]
        cases = [case.name for case in config.cases_of(shown)]
        summary = summary_of(config, folder / "scores" / name, only=cases)
    write_table(
        name,
        config,
        folder / f"{name}.tex",
        folder / f"{name}.csv",
        folder / f"{name}.json",
        summaries=[] if summary is None else [summary],
        logs=logs,
        inference=inference or [],
    )
    return (folder / f"{name}.tex").read_text()


def page(folder: Path, name: str = NAME) -> str:
    """The HTML of a table: caption, titles and panels."""
    found = json.loads((folder / f"{name}.json").read_text())
    assert set(found) == {"name", "title", "caption_html", "panels"} and found["name"] == name
    return found["caption_html"] + "".join(title + table for title, table in found["panels"])


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"[\d.]+ & ", line)]


def compile_alone(source: Path, folder: Path) -> str:
    """Run pdflatex on a copy with no other file in sight; returns its log."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    folder.mkdir()
    shutil.copy(source, folder / "all.tex")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (folder / "all.pdf").stat().st_size > 1000
    return (folder / "all.log").read_text(errors="replace")


def compiles(config: Config, folder: Path, *names: str) -> str:
    """Put tables into one document, compile it, and ask that nothing sticks out of a page."""
    all_tables([folder / f"{name}.tex" for name in names], folder / "all.tex", config)
    log = compile_alone(folder / "all.tex", folder / "alone")
    assert "Overfull" not in log and "Float too large" not in log
    return log


def sizes(log: str) -> list[float]:
    """By which factor each panel is scaled, from what the tables write into the log."""
    found = re.findall(r"uqsonet: panel ([\d.]+)pt ?on ([\d.]+)pt", log)
    return [min(1.0, float(line) / float(panel)) for panel, line in found]


def test_caption_says_what_was_run(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    text = write(config, tmp_path, summary=summary)
    caption = next(line for line in text.splitlines() if line.startswith(r"\caption"))
    for piece in (
        "One-dimensional diffusion equation",
        "section 4.1",
        r"$N$ $=$ 1\,234",
        "2 trials",
        "4 observation sets",
        "6 observation sets",
        "50 samples of the reference, 40 of a model",
        r"my\_recipe",
        "Noiseless",
    ):
        assert piece in caption
    assert r"\label{tab:1d-pde-error}" in text
    assert "SMOKE" not in text + page(tmp_path)
    assert "“my_recipe”" in page(tmp_path)


def test_smoke_scale_and_noise_are_said(tmp_path: Path) -> None:
    config = make_config(scale="smoke", experiment={"noise_std": 0.3, "recipe": "other"})
    text = write(config, tmp_path)
    assert r"\caption{SMOKE SCALE -- " in text and "SMOKE SCALE – " in page(tmp_path)
    assert r"Observation noise $\sigma$ $=$ 0.3" in text and "``other''" in text


def changed(config: Config, folder: Path, change: Change) -> str:
    return write(config, folder, summary=summary_of(config, folder / "scores", change))


def test_bold_is_better_than_the_paper(config: Config, tmp_path: Path) -> None:
    def worse(scores: pd.DataFrame) -> pd.DataFrame:
        at = (scores["method"] == "vidon") & (scores["sensors"] == 3)
        scores.loc[at, "value"] = 0.0618 + 1e-6 * scores.loc[at].index  # the paper: 6.17 %
        scores.loc[(scores["method"] == "vidon") & (scores["sensors"] == 1), "value"] *= 0.1
        return scores

    rows = rows_of(changed(config, tmp_path, worse))
    assert rows[0].startswith(r"1 & $5.35$ & ${}\pm 0.15$ & $\mathbf{0.")
    assert rows[1].startswith(r"3 & $6.17$ & ${}\pm 0.91$ & $6.")
    assert len(rows) == 5 * len(COUNTS)  # two of three panels are in two parts
    assert re.search(
        r'5\.35 <span class="spread">± 0\.15</span></td><td[^>]*><strong>0', page(tmp_path)
    )


def test_dagger_marks_skill_that_may_be_zero(config: Config, tmp_path: Path) -> None:
    def blind(scores: pd.DataFrame) -> pd.DataFrame:
        at = (scores["method"] == "vidon") & (scores["sensors"] == 1)
        scores.loc[at, "value"] *= 10  # as bad as the sensor-free predictor
        return scores

    text = changed(config, tmp_path, blind)
    marked = [line for line in rows_of(text) if "dagger" in line]
    assert len(marked) == 1 and marked[0].startswith("1 & ")
    assert page(tmp_path).count("†</td>") == 1


def test_csv_holds_the_same_numbers(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    write(config, tmp_path, summary=summary)
    table = pd.read_csv(tmp_path / f"{NAME}.csv")
    key = ["evaluation", "method", "metric", "sensors"]
    merged = table.merge(summary, on=key, suffixes=("", "_given"))
    errors = summary[summary["metric"].str.startswith(("err_", "skill_"))]
    assert len(merged) == len(table) == len(errors)
    scale = merged["unit"].map({"percent": 100.0, "1": 1.0})
    assert (merged["value"] - scale * merged["value_given"]).abs().max() < 1e-9
    beside = table[table["paper"].notna()]
    assert len(beside) == 3 * len(COUNTS) and set(beside["evaluation"]) == {"paper"}
    assert set(table["table"]) == {"tab:1d-pde-error"}


def test_columns_follow_the_configuration(tmp_path: Path) -> None:
    config = make_config(experiment={"methods": ["uqsonet"], "sensors": {"counts": [3]}})
    text = write(config, tmp_path)
    assert "VIDON" not in text
    assert [line[:2] for line in rows_of(text)] == ["3 "] * 3


def test_one_evaluation_gives_its_panels_alone(tmp_path: Path) -> None:
    text = write(make_config(experiment={"evaluations": ["paper"]}), tmp_path)
    assert len(rows_of(text)) == 2 * len(COUNTS) and "precise" not in text and "Skill" not in text


def test_methods_of_any_name_compile(tmp_path: Path) -> None:
    config = make_config(experiment={"methods": ["vidon", "my_own_method"]})
    assert r"my\_own\_method" in write(config, tmp_path)
    compiles(config, tmp_path, NAME)


def test_wide_tables_are_cut_into_panels(tmp_path: Path) -> None:
    methods = ["uqsonet", "second", "third", "fourth"]
    config = make_config(experiment={"methods": methods})
    large = ("err", "mean", "crps", "energy")  # all but shares

    def enlarged(scores: pd.DataFrame) -> pd.DataFrame:
        factor = 1 + 19 * scores["metric"].str.startswith(large)
        return scores.assign(value=factor * scores["value"])

    summary = summary_of(config, tmp_path / "s", enlarged)
    assert "(continued)" in write(config, tmp_path, summary=summary)
    assert min(sizes(compiles(config, tmp_path, NAME))) == 1


def test_a_table_without_its_csv_is_refused(tmp_path: Path, config: Config) -> None:
    (tmp_path / "e.tex").write_text("x")
    with pytest.raises(DataError, match=r"e\.tex"):
        all_tables([tmp_path / "e.tex"], tmp_path / "all.tex", config)


def test_a_missing_evaluation_is_refused(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="not in the summary"):
        write(config, tmp_path, summary=summary[summary["evaluation"] == "paper"])


def test_an_unknown_table_is_refused(config: Config, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tables\.other"):
        write_table("other", config, *(tmp_path / f"x.{s}" for s in ("tex", "csv", "json")))


def test_noise_levels_are_rows_in_the_papers_order(tmp_path: Path) -> None:
    text = write(whole_config(), tmp_path, "1d-pde-addnoise-error")
    rows = rows_of(text)[:5]
    assert [row.split(" & ")[0] for row in rows] == ["0.1", "0.3", "0.5", "0.7", "1.0"]
    # m = 3, then m = 7; mean, then std; the paper's beside ours.
    for row, printed in ((rows[0], "6.77 9.43 7.49 9.67"), (rows[4], "6.58 9.20 6.50 7.52")):
        cells = row.split(" & ")[1::4]
        assert [cell.strip("$") for cell in cells[:4]] == printed.split()
    heads = text.index("$m$ $=$ 3"), text.index("$m$ $=$ 7")
    assert heads[0] < heads[1]


def test_a_model_for_each_count_gives_the_same_table(tmp_path: Path) -> None:
    """Cases split by sensor count are looked up one by one, and look like unsplit ones."""
    config = whole_config(recipe="paper", select=["diffusion1d_noise"])
    assert "diffusion1d_noise-noise0.5-m3" in config.cases
    split = write(config, tmp_path, "1d-pde-addnoise-error")
    (tmp_path / "whole").mkdir()
    whole = write(whole_config(), tmp_path / "whole", "1d-pde-addnoise-error")
    number = re.compile(r"\d+\.\d+")
    assert len(number.findall(split)) == len(number.findall(whole))
    assert number.sub("0", "".join(rows_of(split))).replace(r"\mathbf{0}", "0") == number.sub(
        "0", "".join(rows_of(whole))
    ).replace(r"\mathbf{0}", "0")


def test_cases_of_two_experiments_stand_side_by_side(tmp_path: Path) -> None:
    config = whole_config()
    text = write(config, tmp_path, "2d-pde-error")
    printed = rows_of(text)[3], rows_of(text)[7]
    assert "7.01" in printed[0] and "5.48" in printed[0] and "9.37" in printed[0]
    assert "5.03" in printed[1] and "8.01" in printed[1] and "7.27" in printed[1]
    for noise in ("noiseless", r"$\sigma$ $=$ 0.5", r"$\sigma$ $=$ 1"):
        assert noise in text
    table = pd.read_csv(tmp_path / "2d-pde-error.csv")
    assert len(table[table["paper"].notna()]) == 28


def test_a_run_without_tables_has_a_document_that_says_so(tmp_path: Path) -> None:
    all_tables([], tmp_path / "all.tex", make_config(tables={}))
    assert "asks for no tables" in (tmp_path / "all.tex").read_text(encoding="utf-8")
    assert pd.read_csv(tmp_path / "all.csv").empty


def test_experiments_that_are_not_selected_are_left_out(tmp_path: Path) -> None:
    text = write(whole_config(select=["poisson2d"]), tmp_path, "2d-pde-error")
    assert "VIDON" in text and r"\sigma$ $=$" not in text and "noiseless" not in text


def test_cut_lines_are_columns(tmp_path: Path) -> None:
    text = write(whole_config(), tmp_path, "2d-sde-error")
    heads = [text.index(f"${line[0]}$ $=$ {line[2:]}") for line in ("x=0.5", "y=0.5", "x=0.7")]
    assert heads == sorted(heads)
    first = rows_of(text)[0]
    for printed in ("4.23", "8.09", "3.91", "6.92"):
        assert printed in first
    table = pd.read_csv(tmp_path / "2d-sde-error.csv")
    assert len(table[table["paper"].notna()]) == 32
    assert not table.loc[table["metric"].isin(["err_mean", "err_std"]), "paper"].notna().any()
    assert table.loc[table["metric"] == "err_mean@x=0.5", "paper"].dropna().tolist()[0] == 4.23


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    """Logs of two stacks of two trials, and a timing, for every case of the cost table."""
    config, timings = whole_config(), []
    logs: dict[str, dict[str, list[Path]]] = {}
    for case in config.cases_of(config.tables["training-cost"].experiments):
        for method in case.methods:
            last = config.method_of(case.name, method).training.iterations
            for stack, seconds in enumerate((3600.0, 10800.0)):
                path = tmp_path / "train" / case.name / method / f"stack_{stack}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                rows = [(t, i * last // 2, i * seconds / 2, 0.1) for i in (1, 2) for t in (0, 1)]
                columns = pd.Index(["trial", "iteration", "seconds", "loss"])
                pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
                logs.setdefault(case.name, {}).setdefault(method, []).append(path)
        timing = {"seconds": dict.fromkeys(case.methods, 0.0125), "samples": 1000, "sensors": 4}
        path = tmp_path / "inference" / f"{case.name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(timing | {"threads": 1, "processor": "CPU_7 & co"}))
        timings.append(path)
    return config, logs, timings


def test_costs_beside_the_papers(measured: Measured, tmp_path: Path) -> None:
    config, logs, timings = measured
    text = write(config, tmp_path, "training-cost", None, logs, timings)
    # One hour and three for two trials each: a mean of one hour a trial.
    row = next(line for line in text.splitlines() if line.startswith("4.1 & UQ-SONet"))
    ours = r"$6.03$ & $1.00$ & 100\,000 & 2\,000 & $0.030$ & $0.013$ \\"
    assert row == rf"4.1 & UQ-SONet & {ours}"
    unprinted = next(line for line in text.splitlines() if line.startswith("4.5 & VIDON"))
    assert unprinted.startswith("4.5 & VIDON & -- & $1.00$ & -- &")
    assert r"CPU\_7 \& co, 1 thread" in text and "CPU_7 &amp; co" in page(tmp_path, "training-cost")
    table = pd.read_csv(tmp_path / "training-cost.csv")
    assert table.groupby("metric")["value"].first()["train_hours"] == 1


def test_costs_without_a_run_are_the_papers(tmp_path: Path) -> None:
    text = write(whole_config(), tmp_path, "training-cost")
    row = next(line for line in text.splitlines() if line.startswith("4.4 & UQ-SONet"))
    assert row == r"4.4 & UQ-SONet & $11.34$ & -- & 50\,000 & -- & $0.029$ & -- \\"
    assert "processor that no timing names" in text
    compiles(whole_config(), tmp_path, "training-cost")


def test_a_log_of_another_training_is_refused(measured: Measured, tmp_path: Path) -> None:
    config, logs, _ = measured
    path = logs["diffusion1d"]["vidon"][0]
    path.write_text(path.read_text().replace(",8000,", ",7000,"))
    with pytest.raises(DataError, match="ends at iteration 7000"):
        write(config, tmp_path, "training-cost", None, logs)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "trial,iteration,seconds\n"])
def test_a_foreign_log_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "diffusion1d" / "vidon" / "stack_0.csv"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(DataError, match=r"stack_0\.csv: not a training log"):
        write(whole_config(), tmp_path, "training-cost", None, {"diffusion1d": {"vidon": [path]}})


def test_networks_beside_the_papers(tmp_path: Path) -> None:
    text = write(whole_config(), tmp_path, "NN")
    lines = text.splitlines()
    assert any(line.startswith(r"2D PDE/SDE/NS & paper & 4 $\times$ 40 & ") for line in lines)
    assert any(line.startswith(r"1D PDE & VIDON & 56 & 40 & 3 $\times$ 256") for line in lines)
    assert any(line.startswith(r"1D PDE & UQ-SONet & 56 & 40 & 3 $\times$ 256") for line in lines)
    table = pd.read_csv(tmp_path / "NN.csv").set_index(["experiment", "method", "metric"])
    row = table.loc[("diffusion1d", "vidon", "learning_rate")]
    assert (row["setting"], row["paper_setting"]) == ("2·10^-3", "10^-4")


def test_the_papers_recipe_is_what_the_paper_prints(tmp_path: Path) -> None:
    """tab:NN against `recipes.paper`: two transcriptions of one table."""
    write(whole_config(recipe="paper"), tmp_path, "NN")
    table = pd.read_csv(tmp_path / "NN.csv", dtype=str)
    # VIDON has neither encoder nor latent variable.
    assert not {"encoder", "latent_dim"} & set(table[table["method"] == "vidon"]["metric"])
    stated = table[table["paper_setting"].notna()]
    assert len(stated) > 100 and (stated["setting"] == stated["paper_setting"]).all()


def test_bands_compare_widths(tmp_path: Path) -> None:
    config = make_config(
        experiment={"methods": ["deep_ensemble", "uqsonet"]},
        tables={"bands": {"layout": "bands", "experiments": ["e_1"]}},
    )

    def narrow(scores: pd.DataFrame) -> pd.DataFrame:
        for method, width in (("deep_ensemble", 0.02), ("reference", 0.04)):
            at = scores["method"].eq(method) & scores["metric"].eq("mean_std")
            shift = 1e-9 * scores.loc[at].index  # no two evaluations agree in every digit
            scores.loc[at, "value"] = width + 1e-4 * scores.loc[at, "sensors"] + shift
        scores.loc[scores["metric"] == "narrower", "value"] = 1.0
        return scores

    summary = summary_of(config, tmp_path / "s", narrow)
    text = write(config, tmp_path, "bands", summary)
    assert "Deep ensemble of 5 trainings" in text and "consistently narrower" in text
    widths = rows_of(text)[-2]
    assert widths.startswith(r"1 & $0.0401$ & $0.0201$ & ") and "$0.50$ & $100.0$" in widths
    # An ensemble is one: no ± beside it.
    assert re.match(r"1 & \$[\d.]+\$ & \$[\d.]+\$ & \$[\d.]+\$ & \$\{\}\\pm", rows_of(text)[0])
    table = pd.read_csv(tmp_path / "bands.csv").set_index(["method", "metric", "sensors"])
    found = table.loc[("deep_ensemble", "mean_std", 3)]
    assert found["ratio_to_reference"].tolist() == pytest.approx([0.0203 / 0.0403] * 2, rel=1e-4)


def test_all_layouts_in_one_document(measured: Measured, tmp_path: Path) -> None:
    config, logs, timings = measured
    shared = whole_config()
    cases = [c.name for t in shared.tables.values() for c in shared.cases_of(t.experiments)]
    summary = summary_of(shared, tmp_path / "scores", only=set(cases))
    for name, table in config.tables.items():
        costs = table.layout == "costs"
        write(config, tmp_path, name, summary, logs if costs else {}, timings if costs else [])
    log = compiles(config, tmp_path, *config.tables)
    # Nothing is shrunk: text has 7 points and more.
    assert len(sizes(log)) > 20 and min(sizes(log)) == 1
    text = (tmp_path / "all.tex").read_text()
    assert r"\input" not in text and text.count(r"\label{") == len(config.tables)
    merged = pd.read_csv(tmp_path / "all.csv")
    assert set(merged["table"]) == {f"tab:{name}" for name in config.tables}
    parts = [pd.read_csv(tmp_path / f"{name}.csv") for name in config.tables]
    assert len(merged) == sum(map(len, parts))
    common = ["table", "experiment", "scale", "recipe", "method", "metric"]
    assert merged[common].notna().all(axis=None)


def test_pages_are_well_formed(tmp_path: Path) -> None:
    """Every row of a panel spans the same columns, headings with their spans included."""
    from xml.etree import ElementTree

    for name in ("2d-sde-error", "1d-pde-error", "NN"):
        write(whole_config(), tmp_path, name)
        for title, table in json.loads((tmp_path / f"{name}.json").read_text())["panels"]:
            ElementTree.fromstring(f"<p>{title}</p>")
            root = ElementTree.fromstring(table)
            assert root.find("thead") is not None and "style" not in table
            width, reaching = 0, {}
            for row in root.iter("tr"):
                cells = list(row)
                span = sum(int(cell.get("colspan", 1)) for cell in cells)
                span += sum(w for rows, w in reaching.values() if rows > 0)
                width = width or span
                assert span == width
                reaching = {k: (rows - 1, w) for k, (rows, w) in reaching.items()}
                for cell in cells:
                    assert cell.tag == "td" or cell.get("scope") in {"row", "col", "colgroup"}
                    rows = int(cell.get("rowspan", 1)) - 1
                    reaching[id(cell), len(reaching)] = rows, int(cell.get("colspan", 1))


def test_scores_of_one_method_serve_two_experiments(tmp_path: Path) -> None:
    """Equal cases share scores, and then their tables hold the same numbers by right."""
    one = make_config().experiments["e_1"].model_dump()
    tables = {f"t{i}": {"layout": "errors", "experiments": [f"e_{i}"]} for i in (1, 2)}
    config = make_config(experiments={"e_1": one, "e_2": one}, tables=tables)
    files = write_scores(make_scores(), tmp_path / "scores")
    summary = summarise({"e_1": files, "e_2": files}, config)
    for name in tables:
        write(config, tmp_path, name, summary)
    all_tables([tmp_path / f"{name}.tex" for name in tables], tmp_path / "all.tex", config)
    other = make_config(experiments={"e_1": one, "e_2": one | {"noise_std": 0.2}}, tables=tables)
    with pytest.raises(DataError, match="same scores were used twice"):
        all_tables([tmp_path / f"{name}.tex" for name in tables], tmp_path / "all.tex", other)


def test_scores_stand_beside_all_baselines(tmp_path: Path) -> None:
    """A gain is over cokriging on the same sets; no interval is drawn where nothing is claimed."""

    def better(scores: pd.DataFrame) -> pd.DataFrame:
        linear = scores[(scores["method"] == "cokriging") & (scores["metric"] == "crps")]
        half = linear.assign(
            method="uqsonet", value=linear["value"] * (0.5 + linear["sensors"] / 100)
        )
        keep = (scores["method"] != "uqsonet") | (scores["metric"] != "crps")
        return pd.concat([scores[keep], half, half.assign(trial=1)])

    tables = {"s": {"layout": "scores", "experiments": ["e_1"]}}
    config = make_config(tables=tables)
    text = write(config, tmp_path, "s", summary_of(config, tmp_path / "scores", better))
    table = pd.read_csv(tmp_path / "s.csv").set_index(["method", "metric", "sensors"])
    for m in COUNTS:
        gain = table.loc[("uqsonet", "gain_crps", m)]
        assert gain["value"] == pytest.approx(50 - m) and gain["low"] == pytest.approx(50 - m)
        assert table.loc[("cokriging", "crps", m), "unit"] == "1"
    assert set(table.index.get_level_values("method")) == {*BASELINES, "uqsonet"}
    samples = table.index.get_level_values("metric").str.startswith("within")
    assert set(table["evaluation"][samples]) == {"paper"}
    assert set(table["evaluation"][~samples]) == {"precise"}
    assert re.search(r"49\.0\D+49\.0\D+49\.0", text), "no interval"
    compiles(config, tmp_path, "s")


def test_gains_below_one_percent_are_shown_to_two_places(tmp_path: Path) -> None:
    def nearly(scores: pd.DataFrame) -> pd.DataFrame:
        linear = scores[(scores["method"] == "cokriging") & (scores["metric"] == "crps")]
        ours = linear.assign(method="uqsonet", value=linear["value"] * 0.9975)
        keep = (scores["method"] != "uqsonet") | (scores["metric"] != "crps")
        return pd.concat([scores[keep], ours, ours.assign(trial=1)])

    tables = {"s": {"layout": "scores", "experiments": ["e_1"], "metrics": ["crps", "gain_crps"]}}
    config = make_config(tables=tables)
    text = write(config, tmp_path, "s", summary_of(config, tmp_path / "scores", nearly))
    assert re.search(r"0\.25\D+0\.25\D+0\.25", text)


def test_scores_of_several_recipes_go_by_recipe(tmp_path: Path) -> None:
    one = {"problem": "diffusion1d", "sensors": {"counts": COUNTS}, "methods": ["uqsonet"]}
    declared = {"layout": "scores", "experiments": ["e_1", "e_2"], "metrics": ["err_mean", "crps"]}
    config = make_config(
        experiments={"e_1": one, "e_2": one | {"recipe": "other"}}, tables={"s": declared}
    )
    text = write(config, tmp_path, "s")
    assert "my recipe" in text and "other" in text and "UQ-SONet" not in text
    assert text.count("Cokriging") == 1
    with pytest.raises(ConfigError, match="metrics"):
        make_config(tables={"s": declared | {"experiments": ["e_1"], "metrics": ["err"]}})


def ablation_config() -> Config:
    return read_config([ROOT / "config.yaml", ROOT / "config/ablation.yaml"])


def ablation_logs(config: Config, folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Logs of two counts; the std of `few_inputs` is worst at m = 2."""
    logs: dict[str, dict[str, list[Path]]] = {}
    for experiment in config.selected:
        for trial in range(3):
            path = folder / "train" / experiment / "uqsonet" / f"stack_{trial}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            low = 0.2 if "few_inputs" in experiment else 0.7
            rows = [(trial, i, 30.0 * i, 0.5 + trial / 10, 0.9, 0.8, low) for i in (1, 2)]
            names = "trial iteration seconds skill_mean_1 skill_mean_2 skill_std_1 skill_std_2"
            pd.DataFrame(rows, columns=pd.Index(names.split())).to_csv(path, index=False)
            logs.setdefault(experiment, {}).setdefault("uqsonet", []).append(path)
    return logs


def test_an_ablation_averages_the_last_skills_of_each_recipe(tmp_path: Path) -> None:
    config = ablation_config()
    text = write(config, tmp_path, "ablation", None, ablation_logs(config, tmp_path))
    table = pd.read_csv(tmp_path / "ablation.csv").set_index(["experiment", "metric"])
    row = table.loc[("diffusion1d_tuned", "skill_mean")]
    assert row["value"] == pytest.approx(0.75) and row["pm"] == pytest.approx(0.05)
    assert table.loc[("diffusion1d_few_inputs", "skill_std_worst"), "value"] == pytest.approx(0.2)
    assert table.loc[("sde1d_linear", "minutes"), "value"] == pytest.approx(1.0)
    assert "few inputs &" in text
    assert len(table) == 5 * len(config.tables["ablation"].experiments)
    compiles(config, tmp_path, "ablation")


def test_an_ablation_shares_the_trainings_of_the_default_run() -> None:
    """The recipe itself is trained in the default run; here it has no training of its own."""
    plan = Plan(ablation_config())
    files = plan.logs("ablation")["diffusion1d_tuned"]["uqsonet"]
    assert files == plan.trained("diffusion1d", "uqsonet", "csv")[:3]
    assert set(files) < set(plan.table_inputs("ablation")["logs"])


def test_an_ablation_without_a_log_is_refused(tmp_path: Path) -> None:
    config = ablation_config()
    logs = ablation_logs(config, tmp_path)
    del logs["diffusion1d_tuned"]
    with pytest.raises(DataError, match="no training log of diffusion1d_tuned/uqsonet"):
        write(config, tmp_path, "ablation", None, logs)
    logs = ablation_logs(config, tmp_path)
    logs["diffusion1d_tuned"]["uqsonet"][0].write_text("trial,iteration\n")
    with pytest.raises(DataError, match="not a training log"):
        write(config, tmp_path, "ablation", None, logs)


def test_each_row_of_the_ablation_changes_one_thing() -> None:
    """Its recipes repeat `tuned`, so that a change there has to be made here too."""
    config = ablation_config()
    for base, rows in (
        ("diffusion1d", "diffusion1d"),
        ("elliptic_sde1d_more", "sde1d"),
        ("navier_stokes", "navier_stokes"),
    ):
        tuned = config.method_of(base, "uqsonet")
        for experiment in (e for e in config.selected if e.startswith(rows)):
            found = config.method_of(experiment, "uqsonet")
            if experiment.endswith(("attention", "linear")):
                continue
            changes = [
                key
                for part in ("network", "training")
                for key, value in getattr(found, part).model_dump().items()
                if value != getattr(tuned, part).model_dump()[key]
                and key not in ("validate_every", "max_passes")
            ]
            pairs = config.cases[experiment].training != config.cases[base].training
            assert len(changes) + pairs == (not experiment.endswith("tuned")), experiment
