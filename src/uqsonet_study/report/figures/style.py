"""One look for every figure, and files whose bytes repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from uqsonet.files import atomic_path
from uqsonet_study.report.figures.colours import CYCLE, GREY

# Lightness is monotone in each, so maps survive grey print and every kind of colour vision.
FIELD_MAP, STD_MAP, ERROR_MAP = "viridis", "magma", "Greys"

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures agree across machines
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "axes.prop_cycle": f"cycler('color', {list(CYCLE)})",
    "pdf.fonttype": 42,  # TrueType, which journals accept; the default is Type 3
    "savefig.dpi": 200,
}
WIDTH = 6.7  # text width of an A4 page, inches
STRIP = 0.15  # height of the strip that holds the note of smoke scale, inches


class RoundedLayout(ConstrainedLayoutEngine):
    """A constrained layout, its places rounded.

    Its solver adds in the order of addresses in memory, so the last digit varies.
    """

    def execute(self, fig: Figure) -> Any:
        """Place all axes of a figure, to a billionth of its size."""
        found = super().execute(fig)
        for axes in fig.axes:
            place, is_in = axes.get_position(original=True).bounds, axes.get_in_layout()
            axes.set_position(np.round(place, 9).tolist(), which="original")
            axes.set_in_layout(is_in)  # what is placed by hand leaves the layout
        return found


def new_figure(height: float) -> Figure:
    """Return an empty figure of the page's width; open `styled` first."""
    return Figure(figsize=(WIDTH, height), layout=RoundedLayout())


@contextmanager
def styled() -> Iterator[None]:
    """Give a context in which figures are drawn: this style and nothing of the user's own."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def save(figure: Figure, scale: str, path: Path) -> None:
    """Write a figure as vector PDF and as PNG, atomically.

    No date and no version is written, so equal figures are equal files.

    Parameters
    ----------
    scale : {"full", "smoke"}
        Of the run. What was made at smoke scale says so in its corner.
    path : Path
        Of both files, without suffix.
    """
    nothing = {"png": ("Software",), "pdf": ("Creator", "Producer", "CreationDate")}
    with styled():
        if scale == "smoke":
            _say_smoke(figure)
        if engine := figure.get_layout_engine():
            engine.execute(figure)  # panels of equal sides find their places in two turns
        for kind, keys in nothing.items():
            with atomic_path(path.with_suffix(f".{kind}")) as temporary:
                figure.savefig(temporary, format=kind, metadata=dict.fromkeys(keys))
            figure.set_layout_engine("none")  # panels stand alike in both files


def _say_smoke(figure: Figure) -> None:
    """Add a strip on top with a note at its right end: panels keep their sizes."""
    height = figure.get_figheight() + STRIP
    figure.set_figheight(height)
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - STRIP / height))
    place = 1 - STRIP / 4 / WIDTH, 1 - STRIP / 4 / height
    figure.text(*place, "smoke scale", ha="right", va="top", color=GREY, fontsize=6)
