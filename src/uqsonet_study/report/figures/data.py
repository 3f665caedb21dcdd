"""What the data are: sample pairs, then one pair with its sensors and its reference posterior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet_study.config import Config
from uqsonet_study.report.figures.colours import CYCLE, ORANGE, REFERENCE, TRUTH, WORDS
from uqsonet_study.report.figures.maps import draw_bar, draw_map, input_scale, label_frame, scale
from uqsonet_study.report.figures.panels import FUNCTION, Panel, read_panels
from uqsonet_study.report.figures.posterior import (
    BAND,
    INPUT,
    OF_REFERENCE,
    OUTPUT,
    SENSORS,
    SHADE,
    line_of,
)
from uqsonet_study.report.figures.style import FIELD_MAP, STD_MAP, new_figure

SAMPLES = 4  # pairs shown, the first of the test split
MAP = 1.48  # height of a row of maps, inches


def draw(_config: Config, _name: str, files: Mapping[str, Any]) -> Figure:
    """Return pairs of the data, and reference posteriors, from `files`: ``panels``."""
    panels = read_panels(files["panels"])
    return draw_lines(panels) if panels[0].fields.output.grid.dim == 1 else draw_maps(panels)


def _titles(fields: OperatorFields) -> tuple[str, str]:
    """Return what stands over inputs and over outputs."""
    random = "" if not fields.random_operator else " (random operator: unseen second input)"
    return f"inputs ${fields.input.symbol}$", f"outputs ${fields.output.symbol}${random}"


def _samples(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and outputs, each (SAMPLES, n) or fewer."""
    return panel.data.kappa[:SAMPLES].numpy(), panel.data.u[:SAMPLES].numpy()


def draw_lines(panels: Sequence[Panel]) -> Figure:
    """Return the figure of functions of one variable: below the samples a column a count."""
    fields = panels[0].fields
    places = line_of(fields.input.grid), line_of(fields.output.grid)
    figure = new_figure(5.6)
    top, bottom = figure.add_gridspec(2, 1, height_ratios=(1.1, 2))
    pairs = top.subgridspec(1, 2).subplots(squeeze=False)[0]
    grid = bottom.subgridspec(2, len(panels)).subplots(sharex=True, sharey="row", squeeze=False)
    samples = zip(pairs, places, _samples(panels[0]), _titles(fields), strict=True)
    for axes, x, functions, title in samples:
        for k, function in enumerate(functions):
            color = TRUTH if k == FUNCTION else CYCLE[k - 1]
            axes.plot(x, function, color=color, linewidth=1)
        axes.set_title(title)
    pairs[0].set_title(f"{_titles(fields)[0]} ({WORDS[TRUTH]}: observed below)")
    for (over, under), panel in zip(grid.T, panels, strict=True):
        _draw_observed(over, places[0], panel)
        _draw_reference(under, places[1], panel)
        over.set_title(f"$m = {len(panel.values)}$")
    for left, right in ((pairs[0], pairs[1]), (grid[0, 0], grid[1, 0])):
        left.set_ylabel(f"${fields.input.symbol}(x)$")
        right.set_ylabel(f"${fields.output.symbol}(x)$")
    for axes in figure.axes:
        axes.set_xlim(min(x[0] for x in places), max(x[-1] for x in places))
        axes.xaxis.set_major_locator(MaxNLocator(4))
    for axes in (*pairs, *grid[1]):
        axes.set_xlabel("$x$")
    found = [axes.get_legend_handles_labels() for axes in grid[:, 0]]
    handles, labels = ([*one, *other] for one, other in zip(*found, strict=True))
    figure.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=3)
    return figure


def _draw_observed(axes: Axes, x: np.ndarray, panel: Panel) -> None:
    """Draw the true input and what sensors read, with bars of the noise around it."""
    symbol = panel.fields.input.symbol
    axes.plot(x, panel.truth[0], label=f"true input ${symbol}$", **INPUT)
    look: dict[str, Any] = SENSORS | {"clip_on": False, "zorder": 5}
    if panel.noise_std:
        low, high = noise_bars(panel)
        look |= {"yerr": np.stack([panel.values - low, high - panel.values])}
        look |= {"ecolor": ORANGE, "elinewidth": 0.8}
        label = f"sensors, ± {BAND:g} std of the noise"
        axes.errorbar(panel.sensors[:, 0], panel.values, label=label, **look)
    else:
        axes.plot(panel.sensors[:, 0], panel.values, label="sensors", **look)


