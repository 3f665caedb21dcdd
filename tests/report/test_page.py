"""The page of a run: as text, in a browser, and which table and figure stands where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.browser import inspect
from tests.report.conftest import whole_config
from uqsonet_study.config import BASELINES, Config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report import page as page_module
from uqsonet_study.report.captions import caption
from uqsonet_study.report.page import KINDS, Section, build_page, load_interpretations, write_page
from uqsonet_study.report.paper import paper_cells

HOSTILE = '<script>alert(1)</script> & "quotes" <img src=x onerror=alert(2)>'
WIDE = "<table class='scores'><tbody><tr>" + "<td>12.34 ± 0.56</td>" * 60 + "</tr></tbody></table>"
PROVENANCE: dict[str, Any] = {"configuration_sha256": "c0ffee" * 10, "recipe": HOSTILE, "seed": 7}
PROVENANCE |= {"processor": "A processor", "cores": 2, "python": "3.11"}
PROVENANCE |= {"versions": {"torch": "2.0", "numpy": "1.0"}}
PROVENANCE["stages"] = {
    "sensors": {"jobs": 1, "hours": 0.25, "peak_memory_mib": 100},
    "train": {"jobs": 3, "hours": 1.5, "peak_memory_mib": 900},
}


@pytest.fixture
def sections(tmp_path: Path) -> list[Section]:
    table: dict[str, Any] = {"name": "1d-pde-error", "title": f"Table 1 {HOSTILE}"}
    table |= {"caption_html": "<strong>Errors</strong>", "panels": [("(a) <i>m</i>", WIDE)]}
    figures = []
    for k in range(3):
        path = tmp_path / f"{k}.png"
        Figure(figsize=(3 + 5 * k, 2)).savefig(path)
        words = {"title": f"Figure {k} {HOSTILE}", "caption": f"Caption {HOSTILE}"}
        figures.append(words | {"name": f"f_{k}", "png": path})
    return [
        Section(f"4.1 {HOSTILE}", HOSTILE, [table], figures[:2]),
        Section("Costs", "", [table | {"name": "costs"}]),
        Section("a" * 80, "b" * 300, [], figures[2:]),
    ]


@pytest.fixture
def scorecard() -> pd.DataFrame:
    """The first three cells were run: one below the paper, one above, one equal."""
    empty = dict.fromkeys(("ours", "ours_pm", *BASELINES, "mc_floor"), float("nan"))
    table = paper_cells().assign(**empty)
    table.loc[:2, "ours"] = table.loc[:2, "paper"] * [0.5, 2.0, 1.0]
    table.loc[:2, [*BASELINES, "mc_floor"]] = (40.0, 9.0, 8.0, 1.5)
    table.loc[0, "ours_pm"] = 0.25
    return table


def write(sections: list[Section], scorecard: pd.DataFrame, out: Path, scale: str = "full") -> str:
    write_page(sections, scorecard, PROVENANCE, out, scale)
    return out.read_text(encoding="utf-8")


def test_in_a_browser(sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path) -> None:
    text = write(sections, scorecard, tmp_path / "report.html", "smoke")
    assert text == write(sections, scorecard, tmp_path / "again.html", "smoke")
    seen = inspect(tmp_path / "report.html")
    assert seen.faults == []
    assert len(seen.pictures) == 3 and {p["scheme"] for p in seen.pictures} == {"data:"}
    # Scorecard, differences, interpretations, provenance; sections, tables, figures; two more.
    assert seen.links == 4 + 3 + 2 + 3 + 2
    assert seen.title.startswith("Smoke scale")


def test_text_is_escaped_and_nothing_outside_is_named(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    text = write(sections, scorecard, tmp_path / "report.html")
    assert "<script" not in text and "<img src=x" not in text
    assert "<strong>Errors</strong>" in text and WIDE in text
    for words in ("http://", "https://", "url(", "@import", str(tmp_path)):
        assert words not in text
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in text
    assert "Smoke scale" not in text
    for words in ("c0ffee", "torch 2.0, numpy 1.0", "A processor", "1.750", "regular-space"):
        assert words in text
    assert text.index('row">train</th>') < text.index('row">sensors</th>')
    assert "<code>network.heads</code>" in text and "can explain u by z alone" in text


def test_cells_are_counted_all_run_and_below(
    sections: list[Section], scorecard: pd.DataFrame, tmp_path: Path
) -> None:
    cells = page_module.scorecard_cells(scorecard)
    assert cells["ratio"].head(4).tolist() == pytest.approx([0.5, 2, 1, float("nan")], nan_ok=True)
    counts = page_module.scorecard_counts(cells)
    assert (counts["cells"].sum(), counts["run"].sum(), counts["below"].sum()) == (142, 3, 1)
    text = write(sections, scorecard, tmp_path / "report.html")
    assert "prints 142 errors. This run has 3 of them,\n1 below the paper" in text
    spread = ' <span class="spread">± {}</span></td>'
    cells = f'5.35{spread.format(0.15)}<td class="number">2.67{spread.format(0.25)}'
    assert f'{cells}<td class="number">▼ 0.50</td>' in text and "▲ 2.00" in text
    last = text[: text.index("</details>")].rpartition("<tr>")[2]
    assert last.count(">–<") == 7 and "± nan" not in text  # no cut line, and nothing was run


def build(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Section], dict[str, tuple[str, str]]]:
    """Return the sections of a run's page and the captions given to it."""
    plan = Plan(config)
    tables = [folder / f"{name}.json" for name in plan.tables()]
    for path in tables:
        content = {"name": path.stem, "title": "t", "caption_html": "c", "panels": [["a", "b"]]}
        path.write_text(json.dumps(content))
    captions = {name: caption(config, name) for name in (*plan.figures(), *plan.pictures())}
    (folder / "config.json").write_text("{}")
    paper_cells().assign(ours=float("nan")).to_csv(folder / "scorecard.csv")
    found: list[list[Section]] = []
    monkeypatch.setattr(page_module, "write_page", lambda sections, *_: found.append(sections))
    pictures = [folder / f"{name}.png" for name in captions]
    build_page(config, captions, tables, pictures, folder / "report.html")
    return found[0], captions


