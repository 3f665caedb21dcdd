"""The posterior figure of functions of two variables: maps of both laws and of their difference."""

from __future__ import annotations

from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from uqsonet.data import Functions
from uqsonet_study.report.figures.maps import (
    draw_bar,
    draw_map,
    draw_sensors,
    input_scale,
    label_frame,
    scale,
)
from uqsonet_study.report.figures.sets import FUNCTION, Panel
from uqsonet_study.report.figures.style import ERROR_MAP, FIELD_MAP, STD_MAP, new_figure

HEIGHT = 4.7
"""Inches."""
LINE = 24
"""Characters over a map."""

MOMENTS = {"mean": FIELD_MAP, "std": STD_MAP}


def draw_maps(data: Functions, panel: Panel) -> Figure:
    """Return the figure: the input with its sensors, then means above and spreads below.

    Reference and prediction share a colour scale, differences have their own.
    """
    problem, grid = data.problem, data.problem.grid
    kappa, given = data.kappa[FUNCTION].numpy(), panel.given
    figure = new_figure(HEIGHT)
    parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.1, 3))
    left, right = parts[0]
    # Halfway between the two rows.
    first = left.add_subplot(left.add_gridspec(3, 1, height_ratios=(1, 2.2, 1))[1])
    mesh = draw_map(first, grid, kappa, input_scale(problem, kappa), FIELD_MAP)
    draw_sensors(first, given.sensors)
    first.set_title(_title(problem.input_symbol, panel))
    draw_bar(left, mesh, [first], "bottom")
    panels = right.subplots(2, 3)
    laws = zip(MOMENTS.items(), panels, panel.reference, panel.predicted, panel.errors, strict=True)
    for (name, colors), row, reference, predicted, error in laws:
        axes: list[Axes] = list(row)
        common = scale(reference, predicted, positive=name == "std")
        meshes = [
            draw_map(one, grid, values, common, colors)
            for one, values in zip(axes[:2], (reference, predicted), strict=True)
        ]
        difference = np.abs(predicted - reference)
        meshes.append(
            draw_map(axes[2], grid, difference, scale(difference, positive=True), ERROR_MAP)
        )
        axes[0].set_title(f"reference {name}")
        axes[1].set_title(fill(f"{panel.method} {name}", LINE))
        axes[2].set_title(f"absolute error\n(relative $L_2$: {100 * error:.1f} %)")
        draw_bar(right, meshes[0], axes[:2], "bottom", aspect=40)
        draw_bar(right, meshes[2], axes[2:], "bottom")
    label_frame(panels)
    label_frame(np.array([[first]]))
    return figure


def _title(symbol: str, panel: Panel) -> str:
    """Return what the left map shows: the true input, also where observations are noisy."""
    sensors = f"$m = {len(panel.given.values)}$ sensors"
    if not panel.noise_std:
        return f"input ${symbol}$, {sensors}"
    return f"true input ${symbol}$\n{sensors}, noise $\\sigma = {panel.noise_std:g}$"
