"""The tables in README and docs are those of `published/`; every cell holds one number."""

from pathlib import Path

import pandas as pd
import pytest

from uqsonet.errors import DataError
from uqsonet_study.report.printing import markdown
from uqsonet_study.report.readme import (
    ablation_table,
    part_table,
    published_tables,
    replaced,
)

ROOT = Path(__file__).resolve().parents[2]


def test_documents_show_what_is_published() -> None:
    tables = published_tables(ROOT / "published")
    for name, blocks in tables.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert replaced(text, blocks, name) == text, name
    rows = tables["docs/benchmarks.md"]["overview"].splitlines()[2:]
    cells = [cell.strip() for row in rows for cell in row.split("|")[3:-1]]
    assert len(cells) == 10 * len(rows)
    assert all(cell == "--" or float(cell) >= 0 for cell in cells)


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(DataError, match=r"docs/model\.md: markers"):
        replaced("# Model", {"parts": ""}, "docs/model.md")


def test_markdown() -> None:
    table = pd.DataFrame({"a": ["|u|", ""], "b": [12345, 2], "c": [0.26, float("nan")]})
    assert markdown(table).splitlines() == [
        "| a | b | c |",
        "|---|---|---|",
        r"| \|u\| | 12,345 | 0.3 |",
        "|  | 2 | -- |",
    ]


def test_an_ablation_has_skills_with_their_spread_of_all_counts_or_of_some() -> None:
    metrics = "skill_mean", "skill_std_worst", "skill_mean_10", "active_units"
    rows = [("d_no_skip", "no_skip", metric, k - 0.5, 0.25) for k, metric in enumerate(metrics)]
    table = pd.DataFrame(rows, columns=pd.Index(["experiment", "recipe", "metric", "value", "pm"]))
    (row,) = ablation_table(table).to_dict("records")
    assert row == {
        "problem": "d",
        "recipe": "no skip",
        "mean: average skill": "-0.500 ± 0.250",
        "std: worst m": "0.500 ± 0.250",
        "mean: m = 10": "1.500 ± 0.250",
        "active units": "2.5 ± 0.2",
    }
    alone = ablation_table(table.assign(pm=float("nan")))
    assert alone["mean: average skill"].tolist() == ["-0.500"]


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
