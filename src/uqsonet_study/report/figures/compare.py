"""The figure of sweeps: latent dimension, size of the training set, number of sensors.

All three stand in fig:1d-pde-compare, errors alone in fig:1d-sde-compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from uqsonet_study.cases import Study
from uqsonet_study.report import inputs
from uqsonet_study.report.figures.colours import AMBER, BLACK, BLUE, GREEN, PREDICTION, REFERENCE
from uqsonet_study.report.figures.maps import log_axis
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import FLOOR, method_title
from uqsonet_study.report.summary import most_precise

OURS = "uqsonet"
HEIGHT = 2.35  # of a row of panels with its legend, inches
MARGIN = 1.25  # room beyond the data on a logarithmic axis, a factor
WIDEST = 6  # entries of a legend that stand in one line
BAR = 0.38  # width of a bar, in sensors

# Metrics differ in colour and marker, methods in dashes: either pair survives grey print.
DISTANCES: dict[str, dict[str, Any]] = {
    "w2": {"label": "$W_2$ of samples", "color": BLUE, "marker": "o"},
    "w2_gaussian": {
        "label": "$W_2$ of Gaussians",
        "color": GREEN,
        "marker": "^",
        "linestyle": (0, (5, 2)),
    },
}
ERRORS: dict[str, dict[str, Any]] = {
    "err_mean": {"label": "error of the mean", "color": BLUE, "marker": "o"},
    "err_std": {"label": "error of the std", "color": AMBER, "marker": "s"},
}
OTHERS: dict[str, Any] = {"linewidth": 0.8, "markersize": 2.8, "markerfacecolor": "white"}
METHODS: dict[str, dict[str, Any]] = {
    FLOOR: OTHERS | {"linestyle": (0, (1, 1.5))},
    "sensor_free": OTHERS | {"linestyle": (0, (6, 2, 1, 2))},
    "cokriging": OTHERS | {"linestyle": (0, (5, 2))},
    "regression": OTHERS | {"linestyle": (0, (3, 1, 1, 1, 1, 1))},
    OURS: {"linestyle": "-", "linewidth": 1.4, "markersize": 4},  # on top of the others
}
DRAWS: dict[str, Any] = {"color": REFERENCE, "linestyle": (0, (1, 1.5)), "zorder": 3}
BARS: dict[str, dict[str, Any]] = {
    FLOOR: {"facecolor": "white", "edgecolor": REFERENCE, "hatch": "/////", "label": "reference"},
    OURS: {"facecolor": PREDICTION, "edgecolor": PREDICTION, "label": method_title(OURS)},
}


def draw(study: Study, name: str) -> Figure:
    """Return a declared figure of layout ``compare``.

    It is a row of panels with a legend of its own for each sweep, of most precise evaluations. Bars
    of error show the spread over trials, where there is one.
    """
    declared = study.config.figures[name]
    files = study.paths(inputs.summaries_of_figure(study, name))
    summaries = pd.concat(map(pd.read_csv, files))
    shown = {part: getattr(declared, part) for part in PARTS}
    shown = {part: experiment for part, experiment in shown.items() if experiment is not None}
    figure = new_figure(HEIGHT * len(shown))
    rows = np.atleast_1d(np.asarray(figure.subfigures(len(shown), 1)))
    for row, letter, (part, experiment) in zip(rows, "abc", shown.items(), strict=False):
        column, metrics, methods, draw_part = PARTS[part]
        table = most_precise(summaries, experiment)
        table = table.loc[table["method"].isin(methods) & table["metric"].isin(metrics)]
        first = draw_part(row, table.assign(x=table[column].astype(float)))
        if len(shown) > 1:
            first.set_title(f"({letter})", loc="left", fontweight="bold")
    return figure


def _panels(row: SubFigure, table: pd.DataFrame) -> list[tuple[Axes, pd.DataFrame]]:
    """Return a panel for each number of sensors, with its rows of the table."""
    parts = list(table.groupby("sensors"))
    grid = row.subplots(1, len(parts), sharex=True, sharey=True, squeeze=False)
    for axes, (m, _) in zip(grid[0], parts, strict=True):
        axes.set_title(f"$m = {m:g}$")
        axes.set_xticks(sorted(set(table["x"])))
    return list(zip(grid[0], (part for _, part in parts), strict=True))


def _line(table: pd.DataFrame, method: str, metric: str) -> np.ndarray:
    """Return x, value and pm of a line, shape (3, n), in the order of x."""
    found = table.loc[(table["method"] == method) & (table["metric"] == metric)]
    return np.asarray(found.sort_values("x")[["x", "value", "pm"]], float).T


def _draw_line(axes: Axes, line: np.ndarray, look: dict[str, Any]) -> None:
    axes.plot(line[0], line[1], **look)
    _draw_pm(axes, line, look["color"])


def _draw_pm(axes: Axes, line: np.ndarray, color: str) -> None:
    """Draw the bars of error there are: none where there was one trial."""
    x, values, pm = line[:, np.isfinite(line[2])]
    if len(x):
        caps: dict[str, Any] = {"capsize": 2, "capthick": 0.8, "elinewidth": 0.8, "ecolor": color}
        axes.errorbar(x, values, yerr=pm, fmt="none", **caps)


def _numbers(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return all values and their pm, zero where there is none."""
    return np.asarray(table["value"], float), np.nan_to_num(np.asarray(table["pm"], float))


