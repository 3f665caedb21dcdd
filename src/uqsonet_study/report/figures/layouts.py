"""The picture of sensor layouts: how they cover the domain, per sensor count, and some examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import domain_from_dict
from uqsonet_study.config import Config, SensorsConfig
from uqsonet_study.layouts import candidates, load_layouts
from uqsonet_study.report.figures.colours import CYCLE, GREY
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.storage import ArrayFile

COLUMNS = 4  # sensor counts side by side; more go below
EXAMPLES = 3  # layouts drawn, the first of the training pool
RELATIVE = "sensors relative to uniform"
NONE = "#BFBFBF"

BINS = 27  # bins along an axis, or a few less: a bin spans whole grid points, equally many in each


class Pool(NamedTuple):
    """Layouts of one experiment, as indices of grid points (layouts, m) by sensor count."""

    grid: Grid
    config: SensorsConfig
    places: np.ndarray  # (n,), grid points at which sensors may stand
    layouts: dict[int, np.ndarray]


def draw(_config: Config, _name: str, files: Mapping[str, Any]) -> Figure:
    """Return densities and examples of layouts of training, from `files`: ``sensors``."""
    (sensors,) = files["sensors"]
    pool = _read(Path(sensors))
    columns = min(COLUMNS, len(pool.layouts))
    blocks = -(-len(pool.layouts) // columns)
    figure = new_figure(min(3.8, 13.5 / columns) * blocks + 0.5)
    grid = figure.subplots(2 * blocks, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    # A block is a row of densities and the row of examples below it.
    densities, examples = grid[::2].ravel(), grid[1::2].ravel()
    _draw_densities(figure, list(densities[: len(pool.layouts)]), pool)
    for i, (m, upper, lower) in enumerate(zip(pool.layouts, densities, examples, strict=False)):
        _draw_examples(lower, pool, m)
        distance = pool.config.distances.get(m)
        law = "uniform" if distance is None else f"$d > {distance:g}$"
        upper.set_title(f"$m = {m}$, {law}\n{len(pool.layouts[m]):,} layouts")
        for axes in (upper, lower):
            _frame(axes, pool.grid, first=i % columns == 0)
        if i % columns == 0:
            upper.set_ylabel("density" if pool.grid.dim == 2 else RELATIVE)
            lower.set_ylabel("first layouts")
    return figure


def _read(path: Path) -> Pool:
    with ArrayFile(path, "sensors") as file:
        config = SensorsConfig.model_validate(file.meta["config"])
        grid = domain_from_dict(file.meta["grid"])
    if grid.dim > 2 or not isinstance(grid, Grid):
        raise DataError(f"{path}: this figure shows grids of one or two dimensions")
    layouts = {m: indices.numpy() for m, indices in load_layouts(path, "training").items()}
    return Pool(grid, config, candidates(grid, config.margin), layouts)


def _edges(pool: Pool) -> list[np.ndarray]:
    """Return edges of bins along each axis, half a spacing outside the outermost candidates."""
    edges = []
    lattice = np.stack(np.unravel_index(pool.places, pool.grid.shape), axis=-1)
    for axis, spacing in enumerate(pool.grid.spacing()):
        first, last = lattice[:, axis].min(), lattice[:, axis].max()
        width = -(-(last - first + 1) // BINS)
        bins = -(-(last - first + 1) // width)
        steps = first - 0.5 + width * np.arange(bins + 1)
        edges.append(pool.grid.lower[axis] + spacing * steps)
    return edges


def _relative_density(pool: Pool, m: int, edges: list[np.ndarray]) -> np.ndarray:
    """Return sensors per bin over what uniform sensors would have: 1 where there is no effect."""
    # Each bin is compared with the candidates in it, so a last bin that is not full shows no dip.
    points = pool.grid.points().numpy()
    counts, _ = np.histogramdd(points[pool.layouts[m].reshape(-1)], edges)
    possible, _ = np.histogramdd(points[pool.places], edges)
    expected = possible * pool.layouts[m].size / len(pool.places)
    # A bin without a candidate (possible only for the odd last one) stays empty.
    return np.divide(counts, expected, out=np.full_like(counts, np.nan), where=expected > 0)


def _draw_densities(figure: Figure, panels: list[Axes], pool: Pool) -> None:
    """Draw one density a panel, all on one scale."""
    edges = _edges(pool)
    found = [_relative_density(pool, m, edges) for m in pool.layouts]
    highest = max(float(np.nanmax(relative)) for relative in found)
    if pool.grid.dim == 1:
        for axes, relative in zip(panels, found, strict=True):
            axes.stairs(relative, edges[0], fill=True, color=CYCLE[0], alpha=0.4)
            axes.axhline(1.0, color=GREY, linewidth=0.7, linestyle="--")
            axes.set_ylim(0, 1.1 * highest)
        return
    # Corners draw many times more sensors than the middle: white is uniform, equal factors above
    # and below have equal shades, and where no sensor stands (its logarithm is -inf) is grey.
    look: dict[str, Any] = {
        "cmap": mpl.colormaps["RdBu_r"].with_extremes(bad=NONE, under="#053061"),
        "norm": LogNorm(1 / max(highest, 2.0), max(highest, 2.0)),
        "rasterized": True,  # hairlines between cells show in some viewers of vector graphics
    }
    meshes = [
        axes.pcolormesh(*edges, relative.T, **look)
        for axes, relative in zip(panels, found, strict=True)
    ]
    bar = figure.colorbar(meshes[0], ax=panels, location="top", fraction=0.04, aspect=60, pad=0.06)
    bar.set_label(f"{RELATIVE} (grey: none)")
    bar.ax.xaxis.set_major_formatter("{x:g}")


def _draw_examples(axes: Axes, pool: Pool, m: int) -> None:
    """Draw layouts as joined markers: in the plane, or in one dimension one above the other."""
    points = pool.grid.points().numpy()
    for k, indices in enumerate(pool.layouts[m][:EXAMPLES]):
        places = points[indices]
        if pool.grid.dim == 2:
            # Joined around the middle and closed, so that no line crosses another.
            offset = places - places.mean(0)
            places = places[np.argsort(np.arctan2(offset[:, 1], offset[:, 0]))]
            x, y = np.concatenate([places, places[:1]]).T
        else:
            x, y = np.sort(places[:, 0]), np.full(m, float(k))
        axes.plot(x, y, color=CYCLE[k], marker="o", markersize=3, linewidth=0.8, clip_on=False)
    if pool.grid.dim == 1:
        axes.set_ylim(-0.7, EXAMPLES - 0.3)
        axes.invert_yaxis()
        axes.set_yticks([])


def _frame(axes: Axes, grid: Grid, first: bool) -> None:
    """Show the whole domain; numbers stand on the left panels only where all agree."""
    axes.set_axis_on()
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.set_xlim(grid.lower[0], grid.upper[0])
    if grid.dim == 2:
        axes.set_ylim(grid.lower[1], grid.upper[1])
        axes.yaxis.set_major_locator(MaxNLocator(2))
        axes.set_aspect("equal")
    axes.tick_params(length=2, labelleft=first)
