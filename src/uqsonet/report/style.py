"""One look for every figure, and files whose bytes repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from uqsonet.storage import atomic_path

# Okabe and Ito's palette: told apart by colour-blind readers and in grey print.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
RED = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#7F7F7F"
CYCLE: tuple[str, ...] = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK)

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
WIDTH = 6.7
"""Text width of an A4 page, inches."""


def new_figure(height: float) -> Figure:
    """Return an empty figure of the page's width; open `styled` first."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


@contextmanager
def styled() -> Iterator[None]:
    """Give a context in which figures are drawn: this style and nothing of the user's own."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def save(figure: Figure, pdf: Path, png: Path) -> None:
    """Write a figure as vector PDF and as PNG, atomically.

    No date and no version is written, so equal figures are equal files.
    """
    nothing = {"pdf": ("Creator", "Producer", "CreationDate"), "png": ("Software",)}
    with styled():
        for path, kind in ((pdf, "pdf"), (png, "png")):
            with atomic_path(path) as temporary:
                metadata = dict.fromkeys(nothing[kind])
                figure.savefig(temporary, format=kind, metadata=metadata)
