"""Which table and figure stands where on the page, and what stands below it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.report.conftest import whole_config
from tests.report.test_page import picture
from uqsonet.errors import DataError
from uqsonet_study.config import Config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.page import sections as module
from uqsonet_study.report.page.html_page import Section
from uqsonet_study.report.page.sections import build_page
from uqsonet_study.report.paper import paper_cells


def build(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Section], dict[str, tuple[str, str]]]:
    """Return the sections of a run's page and the captions given to it."""
    plan = Plan(config)
    names = [*plan.figures(), *plan.pictures()]
    tables = []
    for name in plan.tables():
        tables.append(folder / f"{name}.json")
        content = {
            "name": name,
            "title": f"tab:{name}",
            "caption_html": "c",
            "panels": [["a", "b"]],
        }
        tables[-1].write_text(json.dumps(content))
    pictures = [picture(folder / f"{name}.png") for name in names]
    (folder / "config.json").write_text("{}")
    paper_cells().assign(ours=float("nan")).to_csv(folder / "scorecard.csv")
    captions = {name: plan.caption(name) for name in names}
    found: list[list[Section]] = []
    monkeypatch.setattr(module, "write_page", lambda sections, *_: found.append(sections))
    out = folder / "report.html"
    build_page(config, captions, folder, tables, pictures, folder / "scorecard.csv", out)
    return found[0], captions


def test_every_table_and_figure_stands_once_in_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = whole_config()
    sections, captions = build(config, tmp_path, monkeypatch)
    titles = [section.title for section in sections]
    assert titles[-1] == "All problems"
    assert [t.split(":")[0] for t in titles[:-1]] == [f"Section 4.{k}" for k in range(1, 6)]
    tables = [view.name for section in sections for view in section.tables]
    figures = [view.name for section in sections for view in section.figures]
    assert sorted(tables) == sorted(config.tables) and sorted(figures) == sorted(captions)
    (poisson,) = (section for section in sections if "4.2" in section.title)
    assert [view.name for view in poisson.tables] == ["2d-pde-error"]
    assert {"2d-pde-plot", "poisson2d_data", "poisson2d_layouts"} <= {
        view.name for view in poisson.figures
    }
    assert "poisson2d_noise" in poisson.intro


def test_a_selection_shows_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = whole_config(select=["diffusion1d_noise"], scale="smoke")
    sections, captions = build(config, tmp_path, monkeypatch)
    assert len(sections) == 1 and sections[0].title.startswith("Section 4.1")
    assert [view.name for view in sections[0].tables] == ["1d-pde-addnoise-error"]
    assert all(text.startswith("SMOKE SCALE: ") for _, text in captions.values())


def test_captions_say_what_is_shown() -> None:
    plan = Plan(whole_config())
    title, text = plan.caption("1d-pde-addnoise")
    assert "m = 3, 7" in title and "noise 0.5, 1" in title and "SMOKE" not in text
    title, text = plan.caption("1d-pde-compare")
    assert text.startswith("(a) W2 distance") and "; (b) " in text and "; (c) " in text
    assert "(a)" not in plan.caption("1d-sde-compare")[1]
    assert "deep_ensemble" in plan.caption("1d-pde-ensemble-plot")[1]


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[]")
    arguments = [tmp_path / "t.json"], [], tmp_path / "scorecard.csv", tmp_path / "report.html"
    with pytest.raises(DataError, match=r"t\.json: not a table for the page"):
        build_page(whole_config(), {}, tmp_path, *arguments)
