"""Functions of two variables as maps: colour scales, the mesh, sensors, the frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import FigureBase
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.fields.stacked import Domain
from uqsonet_study.report.figures.colours import ORANGE

SENSORS: dict[str, Any] = {
    "color": ORANGE,
    "linestyle": "",
    "marker": "o",
    "markersize": 5,
    "markeredgecolor": "white",
    "markeredgewidth": 0.8,
}

TICKS = 4  # most ticks of a logarithmic colour bar


def scale(*fields: np.ndarray, positive: bool = False) -> Normalize:
    """Return the common colour scale of some fields, from zero upwards where `positive`."""
    low = 0.0 if positive else min(float(field.min()) for field in fields)
    high = max(float(field.max()) for field in fields)
    return Normalize(low, high if high > low else low + 1.0)


def input_scale(fields: OperatorFields, values: np.ndarray) -> Normalize:
    """Return the scale of an input: logarithmic where its logarithm is Gaussian."""
    linear = scale(values)
    return LogNorm(linear.vmin, linear.vmax) if fields.input.transform.positive else linear


def draw_map(
    axes: Axes, grid: Domain, values: np.ndarray, norm: Normalize, colors: str, title: str = ""
) -> AxesImage:
    """Draw a function (n,) over the whole domain, also up to a periodic end."""
    assert isinstance(grid, Grid)  # as in all problems
    axes.set_title(title)
    field = values.reshape(grid.shape).T.astype(float)
    if grid.periodic:
        field = np.pad(field, ((0, 1), (0, 1)), mode="wrap")
    # Interpolated between grid points, which are the middles of pixels.
    ends = zip(grid.lower, grid.upper, grid.spacing(), strict=True)
    extent: Any = [place for low, high, h in ends for place in (low - h / 2, high + h / 2)]
    look: dict[str, Any] = {"extent": extent, "origin": "lower", "interpolation": "bilinear"}
    found = axes.imshow(field, cmap=colors, norm=norm, **look)
    axes.set_aspect("equal")
    axes.set_xlim(grid.lower[0], grid.upper[0])
    axes.set_ylim(grid.lower[1], grid.upper[1])
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_locator(MaxNLocator(2))
    axes.tick_params(length=2)
    return found


def draw_sensors(axes: Axes, sensors: np.ndarray) -> None:
    """Mark sensors (m, 2); unclipped, for one may stand on the boundary."""
    axes.plot(*sensors.T, clip_on=False, zorder=5, **SENSORS)


def draw_bar(figure: FigureBase, mesh: AxesImage, panels: Iterable[Axes], **look: Any) -> None:
    """Draw the colour bar that some maps share, below them."""
    bar = figure.colorbar(mesh, ax=list(panels), location="bottom", **look)
    bar.outline.set_linewidth(0.4)  # type: ignore[operator]
    bar.ax.tick_params(length=2)
    if isinstance(mesh.norm, LogNorm):
        ticks = log_ticks(*mesh.get_clim())
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        bar.minorticks_off()
    else:
        bar.locator = MaxNLocator(3)
        bar.formatter = ScalarFormatter(useMathText=True)
        bar.formatter.set_powerlimits((-2, 3))
        bar.update_ticks()


def log_ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Return at most `most` round numbers between two positive ones, or every power of ten."""
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    # More than seven ticks are asked for nowhere, so the finest choice serves a narrow range.
    for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**k for k in exponents for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            break
    return ticks


def log_axis(axes: Axes, low: float, high: float, most: int = TICKS) -> None:
    """Give the vertical axis a logarithmic scale from `low` to `high`, with few plain numbers."""
    ticks = log_ticks(low, high, most)
    axes.set(yscale="log", ylim=(low, high))
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())


def label_frame(grid: np.ndarray) -> None:
    """Name the axes of an array of maps, on its outer ones only."""
    for axes in grid.flat:
        axes.set(xlabel="$x$", ylabel="$y$")
        axes.label_outer()
