"""The figure of data for functions of two variables: maps, and a row a sensor count."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from uqsonet_study.report.figures.maps import draw_bar, draw_map, input_scale, label_frame, scale
from uqsonet_study.report.figures.sets import SAMPLES, ReferenceSet, Shown
from uqsonet_study.report.figures.style import FIELD_MAP, RED, STD_MAP, new_figure

MAP = 1.48
"""Height of a row of maps, inches."""


def draw_maps(shown: Shown) -> Figure:
    """Return the figure: samples on top, below them a row a sensor count."""
    heights = [2 * MAP + 0.35, len(shown.sets) * MAP + 1.0]
    figure = new_figure(sum(heights))
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)
    _draw_samples(parts[0, 0], shown)
    _draw_posteriors(parts[1, 0], shown)
    return figure


def _draw_samples(figure: SubFigure, shown: Shown) -> None:
    """Draw inputs above outputs, each on one scale."""
    problem, (inputs, outputs) = shown.problem, shown.samples
    grid = figure.subplots(2, SAMPLES, squeeze=False)
    for axes in grid[:, len(inputs) :].flat:
        axes.set_axis_off()
    rows = (
        (f"inputs ${problem.input_symbol}$", inputs, input_scale(problem, inputs)),
        (f"outputs ${problem.output_symbol}${shown.random}", outputs, scale(outputs)),
    )
    for row, (title, functions, norm) in zip(grid, rows, strict=True):
        meshes = [
            draw_map(axes, problem.grid, function, norm, FIELD_MAP)
            for axes, function in zip(row, functions, strict=False)
        ]
        # The text runs over panels to its right: an empty title keeps its room in the layout.
        row[0].set_title(" ")
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        row[0].annotate(title, (0, 1), (0, 6), **place).set_in_layout(False)
        draw_bar(figure, meshes[0], row, "right", shrink=0.8, aspect=14)
    label_frame(grid)


def _draw_posteriors(figure: SubFigure, shown: Shown) -> None:
    """Draw sensors on the true input, the true output and the reference moments."""
    problem, (kappa, u), sets = shown.problem, shown.pair, shown.sets
    grid = figure.subplots(len(sets), 4, squeeze=False)
    of_input = input_scale(problem, kappa, *(one.values for one in sets))
    of_output = scale(u, *(one.mean for one in sets))
    of_std = scale(*(one.std for one in sets), positive=True)
    meshes: list[QuadMesh] = []
    for row, one in zip(grid, sets, strict=True):
        fields = (
            (kappa, of_input, FIELD_MAP),
            (u, of_output, FIELD_MAP),
            (one.mean, of_output, FIELD_MAP),
            (one.std, of_std, STD_MAP),
        )
        meshes = [
            draw_map(axes, problem.grid, *field) for axes, field in zip(row, fields, strict=True)
        ]
        _draw_readings(row[0], one, of_input)
    noise = f"\n(noise std {shown.noise_std:g})" if shown.noise_std else ""
    titles = (
        f"true input ${problem.input_symbol}$, sensors{noise}",
        f"true output ${problem.output_symbol}$",
        "reference mean",
        "reference std",
    )
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    label_frame(grid)
    for row, one in zip(grid, sets, strict=True):
        row[0].set_ylabel(f"$m = {len(one.values)}$\n$y$")
    draw_bar(figure, meshes[0], grid[:, 0], "bottom")
    draw_bar(figure, meshes[1], grid[:, 1:3].flat, "bottom", aspect=40)
    draw_bar(figure, meshes[3], grid[:, 3], "bottom")


def _draw_readings(axes: Axes, one: ReferenceSet, norm: Normalize) -> None:
    """Draw sensors, filled with the colour of what they read."""
    look: dict[str, Any] = {"cmap": FIELD_MAP, "norm": norm, "edgecolors": RED, "linewidths": 1.2}
    axes.scatter(*one.sensors.T, c=one.values, s=28, clip_on=False, zorder=5, **look)
