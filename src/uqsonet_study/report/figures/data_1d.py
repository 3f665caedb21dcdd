"""The figure of data for functions of one variable: lines, and a column a sensor count."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from uqsonet.problems import Problem
from uqsonet_study.report.figures.posterior_1d import BAND, INPUT, REFERENCE, SENSORS, SHADE
from uqsonet_study.report.figures.sets import FUNCTION, ReferenceSet, Shown
from uqsonet_study.report.figures.style import BLACK, CYCLE, RED, new_figure


def draw_lines(shown: Shown) -> Figure:
    """Return the figure: samples on top, below them a column a sensor count."""
    problem = shown.problem
    x = problem.grid.axes()[0].numpy()
    figure = new_figure(5.6)
    blocks = figure.add_gridspec(2, 1, height_ratios=(1.1, 2))
    top = blocks[0].subgridspec(1, 2).subplots(squeeze=False)[0]
    rows = (
        blocks[1].subgridspec(2, len(shown.sets)).subplots(sharex=True, sharey="row", squeeze=False)
    )
    titles = (
        f"inputs ${problem.input_symbol}$ (black: observed below)",
        f"outputs ${problem.output_symbol}${shown.random}",
    )
    for axes, functions, title in zip(top, shown.samples, titles, strict=True):
        for k, function in enumerate(functions):
            # The first is the function observed below.
            axes.plot(x, function, color=BLACK if k == FUNCTION else CYCLE[k - 1], linewidth=1)
        axes.set_title(title)
    _, u = shown.pair
    for (over, under), one in zip(rows.T, shown.sets, strict=True):
        _draw_observed(over, x, shown, one)
        _draw_law(under, x, u, one)
        over.set_title(f"$m = {len(one.values)}$")
    for axes, symbol in zip(
        (top[0], rows[0, 0], top[1], rows[1, 0]),
        (problem.input_symbol,) * 2 + (problem.output_symbol,) * 2,
        strict=True,
    ):
        axes.set_ylabel(f"${symbol}(x)$")
    for axes in figure.axes:
        axes.set_xlim(x[0], x[-1])
        axes.xaxis.set_major_locator(MaxNLocator(4))
    for axes in (*top, *rows[1]):
        axes.set_xlabel("$x$")
    handles: dict[str, Any] = {}
    for axes in (rows[0, 0], rows[1, 0]):
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    legend: dict[str, Any] = {"loc": "outside lower center", "ncols": 3, "handlelength": 3}
    figure.legend(list(handles.values()), list(handles), **legend)
    return figure


def _draw_observed(axes: Axes, x: np.ndarray, shown: Shown, one: ReferenceSet) -> None:
    """Draw the true input and what sensors read, with bars of the noise around it."""
    problem, (kappa, _) = shown.problem, shown.pair
    axes.plot(x, kappa, label=f"true input ${problem.input_symbol}$", **INPUT)
    look: dict[str, Any] = SENSORS | {"clip_on": False, "zorder": 5}
    places = one.sensors[:, 0]
    if not shown.noise_std:
        axes.plot(places, one.values, label="sensors", **look)
        return
    low, high = (_shift(problem, one.values, sign * BAND * shown.noise_std) for sign in (-1, 1))
    bars = np.stack([one.values - low, high - one.values])
    label = f"sensors, ± {BAND:g} std of the noise"
    axes.errorbar(places, one.values, yerr=bars, ecolor=RED, elinewidth=0.8, label=label, **look)


def _shift(problem: Problem, values: np.ndarray, step: float) -> np.ndarray:
    """Return values moved by a step in the field that is Gaussian."""
    return values * np.exp(step) if problem.transform.name == "log" else values + step


def _draw_law(axes: Axes, x: np.ndarray, u: np.ndarray, one: ReferenceSet) -> None:
    """Draw the reference mean, a band around it, and the true output on top."""
    low, high = one.mean - BAND * one.std, one.mean + BAND * one.std
    band = f"reference, mean ± {BAND:g} std"
    axes.fill_between(x, low, high, color=RED, alpha=1.5 * SHADE, linewidth=0, label=band)
    axes.plot(x, one.mean, linewidth=1.4, label="reference mean", **REFERENCE)
    axes.plot(x, u, color=BLACK, linewidth=0.9, label="true output")
