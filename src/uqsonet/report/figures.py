"""Figures: posteriors of one function beside the reference, and training as it went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from uqsonet.config import Config
from uqsonet.errors import DataError
from uqsonet.metrics import relative_error
from uqsonet.nn.weights import load
from uqsonet.reference import load_reference
from uqsonet.report.style import BLACK, BLUE, RED, new_figure, save, styled
from uqsonet.report.training_curves import training_figure
from uqsonet.simulation import load_functions

__all__ = ["posterior_figure", "training_figure"]

BAND = 2.0
"""Half width of the shaded bands, in standard deviations."""

FUNCTION = 0
"""The test function shown."""

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


@dataclass(frozen=True)
class Panel:
    """One panel: two laws of u on the grid, and the sensors behind them."""

    sensors: np.ndarray
    values: np.ndarray
    reference: tuple[np.ndarray, np.ndarray]
    predicted: tuple[np.ndarray, np.ndarray]
    errors: tuple[float, float]


def posterior_figure(
    experiment: str,
    config: Config,
    functions: Path,
    reference: Path,
    weights: Path,
    out_pdf: Path,
    out_png: Path,
) -> None:
    """Draw the reference law and the predicted one for one test function (fig:1d-pde-plot).

    Parameters
    ----------
    experiment : str
    config : Config
        `figure_counts` of the experiment gives the panels.
    functions, reference, weights : Path
        Test functions, the reference posteriors of an evaluation, a trained model (its first
        trial is shown).
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If the problem is not one-dimensional or an observation set is missing.
    """
    counts = config.experiments[experiment].figure_counts
    data = load_functions(functions, "test")
    if data.problem.grid.dim != 1:
        raise DataError(f"{functions}: this figure shows functions of one variable")
    x, kappa = data.problem.grid.axes()[0].numpy(), data.kappa[FUNCTION].numpy()
    panels = _panels(counts, reference, weights)
    with styled():
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
            axes.set_ylabel("$u(x)$" if i % 2 == 0 else "")
            twins[-1].tick_params(right=last_in_row, labelright=last_in_row)
            twins[-1].set_ylabel("$k(x)$" if last_in_row else "")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=3, handlelength=3)
        save(figure, out_pdf, out_png)


def _panels(counts: list[int], reference: Path, weights: Path) -> list[Panel]:
    """Condition the model on the sensors of each panel."""
    ref, _, _ = load_reference(reference)
    model = load(weights)
    panels = []
    for m in counts:
        here = ((ref.function == FUNCTION) & (ref.observations.counts == m)).nonzero()
        if len(here) != 1:
            raise DataError(f"{reference}: {len(here)} observation sets with {m} sensors")
        s = int(here[0, 0])
        o = ref.observations[s : s + 1]
        posterior = model.condition(o.locations, o.values, o.mask)
        mean, std = posterior.mean()[0].double(), posterior.std()[0].double()
        panels.append(
            Panel(
                sensors=o.locations[o.mask][:, 0].numpy(),
                values=o.values[o.mask].numpy(),
                reference=(ref.mean[s].numpy(), ref.std[s].numpy()),
                predicted=(mean.numpy(), std.numpy()),
                errors=(
                    float(relative_error(mean, ref.mean[s])),
                    float(relative_error(std, ref.std[s])),
                ),
            )
        )
    return panels


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
    twin.plot(panel.sensors, panel.values, clip_on=False, **SENSORS)
    errors = [f"{100 * e:.1f} %" for e in panel.errors]
    axes.set_title(f"$m = {len(panel.sensors)}$: error of mean {errors[0]}, of std {errors[1]}")
    axes.set_xlim(x[0], x[-1])
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _legend() -> list[Line2D | Patch]:
    """Return the entries of the common legend, column by column."""
    band = f"mean ± {BAND:g} std"
    return [
        Line2D([], [], linewidth=1.4, label="reference mean", **REFERENCE),
        Patch(facecolor=RED, alpha=SHADE, label=f"reference, {band}"),
        Line2D([], [], linewidth=1.4, label="UQ-SONet mean", **PREDICTED),
        Patch(facecolor=BLUE, alpha=SHADE, label=f"UQ-SONet, {band}"),
        Line2D([], [], label="input $k(x)$, right axis", **INPUT),
        Line2D([], [], label="sensors", **SENSORS),
    ]
