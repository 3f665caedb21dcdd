"""The page of a run: every table and figure, provenance and differences in one HTML file.

Nothing is fetched from elsewhere: pictures are embedded, there is no script, and the page's own
security policy forbids both. No time of making stands on it: the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.image import imread

from uqsonet.errors import DataError
from uqsonet.files import write_text
from uqsonet_study.config import BASELINES
from uqsonet_study.report.names import method_title
from uqsonet_study.report.page.interpretations import HEADINGS, KINDS, load_interpretations

NUMBERS = ["paper", "paper_pm", "ours", "ours_pm", *BASELINES, "mc_floor"]
NEEDED = ["table", "method", "sensors", "noise_std", "cut_line", "metric", *NUMBERS]


@dataclass(frozen=True)
class TableView:
    """A table. Caption and panels are HTML of our own renderer and stand as they are."""

    name: str
    title: str
    caption_html: str
    panels: Sequence[tuple[str, str]]  # (title as HTML, "<table>...</table>")


@dataclass(frozen=True)
class FigureView:
    """A figure. All text is plain; the caption is what is read out instead of the picture."""

    name: str
    title: str
    caption: str
    png: Path


@dataclass(frozen=True)
class Section:
    """A part of the page, such as a section of the paper or the costs."""

    title: str
    intro: str
    tables: list[TableView] = field(default_factory=list)
    figures: list[FigureView] = field(default_factory=list)


def write_page(
    sections: Sequence[Section],
    scorecard: pd.DataFrame,
    provenance: dict[str, Any],
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
    out : Path
    scale : {"full", "smoke"}
        A banner says so at smoke scale.

    Raises
    ------
    DataError
        If a picture is missing or unreadable, if two parts would have the same place on the page,
        or if the scorecard is not one.
    """
    cells = scorecard_cells(scorecard)
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            sections=sections,
            counts=scorecard_counts(cells).to_dict("records"),
            cells=cells.to_dict("records"),
            provenance=provenance,
            choices={kind: load_interpretations(kind).to_dict("records") for kind in KINDS},
            headings=HEADINGS,
            smoke=scale == "smoke",
        )
    )
    places = pd.Series(re.findall(r' id="([^"]+)"', text))
    for place in places[places.duplicated()]:  # one of two links would lead to the wrong part
        raise DataError(f"page: two parts have the same place #{place}")
    write_text(out, text)


def scorecard_cells(scorecard: pd.DataFrame) -> pd.DataFrame:
    """Return a scorecard with the ratio of our error to the paper's, NaN where nothing was run.

    Raises
    ------
    DataError
        If a column is missing or holds no numbers.
    """
    missing = [name for name in NEEDED if name not in scorecard.columns]
    if missing:
        raise DataError(f"scorecard: columns {missing} are missing")
    try:
        numbers = scorecard[NUMBERS].astype(float)
    except ValueError as error:
        raise DataError(f"scorecard: {error}") from None
    ratio = numbers["ours"] / numbers["paper"]
    lines = scorecard["cut_line"].fillna("")
    return scorecard.assign(**numbers, ratio=ratio, below=ratio < 1, cut_line=lines)


def scorecard_counts(cells: pd.DataFrame) -> pd.DataFrame:
    """Count the cells of each table and method: all, those run, those below the paper."""
    groups = cells.groupby(["table", "method"], sort=False, as_index=False)
    return groups.agg(
        cells=("ratio", "size"),
        run=("ratio", "count"),
        below=("below", "sum"),
        ratio=("ratio", "median"),
    )


def slug(text: str) -> str:
    """Return a text as part of an address: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _environment() -> Environment:
    """Return an environment in which every text is escaped unless a template says otherwise."""
    environment = Environment(
        loader=PackageLoader("uqsonet_study.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"slug": slug, "picture": _picture, "method_title": method_title}
    return environment


def _picture(path: Path) -> dict[str, Any]:
    """Return a PNG file to embed. It is decoded here, so that a broken one is noticed."""
    try:
        content = path.read_bytes()
        height, width = imread(path, format="png").shape[:2]
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: not a readable PNG picture ({error})") from None
    encoded = base64.b64encode(content).decode("ascii")
    return {"uri": f"data:image/png;base64,{encoded}", "width": width, "height": height}
