"""The page of a run, as text and in a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.browser import inspect
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES
from uqsonet_study.report.page.html_page import (
    FigureView,
    Section,
    TableView,
    scorecard_cells,
    scorecard_counts,
    write_page,
)
from uqsonet_study.report.paper import paper_cells

HOSTILE = '<script>alert(1)</script> & "quotes" <img src=x onerror=alert(2)>'
WIDE = "<table class='scores'><tbody><tr>" + "<td>12.34 ± 0.56</td>" * 60 + "</tr></tbody></table>"
PROVENANCE = {
    "configuration_sha256": "c0ffee" * 10,
    "seed": 7,
    "recipe": HOSTILE,
    "processor": "A processor",
    "cores": 2,
    "versions": {"torch": "2.0", "numpy": "1.0"},
    "python": "3.11.0",
    "stages": {
        "sensors": {"jobs": 1, "hours": 0.25, "peak_memory_mib": 100},
        "train": {"jobs": 3, "hours": 1.5, "peak_memory_mib": 900},
    },
}


def picture(path: Path, width: float = 3) -> Path:
    figure = Figure(figsize=(width, 2))
    figure.subplots().plot([0, 1, 0])
    figure.savefig(path, dpi=100)
    return path


@pytest.fixture
def sections(tmp_path: Path) -> list[Section]:
    table = TableView(
        "1d-pde-error", f"Table 1 {HOSTILE}", "<strong>Errors</strong>", [("(a) <i>m</i>", WIDE)]
    )
    figures = [
        FigureView(
            f"f_{k}", f"Figure {k} {HOSTILE}", f"Caption {HOSTILE}", picture(path, 3 + 5 * k)
        )
        for k, path in enumerate(tmp_path / f"{k}.png" for k in range(3))
    ]
    return [
        Section(f"4.1 {HOSTILE}", HOSTILE, [table], figures[:2]),
        Section("Costs", "", [replace(table, name="costs")]),
        Section("a" * 80, "b" * 300, [], figures[2:]),
    ]


@pytest.fixture
def scorecard() -> pd.DataFrame:
    """The first three cells were run: one below the paper, one above, one equal."""
    empty = dict.fromkeys(("ours", "ours_pm", *BASELINES, "mc_floor"), float("nan"))
    table = paper_cells().assign(**empty)
    for row, factor in enumerate((0.5, 2.0, 1.0)):
        table.loc[row, "ours"] = factor * table.loc[row, "paper"]
        table.loc[row, [*BASELINES, "mc_floor"]] = (40.0, 9.0, 8.0, 1.5)
    table.loc[0, "ours_pm"] = 0.25
    return table


def write(sections: list[Section], scorecard: pd.DataFrame, out: Path, scale: str = "full") -> str:
    write_page(sections, scorecard, PROVENANCE, out, scale)
    return out.read_text(encoding="utf-8")


def test_in_a_browser(sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path) -> None:
    write(sections, scorecard, tmp_path / "report.html", "smoke")
    seen = inspect(tmp_path / "report.html")
    assert seen.faults == []
    assert len(seen.pictures) == 3 and {p["scheme"] for p in seen.pictures} == {"data:"}
    # Scorecard, differences, interpretations, provenance; sections, tables, figures; two more.
    assert seen.links == 4 + 3 + 2 + 3 + 2
    assert seen.title.startswith("Smoke scale")


def test_the_browser_sees_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<!doctype html><link rel="icon" href="data:,"><a href="#gone">x</a><p id="a"><p id="a">'
        '<img src="gone.png" alt="lost"><div style="width: 900px">wide</div>'
        "<script>console.warn('careful'); throw new Error('broken')</script>",
        encoding="utf-8",
    )
    faults = "\n".join(inspect(page).faults)
    for words in ("careful", "broken", "gone.png", "'lost'", "#gone", "#a is there", "at 360 px"):
        assert words in faults
    assert "at 1600 px" not in faults


def test_text_is_escaped_and_our_html_is_not(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    text = write(sections, scorecard, tmp_path / "report.html")
    assert "<script" not in text and "<img src=x" not in text
    assert "<strong>Errors</strong>" in text and WIDE in text


def test_nothing_outside_is_named(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    text = write(sections, scorecard, tmp_path / "report.html")
    for words in ("http://", "https://", "url(", "@import", str(tmp_path)):
        assert words not in text
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in text


def test_the_same_run_gives_the_same_bytes(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    texts = [write(sections, scorecard, tmp_path / name) for name in ("a.html", "b.html")]
    assert texts[0] == texts[1]


def test_the_banner_stands_at_smoke_scale_only(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    assert "Smoke scale." in write(sections, scorecard, tmp_path / "a.html", "smoke")
    assert "Smoke scale" not in write(sections, scorecard, tmp_path / "b.html", "full")


def test_provenance_interpretations_and_differences_are_there(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    text = write(sections, scorecard, tmp_path / "report.html")
    for words in ("c0ffee", "torch 2.0, numpy 1.0", "A processor", "1.750", "regular-space"):
        assert words in text
    assert text.index('row">train</th>') < text.index('row">sensors</th>')
    assert "<code>network.heads</code>" in text and "can explain u by z alone" in text


@pytest.mark.parametrize("content", [None, b"", b"not a picture", "half"])
def test_a_broken_picture_is_named(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "1.png"
    if content is None:
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"1\.png: not a readable PNG"):
        write(sections, scorecard, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_two_parts_with_one_place_are_refused(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="same place #section-costs"):
        write([*sections, Section("Costs", "")], scorecard, tmp_path / "report.html")


def test_cells_are_counted_all_run_and_below(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    cells = scorecard_cells(scorecard)
    assert cells["ratio"].head(4).tolist() == pytest.approx([0.5, 2, 1, float("nan")], nan_ok=True)
    assert cells["below"].sum() == 1
    counts = scorecard_counts(cells)
    assert (counts["cells"].sum(), counts["run"].sum(), counts["below"].sum()) == (142, 3, 1)
    assert set(counts["method"]) == {"vidon", "uqsonet"}
    text = write(sections, scorecard, tmp_path / "report.html")
    assert "prints 142 errors. This run has 3 of them,\n1 below the paper" in text
    assert '5.35 ± 0.15</td><td class="number">2.67 ± 0.25</td>' in text
    last = text[: text.index("</details>")].rpartition("<tr>")[2]
    assert last.count(">–</td>") == 7 and "± nan" not in text  # no cut line, and nothing was run


def test_a_foreign_scorecard_is_refused(scorecard: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="mc_floor"):
        scorecard_cells(scorecard.drop(columns="mc_floor"))
    with pytest.raises(DataError, match="poem"):
        scorecard_cells(
            scorecard.astype({"ours": object}).replace({"ours": {float("nan"): "poem"}})
        )