def test_every_table_and_figure_stands_once_in_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = whole_config()
    sections, captions = build(config, tmp_path, monkeypatch)
    titles = [section.title.split(":")[0] for section in sections]
    assert titles == [*(f"Section 4.{k}" for k in range(1, 6)), "All problems"]
    tables = [view["name"] for section in sections for view in section.tables]
    figures = [view["name"] for section in sections for view in section.figures]
    assert sorted(tables) == sorted(config.tables) and sorted(figures) == sorted(captions)
    assert [view["name"] for view in sections[1].tables] == ["2d-pde-error"]
    shown = {view["name"] for view in sections[1].figures}
    assert {"2d-pde-plot", "poisson2d_data", "poisson2d_layouts"} <= shown
    assert "poisson2d_noise" in sections[1].intro
    # Captions say what is shown.
    title, text = captions["1d-pde-addnoise"]
    assert "m = 3, 7" in title and "noise 0.5, 1" in title and "SMOKE" not in text
    _, text = captions["1d-pde-compare"]
    assert text.startswith("(a) W2 distance") and "; (b) " in text and "; (c) " in text
    assert "(a)" not in captions["1d-sde-compare"][1]
    assert "deep_ensemble" in captions["1d-pde-ensemble-plot"][1]
    some = whole_config(select=["diffusion1d_noise"], scale="smoke")
    sections, captions = build(some, tmp_path, monkeypatch)
    assert len(sections) == 1 and sections[0].title.startswith("Section 4.1")
    assert [view["name"] for view in sections[0].tables] == ["1d-pde-addnoise-error"]
    assert all(text.startswith("SMOKE SCALE: ") for _, text in captions.values())


@pytest.mark.parametrize("kind", KINDS)
def test_interpretations_are_complete(kind: str) -> None:
    table = load_interpretations(kind)
    assert table["number"].tolist() == [str(k) for k in range(1, len(table) + 1)] != []
    needed = ["paper", "here", "why"] if kind == "difference" else ["paper", "here"]
    assert table[needed].map(len).gt(0).all(axis=None)