def noise_bars(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Return what was read, moved down and up by `BAND` stds of the noise in the Gaussian field."""
    step = BAND * panel.noise_std
    if panel.fields.input.transform.positive:
        return panel.values * np.exp(-step), panel.values * np.exp(step)
    return panel.values - step, panel.values + step


def _draw_reference(axes: Axes, x: np.ndarray, panel: Panel) -> None:
    """Draw the reference mean, a band around it, and the true output on top."""
    if panel.reference is not None:
        mean, std = panel.reference
        band: dict[str, Any] = {"color": REFERENCE, "alpha": 1.5 * SHADE, "linewidth": 0}
        label = f"reference, mean ± {BAND:g} std"
        axes.fill_between(x, mean - BAND * std, mean + BAND * std, label=label, **band)
        axes.plot(x, mean, linewidth=1.4, label="reference mean", **OF_REFERENCE)
    axes.plot(x, panel.truth[1], label="true output", **OUTPUT)


def draw_maps(panels: Sequence[Panel]) -> Figure:
    """Return the figure of functions of two variables: below the samples a row a count."""
    heights = [2 * MAP + 0.35, len(panels) * MAP + 1.0]
    figure = new_figure(sum(heights))
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    _draw_samples(top, panels[0])
    _draw_posteriors(bottom, panels)
    return figure


def _draw_samples(figure: SubFigure, panel: Panel) -> None:
    """Draw inputs above outputs, each on one scale."""
    inputs, outputs = _samples(panel)
    grid = figure.subplots(2, SAMPLES)
    for axes in grid[:, len(inputs) :].flat:
        axes.set_axis_off()
    norms = input_scale(panel.fields, inputs), scale(outputs)
    titles = _titles(panel.fields)
    domains = panel.fields.input.grid, panel.fields.output.grid
    samples = zip(grid, domains, titles, (inputs, outputs), norms, strict=True)
    for row, domain, title, functions, norm in samples:
        meshes = [
            draw_map(axes, domain, function, norm, FIELD_MAP)
            for axes, function in zip(row, functions, strict=False)
        ]
        # The text runs over panels to its right: an empty title keeps its room in the layout.
        row[0].set_title(" ")
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        row[0].annotate(title, (0, 1), (0, 6), **place).set_in_layout(False)
        draw_bar(figure, meshes[0], row, "right", shrink=0.8, aspect=14)
    label_frame(grid)


def _draw_posteriors(figure: SubFigure, panels: Sequence[Panel]) -> None:
    """Draw sensors on the true input, the true output and the reference moments."""
    fields, (kappa, u) = panels[0].fields, panels[0].truth
    of_input = input_scale(fields, kappa, *(panel.values for panel in panels))
    laws = [panel.reference for panel in panels if panel.reference is not None]
    of_output = scale(u, *(mean for mean, _ in laws))
    of_std = scale(*(std for _, std in laws), positive=True) if laws else of_output
    # A sensor is filled with the colour of what it reads.
    filled: dict[str, Any] = {"cmap": FIELD_MAP, "norm": of_input, "s": 28, "clip_on": False}
    grid = figure.subplots(len(panels), 4 if laws else 2, squeeze=False)
    meshes: list[Any] = []
    for row, panel in zip(grid, panels, strict=True):
        mean, std = panel.reference or (u, u)
        places = fields.output.grid
        shown = (
            (fields.input.grid, kappa, of_input, FIELD_MAP),
            (places, u, of_output, FIELD_MAP),
            (places, mean, of_output, FIELD_MAP),
            (places, std, of_std, STD_MAP),
        )
        meshes = [draw_map(axes, *one) for axes, one in zip(row, shown, strict=False)]
        look: dict[str, Any] = filled | {"edgecolors": ORANGE, "linewidths": 1.2, "zorder": 5}
        row[0].scatter(*panel.sensors.T, c=panel.values, **look)
    noise = f"\n(noise std {panels[0].noise_std:g})" if panels[0].noise_std else ""
    grid[0, 0].set_title(f"true input ${fields.input.symbol}$, sensors{noise}")
    grid[0, 1].set_title(f"true output ${fields.output.symbol}$")
    if laws:
        grid[0, 2].set_title("reference mean")
        grid[0, 3].set_title("reference std")
    label_frame(grid)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        axes.set_ylabel(f"$m = {len(panel.values)}$\n$y$")
    draw_bar(figure, meshes[0], grid[:, 0], "bottom")
    draw_bar(figure, meshes[1], grid[:, 1:3].flat, "bottom", aspect=40)
    if laws:
        draw_bar(figure, meshes[3], grid[:, 3], "bottom")
