from __future__ import annotations

import re
import shutil
import string
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.conftest import COUNTS, make_config, make_scores, write_scores
from uqsonet.config import Config
from uqsonet.errors import DataError
from uqsonet.report.latex import SPECIAL, Cell, Column, escape, tabular, with_spread
from uqsonet.report.summary import summarise
from uqsonet.report.tables import all_tables, error_table


@pytest.fixture
def summary(tmp_path: Path) -> pd.DataFrame:
    return summarise(write_scores(make_scores(), tmp_path))


def write(summary: pd.DataFrame, config: Config, folder: Path) -> str:
    error_table(summary, "e_1", config, folder / "e_1.tex", folder / "e_1.csv")
    return (folder / "e_1.tex").read_text()


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


def test_caption_says_what_was_run(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    text = write(summary, config, tmp_path)
    caption = next(line for line in text.splitlines() if line.startswith(r"\caption"))
    for piece in (
        "One-dimensional diffusion equation",
        "section 4.1",
        r"$N = 1\,234$",
        "2 trials",
        "4 observation sets",
        "6 observation sets",
        "50 samples of the reference, 40 of a model",
        r"my\_recipe",
        "Noiseless",
    ):
        assert piece in caption
    assert r"\label{tab:1d-pde-error}" in text
    assert "SMOKE" not in text


def test_smoke_scale_and_noise_are_said(summary: pd.DataFrame, tmp_path: Path) -> None:
    config = make_config(scale="smoke", experiment={"noise_std": 0.3, "recipe": "other"})
    text = write(summary, config, tmp_path)
    assert r"\caption{SMOKE SCALE -- " in text
    assert r"$\sigma = 0.3$" in text and "``other''" in text


def test_bold_is_better_than_the_paper(config: Config, tmp_path: Path) -> None:
    scores = make_scores()
    worse = (scores["method"] == "vidon") & (scores["sensors"] == 3)
    scores.loc[worse, "value"] = 0.0618 + 1e-6 * scores.loc[worse].index  # the paper: 6.17 %
    scores.loc[(scores["method"] == "vidon") & (scores["sensors"] == 1), "value"] *= 0.1
    text = write(summarise(write_scores(scores, tmp_path)), config, tmp_path)
    rows = [line for line in text.splitlines() if re.match(r"\d+ & ", line)]
    assert rows[0].startswith(r"1 & $5.35$ & ${}\pm 0.15$ & $\mathbf{0.")
    assert rows[1].startswith(r"3 & $6.17$ & ${}\pm 0.91$ & $6.")
    assert len(rows) == 3 * len(COUNTS)


def test_dagger_marks_skill_that_may_be_zero(config: Config, tmp_path: Path) -> None:
    scores = make_scores()
    blind = (scores["method"] == "vidon") & (scores["sensors"] == 1)
    scores.loc[blind, "value"] *= 10  # as bad as the sensor-free predictor
    text = write(summarise(write_scores(scores, tmp_path)), config, tmp_path)
    marked = [line for line in text.splitlines() if line.endswith(r"\\") and "dagger" in line]
    assert len(marked) == 1 and marked[0].startswith("1 & ")


def test_csv_holds_the_same_numbers(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    write(summary, config, tmp_path)
    table = pd.read_csv(tmp_path / "e_1.csv")
    key = ["evaluation", "method", "metric", "sensors"]
    merged = table.merge(summary, on=key, suffixes=("", "_given"))
    assert len(merged) == len(table) == len(summary)
    scale = merged["unit"].map({"percent": 100.0, "1": 1.0})
    assert (merged["value"] - scale * merged["value_given"]).abs().max() < 1e-9
    beside = table[table["paper"].notna()]
    assert len(beside) == 3 * len(COUNTS) and set(beside["evaluation"]) == {"paper"}


def test_columns_follow_the_configuration(summary: pd.DataFrame, tmp_path: Path) -> None:
    config = make_config(
        experiment={"methods": ["uqsonet"], "sensors": {"counts": [3]}, "figure_counts": [3]}
    )
    text = write(summary, config, tmp_path)
    assert "VIDON" not in text
    assert [line[:2] for line in text.splitlines() if re.match(r"\d+ & ", line)] == ["3 "] * 3


def test_methods_and_labels_of_any_name_compile(tmp_path: Path) -> None:
    methods = ("vidon", "my_own_method")
    summary = summarise(write_scores(make_scores(methods=methods), tmp_path))
    config = make_config(experiment={"methods": list(methods), "table": "tab:%a_b#{"})
    text = write(summary, config, tmp_path)
    assert r"my\_own\_method" in text and r"\label{tab:-a_b--}" in text
    all_tables([tmp_path / "e_1.tex"], tmp_path / "all.tex")
    compile_alone(tmp_path / "all.tex", tmp_path / "alone")


def test_all_tables_compile_alone(summary: pd.DataFrame, config: Config, tmp_path: Path) -> None:
    write(summary, config, tmp_path)
    for suffix in (".tex", ".csv"):
        shutil.copy((tmp_path / "e_1").with_suffix(suffix), (tmp_path / "e_2").with_suffix(suffix))
    all_tables([tmp_path / "e_1.tex", tmp_path / "e_2.tex"], tmp_path / "all.tex")
    text = (tmp_path / "all.tex").read_text()
    assert r"\input" not in text and text.count(r"\begin{table}") == 2
    assert len(pd.read_csv(tmp_path / "all.csv")) == 2 * len(pd.read_csv(tmp_path / "e_1.csv"))
    log = compile_alone(tmp_path / "all.tex", tmp_path / "alone")
    assert "Overfull" not in log


def test_wide_tables_are_shrunk_to_the_page(tmp_path: Path) -> None:
    methods = ("uqsonet", "second", "third", "fourth")
    scores = make_scores(methods=methods)
    scores["value"] *= 20
    summary = summarise(write_scores(scores, tmp_path))
    write(summary, make_config(experiment={"methods": list(methods)}), tmp_path)
    all_tables([tmp_path / "e_1.tex"], tmp_path / "all.tex")
    assert "Overfull" not in compile_alone(tmp_path / "all.tex", tmp_path / "alone")


def test_a_table_without_its_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.tex").write_text("x")
    with pytest.raises(DataError, match=r"e\.tex"):
        all_tables([tmp_path / "e.tex"], tmp_path / "all.tex")


def test_a_missing_evaluation_is_refused(
    summary: pd.DataFrame, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="not in the summary"):
        write(summary[summary["evaluation"] == "paper"], config, tmp_path)


@given(st.text())
def test_escaped_text_has_no_special_characters(text: str) -> None:
    found = escape(text)
    assert found.isascii()
    for piece in sorted(SPECIAL.values(), key=len, reverse=True):
        found = found.replace(piece, "")
    assert not set(found) & set(SPECIAL)


@settings(max_examples=20)
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=6), st.integers(1, 3))
def test_headings_span_every_column(groups: list[str], rows: int) -> None:
    columns = [
        Column((group, string.ascii_letters[i]), (with_spread(1.0, 0.1), *[Cell()] * (rows - 1)))
        for i, group in enumerate(groups)
    ]
    lines = tabular("m", ["1"] * rows, columns).splitlines()
    for heading in (line for line in lines if line.startswith((" & ", "m & "))):
        assert sum(map(int, re.findall(r"multicolumn\{(\d+)\}", heading))) == 2 * len(groups)
