"""Figures of posteriors: the reference and a prediction for one test function.

Functions of one variable as in fig:1d-pde-plot, fig:1d-pde-addnoise and fig:1d-pde-ensemble-plot,
a panel a case; functions of two variables as in fig:2d-pde-plot, one case as maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from uqsonet.errors import DataError
from uqsonet.fields.stacked import Domain
from uqsonet_study.cases import Study
from uqsonet_study.report import inputs
from uqsonet_study.report.figures.colours import BLACK, PREDICTION, REFERENCE, TRUTH
from uqsonet_study.report.figures.maps import (
    draw_bar,
    draw_map,
    draw_sensors,
    input_scale,
    label_frame,
    log_axis,
    scale,
)
from uqsonet_study.report.figures.panels import (
    Moments,
    Panel,
    error_of,
    load_predictor,
    read_panels,
)
from uqsonet_study.report.figures.style import ERROR_MAP, FIELD_MAP, STD_MAP, new_figure
from uqsonet_study.report.inputs import PanelFiles
from uqsonet_study.report.names import method_title

COLUMNS = 2  # panels in a row
BAND = 2.0  # half width of the shaded bands, in standard deviations
SHADE = 0.2
MARGIN = 1.3  # room beyond the data on a logarithmic axis, a factor
TITLE = 22  # characters over a map

# Dashes of one law fall into the gaps of the other: both are seen where they coincide. Those of
# the prediction are halved, which tells them apart in grey print.
OF_REFERENCE: dict[str, Any] = {"color": REFERENCE, "linestyle": (0, (4, 4))}
OF_PREDICTION: dict[str, Any] = {"color": PREDICTION, "linestyle": (4, (1.5, 1, 1.5, 4))}
OUTPUT: dict[str, Any] = {"color": TRUTH, "linewidth": 0.8}
INPUT: dict[str, Any] = {"color": BLACK, "linewidth": 0.7, "linestyle": (0, (6, 3))}
SENSORS: dict[str, Any] = {
    "color": REFERENCE,
    "linestyle": "",
    "marker": "o",
    "markersize": 4,
    "markeredgecolor": BLACK,
    "markeredgewidth": 0.5,
}


def draw(study: Study, name: str) -> Figure:
    """Return a declared figure of layout ``posterior``."""
    method = method_title(study.config.figures[name].method)
    files = inputs.panels(study, name)
    panels = read_panels(files)
    predicted = [predict(*pair) for pair in zip(panels, files, strict=True)]
    if panels[0].fields.output.grid.dim == 1:
        return draw_lines(panels, predicted, method)
    if len(panels) > 1:
        raise DataError(f"{name}: a figure of maps has one panel, not {len(panels)}")
    return draw_maps(panels[0], predicted[0], method)


def predict(panel: Panel, files: PanelFiles) -> Moments:
    """Return what the method of a panel predicts given its sensors."""
    o = panel.observations
    found = load_predictor(files).condition(o.locations, o.values, o.mask, panel.noise_std)
    return found.mean()[0].double().numpy(), found.std()[0].double().numpy()


def draw_lines(panels: Sequence[Panel], predicted: Sequence[Moments], method: str) -> Figure:
    """Return the figure of functions of one variable, panel by panel along the rows."""
    fields = panels[0].fields
    noisy = any(panel.noise_std for panel in panels)
    rows = -(-len(panels) // COLUMNS)
    figure = new_figure((2.25 + 0.12 * noisy) * rows + 0.6)
    grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    shown: list[Axes] = list(grid.flat[: len(panels)])
    twins: list[Axes] = []
    for i, (axes, panel, law) in enumerate(zip(shown, panels, predicted, strict=True)):
        twins.append(axes.twinx())
        twins[-1].sharey(twins[0])
        _draw_panel(axes, twins[-1], panel, law)
        last_in_column = i + COLUMNS >= len(panels)
        last_in_row = i % COLUMNS == COLUMNS - 1 or i == len(panels) - 1
        axes.tick_params(labelbottom=last_in_column)
        axes.set_xlabel("$x$" if last_in_column else "")
        axes.set_ylabel(f"${fields.output.symbol}(x)$" if i % COLUMNS == 0 else "")
        twins[-1].tick_params(right=last_in_row, labelright=last_in_row)
        twins[-1].set_ylabel(f"${fields.input.symbol}(x)$" if last_in_row else "")
    # Noise on log kappa moves observations by factors, which a linear axis cannot show.
    logarithmic = noisy and fields.input.transform.positive
    if logarithmic:
        found = np.concatenate([panels[0].truth[0], *(panel.values for panel in panels)])
        for twin in twins:  # which share their limits
            log_axis(twin, found.min() / MARGIN, found.max() * MARGIN)
    band = f"mean ± {BAND:g} std"
    axis = "log. right axis" if logarithmic else "right axis"
    handles = [
        Line2D([], [], linewidth=1.4, label="reference, mean", **OF_REFERENCE),
        Patch(facecolor=REFERENCE, alpha=SHADE, label=f"reference, {band}"),
        Line2D([], [], label=f"true output ${fields.output.symbol}(x)$", **OUTPUT),
        Line2D([], [], linewidth=1.4, label=f"{method}, mean", **OF_PREDICTION),
        Patch(facecolor=PREDICTION, alpha=SHADE, label=f"{method}, {band}"),
        Line2D([], [], label=f"true input ${fields.input.symbol}(x)$, {axis}", **INPUT),
        Line2D([], [], label="noisy observations" if noisy else "sensors", **SENSORS),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3)
    return figure


def _draw_panel(axes: Axes, twin: Axes, panel: Panel, predicted: Moments) -> None:
    """Draw laws and the true output on the left axis, the input and its sensors on the right."""
    x, (kappa, u) = line_of(panel.fields.output.grid), panel.truth
    for law, look in ((panel.reference, OF_REFERENCE), (predicted, OF_PREDICTION)):
        mean, std = law
        low, high = mean - BAND * std, mean + BAND * std
        axes.fill_between(x, low, high, color=look["color"], alpha=SHADE, linewidth=0)
        for edge in (low, high):
            axes.plot(x, edge, linewidth=0.6, **look)
        axes.plot(x, mean, linewidth=1.4, **look)
    axes.plot(x, u, **OUTPUT)
    inputs = line_of(panel.fields.input.grid)
    twin.plot(inputs, kappa, **INPUT)
    # Unclipped: a sensor may stand on the boundary.
    twin.plot(panel.sensors[:, 0], panel.values, clip_on=False, **SENSORS)
    axes.set_xlim(min(x[0], inputs[0]), max(x[-1], inputs[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    mean, std = map(error_of, predicted, panel.reference)
    errors = f"error of mean {mean}, of std {std}"
    noise = rf", $\sigma = {panel.noise_std:g}$" + "\n" if panel.noise_std else ": "
    axes.set_title(f"$m = {len(panel.values)}${noise}{errors}")


def line_of(domain: Domain) -> np.ndarray:
    """Return the points (n,) of a domain of one variable."""
    return domain.points()[:, 0].numpy()


def draw_maps(panel: Panel, predicted: Moments, method: str) -> Figure:
    """Return the figure of functions of two variables.

    Left the test function, its input above its output. Then means above and standard deviations
    below: the reference, the prediction on the same scale, and their difference on its own. The
    true output has the scale of the means.
    """
    fields, (kappa, u), places = panel.fields, panel.truth, panel.fields.output.grid
    figure = new_figure(4.95)
    grid = figure.subplots(2, 4)

    def show(
        axes: Axes,
        values: np.ndarray,
        norm: Normalize,
        colors: str,
        title: str,
        on: Domain = places,
    ) -> None:
        draw_bar(figure, draw_map(axes, on, values, norm, colors, title), [axes])

    noise = f", noise $\\sigma = {panel.noise_std:g}$" if panel.noise_std else ""
    title = f"true input ${fields.input.symbol}$\n$m = {len(panel.values)}$ sensors{noise}"
    show(grid[0, 0], kappa, input_scale(fields, kappa), FIELD_MAP, title, fields.input.grid)
    draw_sensors(grid[0, 0], panel.sensors)
    means = scale(panel.reference[0], predicted[0], u)
    spreads = scale(panel.reference[1], predicted[1], positive=True)
    show(grid[1, 0], u, means, FIELD_MAP, f"true output ${fields.output.symbol}$")
    looks = ("mean", means, FIELD_MAP), ("std", spreads, STD_MAP)
    laws = zip(grid[:, 1:], looks, panel.reference, predicted, strict=True)
    for row, (what, norm, colors), theirs, ours in laws:
        draw_map(row[0], places, theirs, norm, colors, f"reference {what}")
        mesh = draw_map(row[1], places, ours, norm, colors, fill(f"{method} {what}", TITLE))
        draw_bar(figure, mesh, row[:2], aspect=40)
        error = np.abs(ours - theirs)
        title = f"absolute error\n(relative $L_2$: {error_of(ours, theirs)})"
        show(row[2], error, scale(error, positive=True), ERROR_MAP, title)
    label_frame(grid)
    return figure
