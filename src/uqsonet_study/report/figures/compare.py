"""The figure of sweeps: latent dimension, size of the training set, number of sensors."""

from __future__ import annotations

from math import lcm
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from uqsonet.errors import DataError
from uqsonet_study.report.figures.compare_legend import legend_handles
from uqsonet_study.report.figures.compare_panels import (
    DISTANCES,
    ERRORS,
    PREDICTED,
    SPREAD,
    draw_distance,
    draw_errors,
    draw_spread,
    frame_distance,
    frame_errors,
    frame_spread,
    rows,
)
from uqsonet_study.report.figures.style import new_figure, save, styled

COLUMNS = ["sensors", "x", "method", "metric", "value", "pm", "low", "high"]
ROWS = {
    "distance": (draw_distance, frame_distance),
    "errors": (draw_errors, frame_errors),
    "spread": (draw_spread, frame_spread),
}
ROW = 2.1
"""Height of a row of panels, inches."""

LINE = 0.17
"""Height of a line of the legend, inches."""


def compare_figure(
    distance: pd.DataFrame | None,
    errors: pd.DataFrame | None,
    spread: pd.DataFrame | None,
    scale: str,
    out_pdf: Path,
    out_png: Path,
) -> None:
    """Draw sweeps as in fig:1d-pde-compare (all three) and fig:1d-sde-compare (errors only).

    Parameters
    ----------
    distance, errors, spread : DataFrame, optional
        See `draw_compare`.
    scale : {"full", "smoke"}
    out_pdf, out_png : Path
    """
    with styled():
        save(draw_compare(distance, errors, spread), scale, out_pdf, out_png)


def draw_compare(
    distance: pd.DataFrame | None, errors: pd.DataFrame | None, spread: pd.DataFrame | None
) -> Figure:
    """Return the figure of sweeps, a row of panels for each table given; open `styled` first.

    Tables are in long form with the columns sensors, x, method, metric, value, pm, low, high.
    Bars of error show `pm`, the spread over trials, where there is one. A NaN in `x` stands for
    all of the axis.

    Parameters
    ----------
    distance : DataFrame, optional
        x is the latent dimension. Metrics ``w2`` and ``w2_gaussian`` of ``uqsonet``, and ``w2``
        of ``reference``: between two of its draws. One panel for each number of sensors.
    errors : DataFrame, optional
        x is the size of the training set. Metrics ``err_mean`` and ``err_std``, as fractions:
        the figure shows percent. One panel for each number of sensors.
    spread : DataFrame, optional
        x is the number of sensors. Metric ``mean_std`` of ``reference`` and ``uqsonet``.

    Returns
    -------
    Figure

    Raises
    ------
    DataError
        If there is no table, or one lacks columns or what it is drawn for.
    """
    tables = {"distance": distance, "errors": errors, "spread": spread}
    metrics = {"distance": DISTANCES, "errors": ERRORS, "spread": SPREAD}
    given = {
        name: _checked(name, table, list(metrics[name]))
        for name, table in tables.items()
        if table is not None
    }
    if not given:
        raise DataError("a figure of sweeps needs at least one table")
    handles, columns = legend_handles(given)
    lines = -(-len(handles) // columns)
    figure = new_figure(ROW * len(given) + LINE * lines + 0.1)
    parts = {name: _panels(name, table) for name, table in given.items()}
    # One grid for all rows, fine enough for each, so that their outer ends are aligned.
    fine = lcm(*map(len, parts.values()))
    grid = figure.add_gridspec(len(parts), fine)
    for i, (name, panels) in enumerate(parts.items()):
        step, first = fine // len(panels), None
        draw, frame = ROWS[name]
        for j, (title, table) in enumerate(panels.items()):
            axes = figure.add_subplot(
                grid[i, j * step : (j + 1) * step], sharex=first, sharey=first
            )
            draw(axes, table)
            axes.set_title(title)
            if first is None:
                first = axes
            else:
                axes.tick_params(labelleft=False)
                axes.set_ylabel("")
        assert first is not None
        frame(first, given[name])
        if len(parts) > 1:
            first.set_title(f"({'abc'[i]})", loc="left", fontweight="bold")
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3)
    return figure


def _panels(name: str, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the panels of a row by title: one for each number of sensors where that is not x."""
    if name == "spread":
        return {"": table}
    return {f"$m = {m:g}$": part for m, part in table.groupby("sensors")}


def _checked(name: str, table: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return the rows of the metrics drawn, or say what is missing."""
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise DataError(f"table of {name}: lacks {missing}")
    kept = table.loc[np.isin(np.asarray(table["metric"], str), metrics)]
    if not np.isfinite(rows(kept, [PREDICTED], metrics)[:, 0]).any():
        raise DataError(f"table of {name}: holds no {' or '.join(metrics)} of {PREDICTED}")
    if not np.isfinite(np.asarray(kept["value"], float)).all():
        raise DataError(f"table of {name}: a value is not finite")
    return kept
