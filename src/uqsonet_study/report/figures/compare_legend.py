"""The legend that the panels of the figure of sweeps share: a column for each kind of mark."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from uqsonet_study.report.figures.compare_panels import (
    BARS,
    DISTANCES,
    DRAWS,
    ERRORS,
    METHODS,
    PREDICTED,
    SPREAD,
    look,
)
from uqsonet_study.report.figures.style import BLACK
from uqsonet_study.report.names import FLOOR, method_title

Found = set[tuple[str, str]]
Handle = Line2D | Patch
METRICS = {
    "w2": "$W_2$ of samples",
    "w2_gaussian": "$W_2$ of Gaussians",
    "err_mean": "error of the mean",
    "err_std": "error of the std",
}


def legend_handles(given: dict[str, pd.DataFrame]) -> tuple[list[Handle], int]:
    """Return entries for what the tables hold, and in how many columns they stand.

    Columns are filled up with empty entries, because a legend is filled column by column.
    """
    groups = [group for name, table in given.items() for group in _groups(name, table)]
    if len(groups) == 1:
        return groups[0], len(groups[0])
    lines = max(map(len, groups))
    for group in groups:
        group += [Line2D([], [], linestyle="", label=" ")] * (lines - len(group))
    return [handle for group in groups for handle in group], len(groups)


def _groups(name: str, table: pd.DataFrame) -> list[list[Handle]]:
    found = set(zip(table["method"], table["metric"], strict=True))
    if name == "spread":
        return [_bars(found)]
    return [_distances(found)] if name == "distance" else _errors(found)


def _bars(found: Found) -> list[Handle]:
    titles = {FLOOR: "reference", PREDICTED: method_title(PREDICTED)}
    return [Patch(label=titles[m], **s) for m, s in BARS.items() if (m, *SPREAD) in found]


def _distances(found: Found) -> list[Handle]:
    lines: list[Handle] = [
        Line2D([], [], label=METRICS[metric], **(METHODS[PREDICTED] | style))
        for metric, style in DISTANCES.items()
        if (PREDICTED, metric) in found
    ]
    if (FLOOR, "w2") in found:
        lines.append(Line2D([], [], label="two reference draws", **DRAWS))
    return lines


def _errors(found: Found) -> list[list[Handle]]:
    """Return metrics as marks and methods as dashes, or whole lines if there is one method."""
    methods = [m for m in METHODS if any(m == known for known, _ in found)]
    metrics = [m for m in ERRORS if any(m == known for _, known in found)]
    if methods == [PREDICTED]:
        return [[Line2D([], [], label=METRICS[m], **look(PREDICTED, m)) for m in metrics]]
    # Of a method its dashes alone, in black: colours and markers are those of the metrics.
    dashes = [{k: v for k, v in _style(m).items() if k.startswith("line")} for m in methods]
    size = METHODS[PREDICTED]["markersize"]
    return [
        [
            Line2D([], [], label=METRICS[m], linestyle="", markersize=size, **ERRORS[m])
            for m in metrics
        ],
        [
            Line2D([], [], label=method_title(m), color=BLACK, **d)
            for m, d in zip(methods, dashes, strict=True)
        ],
    ]


def _style(method: str) -> dict[str, Any]:
    return look(method, "err_mean")
