"""The posterior figure of functions of one variable: laws on the line, a panel a case."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from uqsonet.data import Functions
from uqsonet_study.report.figures.maps import log_ticks
from uqsonet_study.report.figures.sets import FUNCTION, Panel
from uqsonet_study.report.figures.style import BLACK, BLUE, RED, new_figure

BAND = 2.0
"""Half width of the shaded bands, in standard deviations."""

SHADE = 0.2
MARGIN = 1.3
"""Room beyond the data on a logarithmic axis, a factor."""

# Dashes of one law fall into the gaps of the other: both are seen where they coincide. Those of
# the prediction are halved, which tells them apart in grey print.
REFERENCE: dict[str, Any] = {"color": RED, "linestyle": (0, (4, 4))}
PREDICTED: dict[str, Any] = {"color": BLUE, "linestyle": (4, (1.5, 1, 1.5, 4))}
INPUT: dict[str, Any] = {"color": BLACK, "linewidth": 0.7, "linestyle": (0, (6, 3))}
SENSORS: dict[str, Any] = {
    "color": RED,
    "linestyle": "",
    "marker": "o",
    "markersize": 4,
    "markeredgecolor": BLACK,
    "markeredgewidth": 0.5,
}


def draw_lines(data: Functions, panels: list[Panel], columns: int = 2) -> Figure:
    """Return the figure: both laws, the input and its sensors, panel by panel along the rows.

    Parameters
    ----------
    data : Functions
        Holds the input, which is the same in all panels.
    panels : list of Panel
    columns : int
        Panels in a row, or fewer where there are fewer panels.
    """
    problem = data.problem
    x, kappa = problem.grid.axes()[0].numpy(), data.kappa[FUNCTION].numpy()
    noisy = any(panel.noise_std for panel in panels)
    methods = list(dict.fromkeys(panel.method for panel in panels))
    rows = -(-len(panels) // columns)
    lines = noisy + (len(methods) > 1) + (columns > 2)
    figure = new_figure((2.25 + 0.12 * lines) * rows + 0.45)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    twins: list[Axes] = []
    for i, axes in enumerate(grid.flat):
        if i >= len(panels):
            axes.set_axis_off()
            continue
        twins.append(axes.twinx())
        twins[-1].sharey(twins[0])
        _draw(axes, twins[-1], x, kappa, panels[i])
        axes.set_title(_title(panels[i], named=len(methods) > 1, narrow=columns > 2))
        last_in_column = i + columns >= len(panels)
        last_in_row = i % columns == columns - 1 or i == len(panels) - 1
        axes.tick_params(labelbottom=last_in_column)
        axes.set_xlabel("$x$" if last_in_column else "")
        axes.set_ylabel(f"${problem.output_symbol}(x)$" if i % columns == 0 else "")
        twins[-1].tick_params(right=last_in_row, labelright=last_in_row)
        twins[-1].set_ylabel(f"${problem.input_symbol}(x)$" if last_in_row else "")
    # Noise on log kappa moves observations by factors, which a linear axis cannot show.
    logarithmic = noisy and problem.transform.name == "log"
    if logarithmic:
        _use_log(twins, kappa, panels)
    handles = _legend(problem.input_symbol, methods, noisy, logarithmic)
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
    axes.set_xlim(x[0], x[-1])
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _title(panel: Panel, named: bool, narrow: bool) -> str:
    """Return what a panel shows, the method too where `named`; on one line where it fits."""
    mean, std = (f"{100 * e:.1f} %" for e in panel.errors)
    if narrow:
        errors = f"\nerror of mean {mean},\nof std {std}"
    else:
        errors = "\n" if panel.noise_std else ": "
        errors += f"error of mean {mean}, of std {std}"
    return (f"{panel.method}\n" if named else "") + panel.case + errors


def _use_log(twins: list[Axes], kappa: np.ndarray, panels: list[Panel]) -> None:
    """Give the right axes, which share their limits, a logarithmic scale with plain numbers."""
    shown = np.concatenate([kappa, *(panel.given.values for panel in panels)])
    low, high = shown.min() / MARGIN, shown.max() * MARGIN
    ticks = log_ticks(low, high)
    for twin in twins:
        twin.set_yscale("log")
        twin.set_ylim(low, high)
        twin.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        twin.minorticks_off()


def _legend(
    symbol: str, methods: list[str], noisy: bool, logarithmic: bool
) -> list[Line2D | Patch]:
    """Return the entries of the common legend, column by column."""
    band = f"mean ± {BAND:g} std"
    who = methods[0] if len(methods) == 1 else "prediction"
    axis = "log. right axis" if logarithmic else "right axis"
    return [
        Line2D([], [], linewidth=1.4, label="reference, mean", **REFERENCE),
        Patch(facecolor=RED, alpha=SHADE, label=f"reference, {band}"),
        Line2D([], [], linewidth=1.4, label=f"{who}, mean", **PREDICTED),
        Patch(facecolor=BLUE, alpha=SHADE, label=f"{who}, {band}"),
        Line2D([], [], label=f"{'true ' if noisy else ''}input ${symbol}(x)$, {axis}", **INPUT),
        Line2D([], [], label="noisy observations" if noisy else "sensors", **SENSORS),
    ]
