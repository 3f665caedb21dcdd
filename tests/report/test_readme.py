"""The numbers in README and docs are those of `published/`."""

from pathlib import Path

import pandas as pd
import pytest

from uqsonet.errors import DataError
from uqsonet_study.report.readme import ablation_rows, part_rows, published_tables, updated

ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_show_what_is_published() -> None:
    found = published_tables(ROOT / "published")
    assert set(found["README.md"]) == {"overview", "results"}
    for name, tables in found.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert updated(text, tables, name) == text


def test_rows_of_an_ablation() -> None:
    metrics = "skill_mean", "skill_mean_worst", "skill_std", "skill_std_worst", "minutes"
    rows = [("d_no_skip", "no_skip", metric, 0.5 + k, 0.25) for k, metric in enumerate(metrics)]
    table = pd.DataFrame(rows, columns=pd.Index(["experiment", "recipe", "metric", "value", "pm"]))
    assert ablation_rows(table).splitlines()[2] == (
        "| d | no skip | 0.500 ± 0.250, 1.500 ± 0.250 | 2.500 ± 0.250, 3.500 ± 0.250 | 4.5 ± 0.2 |"
    )
    alone = ablation_rows(table.assign(pm=float("nan")))
    assert "| 0.500, 1.500 |" in alone


def test_rows_of_parts_leave_the_baselines_out() -> None:
    rows = [
        ("d_linear", "linear", method, m, metric, m + k)
        for method in ("cokriging", "uqsonet")
        for m in (1, 2)
        for k, metric in enumerate(("err_mean", "err_std", "gain_crps"))
    ]
    names = ["experiment", "recipe", "method", "sensors", "metric", "value"]
    lines = part_rows(pd.DataFrame(rows, columns=pd.Index(names))).splitlines()
    assert lines[2:] == ["| d | linear | 1, 2 | 1.0, 2.0 | 2.0, 3.0 | 3.0, 4.0 |"]


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(DataError, match=r"docs/model\.md: markers"):
        updated("# Model", {"parts": ""}, "docs/model.md")
