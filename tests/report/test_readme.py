"""The tables in README and docs are those of `published/`; every cell holds one number."""

from pathlib import Path

import pandas as pd
import pytest

from uqsonet.errors import DataError
from uqsonet_study.report.markers import markdown, replaced
from uqsonet_study.report.readme import ablation_table, part_table, published_tables

ROOT = Path(__file__).resolve().parents[2]
TABLES = published_tables(ROOT / "published")


@pytest.mark.parametrize("name", TABLES)
def test_a_document_shows_what_is_published(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert replaced(text, TABLES[name], name) == text


def test_a_cell_of_the_overview_holds_one_number() -> None:
    rows = TABLES["README.md"]["overview"].splitlines()[2:]
    cells = [cell.strip() for row in rows for cell in row.split("|")[3:-1]]
    assert len(cells) == 8 * len(rows)
    assert all(cell == "--" or float(cell) >= 0 for cell in cells)


def test_markdown() -> None:
    table = pd.DataFrame({"a": ["|u|", ""], "b": [12345, 2], "c": [0.25, float("nan")]})
    assert markdown(table, 2).splitlines() == [
        "| a | b | c |",
        "|---|---|---|",
        r"| \|u\| | 12,345 | 0.25 |",
        "|  | 2 | -- |",
    ]


def test_rows_of_an_ablation() -> None:
    metrics = "skill_mean", "skill_mean_worst", "skill_std", "skill_std_worst", "minutes"
    rows = [("d_no_skip", "no_skip", metric, 0.5 + k, 0.25) for k, metric in enumerate(metrics)]
    table = pd.DataFrame(rows, columns=pd.Index(["experiment", "recipe", "metric", "value", "pm"]))
    (row,) = ablation_table(table).to_numpy().tolist()
    skills = ["0.500 ± 0.250", "1.500 ± 0.250", "2.500 ± 0.250", "3.500 ± 0.250"]
    assert row == ["d", "no skip", *skills, "4.5 ± 0.2"]
    alone = ablation_table(table.assign(pm=float("nan")))
    assert alone["mean: average skill"].tolist() == ["0.500"]


def test_rows_of_parts_leave_the_baselines_out() -> None:
    rows = [
        ("d_linear", "linear", method, m, metric, m + k)
        for method in ("cokriging", "uqsonet")
        for m in (1, 2)
        for k, metric in enumerate(("err_mean", "err_std", "gain_crps"))
    ]
    names = ["experiment", "recipe", "method", "sensors", "metric", "value"]
    found = part_table(pd.DataFrame(rows, columns=pd.Index(names)))
    assert found.to_numpy().tolist() == [["d", "linear", 1.5, 2.0, 2.5, 3.0, 3.5]]


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(DataError, match=r"docs/model\.md: markers"):
        replaced("# Model", {"parts": ""}, "docs/model.md")
