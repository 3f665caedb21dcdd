"""The posterior figure of functions of one variable: laws on the line, a panel a sensor count."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from uqsonet.report.sets import FUNCTION, Panel
from uqsonet.report.style import BLACK, BLUE, RED, new_figure
from uqsonet.simulation import Functions

BAND = 2.0
"""Half width of the shaded bands, in standard deviations."""

SHADE = 0.2
# Dashes of one law fall into the gaps of the other: both are seen where they coincide.
REFERENCE: dict[str, Any] = {"color": RED, "linestyle": (0, (4, 4))}
PREDICTED: dict[str, Any] = {"color": BLUE, "linestyle": (4, (4, 4))}
INPUT: dict[str, Any] = {"color": BLACK, "linewidth": 0.7, "linestyle": (0, (6, 3))}
SENSORS: dict[str, Any] = {
    "color": RED,
    "linestyle": "",
    "marker": "o",
    "markersize": 4,
    "markeredgecolor": BLACK,
    "markeredgewidth": 0.5,
}


def draw_lines(data: Functions, panels: list[Panel]) -> Figure:
    """Return the figure: both laws, the input and its sensors, in one panel a sensor count."""
    problem = data.problem
    x, kappa = problem.grid.axes()[0].numpy(), data.kappa[FUNCTION].numpy()
    rows = (len(panels) + 1) // 2
    figure = new_figure(2.25 * rows + 0.45)
    grid = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
    twins: list[Axes] = []
    for i, axes in enumerate(grid.flat):
        if i >= len(panels):
            axes.set_axis_off()
            continue
        twins.append(axes.twinx())
        twins[-1].sharey(twins[0])
        _draw(axes, twins[-1], x, kappa, panels[i])
        last_in_column, last_in_row = i >= len(panels) - 2, i % 2 == 1 or i == len(panels) - 1
        axes.tick_params(labelbottom=last_in_column)
        axes.set_xlabel("$x$" if last_in_column else "")
        axes.set_ylabel(f"${problem.output_symbol}(x)$" if i % 2 == 0 else "")
        twins[-1].tick_params(right=last_in_row, labelright=last_in_row)
        twins[-1].set_ylabel(f"${problem.input_symbol}(x)$" if last_in_row else "")
    handles = _legend(problem.input_symbol)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3)
    return figure


def _draw(axes: Axes, twin: Axes, x: np.ndarray, kappa: np.ndarray, panel: Panel) -> None:
    """Draw one panel: laws on the left axis, the input and its sensors on the right one."""
    for (mean, std), look in ((panel.reference, REFERENCE), (panel.predicted, PREDICTED)):
        low, high = mean - BAND * std, mean + BAND * std
        axes.fill_between(x, low, high, color=look["color"], alpha=SHADE, linewidth=0)
        for edge in (low, high):
            axes.plot(x, edge, linewidth=0.6, **look)
        axes.plot(x, mean, linewidth=1.4, **look)
    twin.plot(x, kappa, **INPUT)
    # Unclipped: a sensor may stand on the boundary.
    twin.plot(panel.given.sensors[:, 0], panel.given.values, clip_on=False, **SENSORS)
    mean, std = (f"{100 * e:.1f} %" for e in panel.errors)
    axes.set_title(f"$m = {len(panel.given.values)}$: error of mean {mean}, of std {std}")
    axes.set_xlim(x[0], x[-1])
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _legend(symbol: str) -> list[Line2D | Patch]:
    """Return the entries of the common legend, column by column."""
    band = f"mean ± {BAND:g} std"
    return [
        Line2D([], [], linewidth=1.4, label="reference mean", **REFERENCE),
        Patch(facecolor=RED, alpha=SHADE, label=f"reference, {band}"),
        Line2D([], [], linewidth=1.4, label="UQ-SONet mean", **PREDICTED),
        Patch(facecolor=BLUE, alpha=SHADE, label=f"UQ-SONet, {band}"),
        Line2D([], [], label=f"input ${symbol}(x)$, right axis", **INPUT),
        Line2D([], [], label="sensors", **SENSORS),
    ]
