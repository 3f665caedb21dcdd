"""The page of a run: every table and figure, provenance and differences in one HTML file.

Nothing is fetched from elsewhere: pictures are embedded, there is no script, and the page's own
security policy forbids both. It holds no time of making, so the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from matplotlib.image import imread

from uqsonet.errors import DataError
from uqsonet.storage.files import write_text
from uqsonet_study.report.page.overview import overview
from uqsonet_study.report.page.readings import HEADINGS

LABELS = {
    "commit": "Commit",
    "command": "Command",
    "configuration_sha256": "Configuration (SHA-256 of config.json)",
    "seed": "Seed",
    "recipe": "Recipe",
    "processor": "Processor",
    "cores": "Cores",
    "python": "Python",
}
"""What is shown of the provenance besides versions and stages, in this order."""


@dataclass(frozen=True)
class TableView:
    """A table: the caption and the panels are HTML of our own renderer and stand as they are."""

    name: str
    title: str
    caption_html: str
    panels: tuple[tuple[str, str], ...]  # (title as HTML, "<table>...</table>")

    @property
    def id(self) -> str:
        """Name of the table's place on the page."""
        return f"table-{slug(self.name)}"


@dataclass(frozen=True)
class FigureView:
    """A figure: all text is plain, the caption is what is read out instead of the picture."""

    name: str
    title: str
    caption: str
    png: Path

    @property
    def id(self) -> str:
        """Name of the figure's place on the page."""
        return f"figure-{slug(self.name)}"


@dataclass(frozen=True)
class Section:
    """A part of the page, such as a section of the paper or the costs."""

    title: str
    intro: str
    tables: tuple[TableView, ...] = ()
    figures: tuple[FigureView, ...] = ()

    @property
    def id(self) -> str:
        """Name of the section's place on the page."""
        return f"section-{slug(self.title)}"


@dataclass(frozen=True)
class Picture:
    """A picture as the page embeds it."""

    uri: str
    width: int
    height: int


def write_page(
    sections: Sequence[Section],
    scorecard: pd.DataFrame,
    provenance: dict[str, Any],
    readings: pd.DataFrame,
    out: Path,
    scale: str,
) -> None:
    """Write one HTML file that needs nothing else.

    Parameters
    ----------
    sections : sequence of Section
        In the order of the page.
    scorecard : DataFrame
        `scorecard.csv`.
    provenance : dict
        As `uqsonet_study.report.provenance.provenance_of` returns it.
    readings : DataFrame
        As `uqsonet_study.report.page.readings.load_readings` returns it.
    out : Path
    scale : {"full", "smoke"}
        A banner says so at smoke scale.

    Raises
    ------
    DataError
        If a picture is missing or unreadable, if two parts would have the same place on the page,
        or if the scorecard is not one.
    """
    _require_distinct(sections)
    text = _template().render(
        sections=sections,
        pictures={f.id: _picture(f.png) for section in sections for f in section.figures},
        scorecard=overview(scorecard),
        facts=[(label, provenance[key]) for key, label in LABELS.items() if key in provenance],
        versions=provenance.get("versions", {}),
        stages=sorted(provenance.get("stages", {}).items(), key=lambda s: (-s[1]["hours"], s[0])),
        readings=readings.to_dict("records"),
        headings=HEADINGS,
        smoke=scale == "smoke",
    )
    write_text(out, text)


def slug(text: str) -> str:
    """Return a text as part of an address: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _template() -> Template:
    """Return the template, in which every text is escaped unless it says otherwise."""
    folder = files("uqsonet_study.report.page")
    environment = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.j2")


def _require_distinct(sections: Sequence[Section]) -> None:
    """Refuse two parts with the same place: one of two links would lead to the wrong one."""
    parts = [part for s in sections for part in (s, *s.tables, *s.figures)]
    seen: dict[str, str] = {}
    for part in parts:
        if part.id in seen:
            raise DataError(
                f"page: {seen[part.id]!r} and {part.title!r} have the same place #{part.id}"
            )
        seen[part.id] = part.title


def _picture(path: Path) -> Picture:
    """Return a PNG file to embed; it is decoded once, so that a broken one is noticed here."""
    try:
        content = path.read_bytes()
        height, width = imread(path, format="png").shape[:2]
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: not a readable PNG picture ({error})") from None
    encoded = base64.b64encode(content).decode("ascii")
    return Picture(f"data:image/png;base64,{encoded}", width, height)
