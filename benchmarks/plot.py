"""The picture of a run: ratios to peers, and how a step grows."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.rows import Row

BLUE, GREY = "#1f5a94", "0.45"


def draw(rows: list[Row], folder: Path) -> None:
    """Write benchmarks.pdf and benchmarks.png."""
    compared = [row for row in rows if row.ratio is not None and row.unit != "GiB"]
    scaled = [row for row in rows if row.name.startswith("scaling with ")]
    kinds = list(dict.fromkeys(_kind(row) for row in scaled))
    with plt.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = plt.figure(figsize=(10.5, 1.6 + 0.42 * len(compared)), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(2.1, 1), squeeze=False)[0]
        if compared:
            _bars(left.subplots(), compared)
        if kinds:
            panels = right.subplots(len(kinds), 1, squeeze=False)[:, 0]
            for axes, kind in zip(panels, kinds, strict=True):
                _curve(axes, kind, [row for row in scaled if _kind(row) == kind])
        for suffix in ("pdf", "png"):
            figure.savefig(folder / f"benchmarks.{suffix}", dpi=160)
        plt.close(figure)


def _bars(axes: Axes, rows: list[Row]) -> None:
    ratios = [row.ratio or 0.0 for row in rows]
    places = range(len(rows))
    axes.barh(places, ratios, color=BLUE, height=0.55)
    axes.set_xscale("log")
    axes.axvline(1, color=GREY, linewidth=0.8)
    axes.set_xlim(min(0.5, *ratios) * 0.9, max(ratios) * 4)
    for place, ratio in zip(places, ratios, strict=True):
        digits = 0 if ratio >= 100 else 1
        axes.text(ratio * 1.06, place, f"{ratio:.{digits}f}", va="center", color=BLUE)
    labels = [f"{_short(row.name)}{_threads(row)}\nagainst {_short(row.peer)}" for row in rows]
    axes.set_yticks(list(places), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("peer / ours (time, or error after equal time)")


def _curve(axes: Axes, kind: str, rows: list[Row]) -> None:
    numbers = [int(row.name.rpartition(": ")[2]) for row in rows]
    seconds = [row.value or 0.0 for row in rows]
    scale, unit = (1e3, "ms") if max(seconds) < 1 else (1.0, "s")
    axes.plot(numbers, [scale * s for s in seconds], "o-", color=BLUE, markersize=3)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel(kind, labelpad=1)
    axes.set_ylabel(f"{unit} a step" if rows[0].unit != "s" else unit)


def _threads(row: Row) -> str:
    """Return the number of threads where there is more than one."""
    number = row.hardware.rpartition(", ")[2]
    return f", {number}" if number.endswith("threads") else ""


def _kind(row: Row) -> str:
    return row.name.removeprefix("scaling with ").rpartition(":")[0]


def _short(text: str) -> str:
    return re.sub(r", float(32|64)| \(\d+ steps measured.*\)|, batch 100$", "", text)