def _legend(row: SubFigure, handles: list[Any]) -> None:
    lines = 1 + (len(handles) > WIDEST)
    look: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.2}
    look["ncols"] = -(-len(handles) // lines)
    row.legend(handles=handles, loc="outside lower center", **look)


def _draw_distances(row: SubFigure, table: pd.DataFrame) -> Axes:
    """Draw Wasserstein distances against the latent dimension; returns the first panel."""
    panels = _panels(row, table)
    for axes, part in panels:
        for metric, look in DISTANCES.items():
            _draw_line(axes, _line(part, OURS, metric), METHODS[OURS] | look)
        for level in _line(part, FLOOR, "w2")[1, :1]:  # which knows nothing of d_z
            axes.axhline(level, label="two reference draws", **DRAWS)
        axes.set_xlabel("latent dimension $d_z$")
    first, (values, pm) = panels[0][0], _numbers(table)
    first.set_ylabel("$W_2$ distance")
    first.set_ylim(0, 1.1 * (values + pm).max())
    _legend(row, first.get_legend_handles_labels()[0])
    return first


def _draw_errors(row: SubFigure, table: pd.DataFrame) -> Axes:
    """Draw errors in percent against the size of the training set; returns the first panel."""
    table = table.assign(value=100 * table["value"], pm=100 * table["pm"])
    panels = _panels(row, table)
    for axes, part in panels:
        for method, style in METHODS.items():
            for metric, look in ERRORS.items():
                _draw_line(axes, _line(part, method, metric), look | style)
        axes.set_xlabel("training pairs $N$")
    first, (values, pm) = panels[0][0], _numbers(table)
    # A bar may reach below zero, where a logarithmic axis ends nowhere.
    low, high = np.maximum(values - pm, values / 2).min() / MARGIN, (values + pm).max() * MARGIN
    places = first.get_xticks()
    first.set(xscale="log", ylabel="relative $L_2$ error (%)")
    log_axis(first, low, high, most=7)
    first.set_xticks(places)
    first.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axes, _ in panels:
        axes.minorticks_off()
    # Of a method its dashes alone, in black: colours and markers are those of the metrics.
    known = [method for method in reversed(METHODS) if method in set(table["method"])]
    handles = [Line2D([], [], linestyle="", markersize=4, **look) for look in ERRORS.values()]
    for method in known:
        dashes = {key: METHODS[method][key] for key in ("linestyle", "linewidth")}
        handles.append(Line2D([], [], color=BLACK, label=method_title(method), **dashes))
    _legend(row, handles)
    return first


def _draw_spread(row: SubFigure, table: pd.DataFrame) -> Axes:
    """Draw the mean standard deviation against the number of sensors, the reference beside us."""
    axes = row.subplots()
    for (method, look), side in zip(BARS.items(), (-0.5, 0.5), strict=True):
        line = _line(table, method, "mean_std") + np.array([[side * BAR], [0], [0]])
        axes.bar(line[0], line[1], width=BAR, linewidth=0.8, **look)
        _draw_pm(axes, line, BLACK)
    axes.set(xlabel="number of sensors $m$", ylabel="std, mean over the domain")
    axes.set_xticks(sorted(set(table["x"])))
    axes.tick_params(axis="x", length=0)
    _legend(row, axes.get_legend_handles_labels()[0])
    return axes


PARTS: dict[str, tuple[str, list[str], list[str], Callable[..., Axes]]] = {
    "distance": ("latent_dim", [*DISTANCES], [OURS, FLOOR], _draw_distances),
    "errors": ("training", [*ERRORS], [*METHODS], _draw_errors),
    "spread": ("sensors", ["mean_std"], [OURS, FLOOR], _draw_spread),
}
"""Part of the figure -> column of the summary that varies, metrics, methods, what draws it."""
