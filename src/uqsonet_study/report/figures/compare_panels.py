"""Panels of the figure of sweeps: how a table becomes lines, bars and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator

from uqsonet_study.report.figures.maps import log_ticks
from uqsonet_study.report.figures.style import BLACK, BLUE, GREEN, ORANGE, RED
from uqsonet_study.report.names import FLOOR

PREDICTED = "uqsonet"
PERCENT = 100.0
MARGIN = 1.25
"""Room beyond the data on a logarithmic axis, a factor."""

# Metrics differ in colour and marker, methods in dashes: either pair survives grey print.
DISTANCES: dict[str, dict[str, Any]] = {
    "w2": {"color": BLUE, "marker": "o"},
    "w2_gaussian": {"color": GREEN, "marker": "^", "linestyle": (0, (5, 2))},
}
ERRORS: dict[str, dict[str, Any]] = {
    "err_mean": {"color": BLUE, "marker": "o"},
    "err_std": {"color": ORANGE, "marker": "s"},
}
SPREAD = ("mean_std",)
METHODS: dict[str, dict[str, Any]] = {
    PREDICTED: {"linestyle": "-", "linewidth": 1.4, "markersize": 4},
    "cokriging": {"linestyle": (0, (5, 2))},
    "sensor_free": {"linestyle": (0, (6, 2, 1, 2))},
    FLOOR: {"linestyle": (0, (1, 1.5))},
}
OTHERS: dict[str, Any] = {"linewidth": 0.8, "markersize": 2.8, "markerfacecolor": "white"}
DRAWS: dict[str, Any] = {"color": RED, "linestyle": (0, (1, 1.5)), "linewidth": 1.2, "zorder": 3}
CAPS: dict[str, Any] = {"capsize": 2, "capthick": 0.8, "elinewidth": 0.8}
BARS: dict[str, dict[str, Any]] = {
    FLOOR: {"facecolor": "white", "edgecolor": RED, "hatch": "/////", "linewidth": 0.8},
    PREDICTED: {"facecolor": BLUE, "edgecolor": BLUE, "linewidth": 0.8},
}
BAR = 0.38
"""Width of a bar, in sensors."""


def look(method: str, metric: str) -> dict[str, Any]:
    """Return how the errors of a method are drawn."""
    return ERRORS[metric] | (METHODS[method] if method == PREDICTED else OTHERS | METHODS[method])


def rows(table: pd.DataFrame, methods: Sequence[str], metrics: Sequence[str]) -> np.ndarray:
    """Return x, value and pm of some rows, shape (n, 3), in the order of x."""
    keep = np.isin(np.asarray(table["method"], str), list(methods))
    keep &= np.isin(np.asarray(table["metric"], str), list(metrics))
    found = np.asarray(table[["x", "value", "pm"]], float)[keep]
    return found[np.argsort(found[:, 0], kind="stable")]


def draw_distance(axes: Axes, table: pd.DataFrame) -> None:
    """Draw Wasserstein distances against the latent dimension, for one number of sensors."""
    for metric, style in DISTANCES.items():
        _draw_line(axes, rows(table, [PREDICTED], [metric]), METHODS[PREDICTED] | style)
    draws = rows(table, [FLOOR], ["w2"])
    if len(draws):
        axes.axhline(draws[0, 1], **DRAWS)
    axes.set_xlabel("latent dimension $d_z$")
    axes.set_ylabel("$W_2$ distance")


def frame_distance(axes: Axes, table: pd.DataFrame) -> None:
    """Set the axes that the panels of distances share."""
    shown = np.concatenate([rows(table, [PREDICTED], [*DISTANCES]), rows(table, [FLOOR], ["w2"])])
    axes.set_ylim(0, 1.1 * (shown[:, 1] + np.nan_to_num(shown[:, 2])).max())
    axes.xaxis.set_major_locator(FixedLocator(_places(table)))


def draw_errors(axes: Axes, table: pd.DataFrame) -> None:
    """Draw errors against the size of the training set, for one number of sensors."""
    places = _places(table)
    for method in reversed(METHODS):  # ours last, on top
        for metric in ERRORS:
            part = rows(table, [method], [metric]) * np.array([1, PERCENT, PERCENT])
            if len(part) and np.isnan(part[:, 0]).all():  # one value for all sizes: a mark at each
                part = np.array([[x, *part[0, 1:]] for x in places])
            _draw_line(axes, part, look(method, metric))
    axes.set_xlabel("training pairs $N$")
    axes.set_ylabel("relative $L_2$ error (%)")


def frame_errors(axes: Axes, table: pd.DataFrame) -> None:
    """Set the axes that the panels of errors share: logarithmic, so that all methods are seen."""
    _, values, pm = PERCENT * np.nan_to_num(rows(table, [*METHODS], [*ERRORS])).T
    # A bar may reach below zero, where a logarithmic axis ends nowhere.
    low, high = np.maximum(values - pm, values / 2).min() / MARGIN, (values + pm).max() * MARGIN
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks(ticks := log_ticks(low, high, most=7), [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_major_locator(FixedLocator(_places(table)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.minorticks_off()


def draw_spread(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the mean standard deviation against the number of sensors, the reference beside us."""
    for (method, style), side in zip(BARS.items(), (-0.5, 0.5), strict=True):
        part = rows(table, [method], SPREAD) + np.array([side * BAR, 0, 0])
        axes.bar(part[:, 0], part[:, 1], width=BAR, **style)
        _draw_pm(axes, part, BLACK)
    axes.set_xlabel("number of sensors $m$")
    axes.set_ylabel("std, mean over the domain")


def frame_spread(axes: Axes, table: pd.DataFrame) -> None:
    """Set the axes of the bars."""
    axes.xaxis.set_major_locator(FixedLocator(_places(table)))
    axes.tick_params(axis="x", length=0)


def _places(table: pd.DataFrame) -> list[float]:
    """Return where we have values."""
    x = rows(table, [PREDICTED], [*DISTANCES, *ERRORS, *SPREAD])[:, 0]
    return np.unique(x[np.isfinite(x)]).tolist()


def _draw_line(axes: Axes, part: np.ndarray, style: dict[str, Any]) -> None:
    """Draw a line and the spread over trials."""
    if len(part):
        axes.plot(part[:, 0], part[:, 1], **style)
        _draw_pm(axes, part, style["color"])


def _draw_pm(axes: Axes, part: np.ndarray, color: str) -> None:
    """Draw the bars of error there are: none where there was one trial."""
    x, values, pm = part[np.isfinite(part[:, 2])].T
    if len(x):
        axes.errorbar(x, values, yerr=pm, fmt="none", ecolor=color, **CAPS)
