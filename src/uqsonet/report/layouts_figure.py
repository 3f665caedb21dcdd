"""The picture of sensor layouts: how they cover the domain, per sensor count, and some examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from uqsonet.config import SensorsConfig
from uqsonet.errors import DataError
from uqsonet.grids import Grid
from uqsonet.layouts import candidates, load_layouts
from uqsonet.problems import get_problem
from uqsonet.report.style import CYCLE, GREY, new_figure, save, styled
from uqsonet.storage import ArrayFile

COLUMNS = 4
"""Sensor counts side by side; more go below."""

EXAMPLES = 5
"""Layouts drawn, the first of the training pool."""

BINS = 27
"""Bins along an axis, or a few less: a bin spans whole grid points, equally many in each."""


@dataclass(frozen=True)
class Pool:
    """Layouts of one experiment.

    Attributes
    ----------
    grid : Grid
    config : SensorsConfig
    places : array of int, shape (n,)
        Grid points at which sensors may stand.
    layouts : dict of array of int, shape (layouts, m)
        Sensor count -> indices of grid points.
    """

    grid: Grid
    config: SensorsConfig
    places: np.ndarray
    layouts: dict[int, np.ndarray]


def layouts_figure(sensors: Path, out_pdf: Path, out_png: Path) -> None:
    """Draw the density of sensors and examples of layouts for each sensor count.

    Parameters
    ----------
    sensors : Path
        Pregenerated layouts; those of training are shown.
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If the problem has more than two dimensions or the file cannot be read.
    """
    pool = _read(sensors)
    counts = list(pool.layouts)
    blocks = [counts[i : i + COLUMNS] for i in range(0, len(counts), COLUMNS)]
    with styled():
        figure = new_figure((4.2 if pool.grid.dim == 2 else 3.2) * len(blocks))
        parts = figure.subfigures(len(blocks), 1, squeeze=False)[:, 0]
        for part, block in zip(parts, blocks, strict=True):
            _draw_block(part, pool, block)
        save(figure, out_pdf, out_png)


def _read(path: Path) -> Pool:
    with ArrayFile(path, "sensors") as file:
        config = SensorsConfig.model_validate(file.meta["config"])
        grid = get_problem(file.meta["problem"]).grid
    if grid.dim > 2:
        raise DataError(f"{path}: this figure shows domains of one or two dimensions")
    layouts = {m: indices.numpy() for m, indices in load_layouts(path, "training").items()}
    return Pool(grid, config, candidates(grid, config.margin), layouts)


def _draw_block(figure: Figure | SubFigure, pool: Pool, counts: list[int]) -> None:
    """Draw two rows, densities above examples, with a column for each of some counts."""
    upper, lower = figure.subplots(2, COLUMNS, squeeze=False)
    for axes in (*upper[len(counts) :], *lower[len(counts) :]):
        axes.set_axis_off()
    edges, density = _edges(pool), _density_2d if pool.grid.dim == 2 else _density_1d
    for i, m in enumerate(counts):
        relative = _relative_density(pool, m, edges)
        density(figure, upper[i], edges, relative)
        upper[i].set_title(f"{_title(pool, m)}\n{len(pool.layouts[m]):,} layouts")
        _examples(lower[i], pool, m)
        for axes in (upper[i], lower[i]):
            _frame(axes, pool.grid, first=i == 0)
    upper[0].set_ylabel("sensors per candidate,\nrelative to uniform", labelpad=8)
    lower[0].set_ylabel(f"first {EXAMPLES} layouts", labelpad=8)


def _title(pool: Pool, m: int) -> str:
    distance = pool.config.distances.get(m)
    law = "uniform" if distance is None else f"$d > {distance:g}$"
    return f"$m = {m}$, {law}"


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
    """Return sensors per bin over what uniform sensors would have: 1 where there is no effect.

    Each bin is compared with the candidates in it, so a last bin that is not full shows no dip.
    """
    points = pool.grid.points().numpy()
    found, _ = np.histogramdd(points[pool.layouts[m].reshape(-1)], edges)
    possible, _ = np.histogramdd(points[pool.places], edges)
    expected = possible * pool.layouts[m].size / len(pool.places)
    # A bin without a candidate (possible only for the odd last one) stays empty.
    return np.divide(found, expected, out=np.full_like(found, np.nan), where=expected > 0)


def _density_2d(
    figure: Figure | SubFigure, axes: Axes, edges: list[np.ndarray], relative: np.ndarray
) -> None:
    mesh = axes.pcolormesh(
        *edges, relative.T, cmap="viridis", vmin=0, vmax=max(1.0, np.nanmax(relative))
    )
    mesh.set_rasterized(True)  # hairlines between cells show in some viewers of vector graphics
    bar = figure.colorbar(mesh, ax=axes, location="bottom", fraction=0.06, pad=0.02, aspect=18)
    bar.ax.tick_params(length=2)


def _density_1d(
    figure: Figure | SubFigure, axes: Axes, edges: list[np.ndarray], relative: np.ndarray
) -> None:
    axes.stairs(relative, edges[0], fill=True, color=CYCLE[0], alpha=0.4)
    axes.axhline(1.0, color=GREY, linewidth=0.7, linestyle="--")
    axes.set_ylim(0, 1.15 * max(1.0, float(np.nanmax(relative))))


def _examples(axes: Axes, pool: Pool, m: int) -> None:
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
    axes.set_xlim(grid.lower[0], grid.upper[0])
    if grid.dim == 2:
        axes.set_ylim(grid.lower[1], grid.upper[1])
        axes.set_aspect("equal")
        axes.tick_params(labelleft=first)
    axes.tick_params(length=2)
