"""The figure of calibration: rank histograms and what bands hold, one column a problem.

A calibrated law puts the truth, the function that the sensors were read from, at every rank equally
often, and its 90 % band holds nine of ten samples of the reference posterior. A few hundred truths
leave several points of doubt about a coverage; thousands of reference samples do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from uqsonet_study.cases import Study
from uqsonet_study.report import inputs
from uqsonet_study.report.figures.colours import AMBER, BLACK, BLUE, SKY
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import method_title, problem_title
from uqsonet_study.report.summary import most_precise

METHOD, LINEAR = "uqsonet", "cokriging"
LEVELS = {50: ("o", SKY), 90: ("s", BLUE), 95: ("^", BLACK)}
"""Nominal coverage in percent, with marker and colour."""

WITHIN = 2.0  # points by which a share may miss its level: the shaded strip


def draw(study: Study, name: str) -> Figure:
    """Return a declared figure of layout ``calibration``.

    Ranks are those of the most precise evaluation, bands of the one whose references hold samples.
    """
    files = study.paths(inputs.summaries_of_figure(study, name))
    summaries, experiments = pd.concat(map(pd.read_csv, files)), study.config.figures[name].shown
    figure = new_figure(3.4)
    grid = figure.subplots(2, len(experiments), squeeze=False, sharey="row")
    for axes, e in zip(grid.T, experiments, strict=True):
        (case,) = study.of([e])
        _ranks(axes[0], problem_title(case.problem), most_precise(summaries, e))
        label = case.evaluations[0]
        here = (summaries["experiment"] == e) & (summaries["evaluation"] == label)
        _bands(axes[1], summaries.loc[here])
    grid[0, 0].set_ylabel("share of truths")
    grid[0, 0].set_ylim(bottom=0)
    grid[1, 0].set_ylabel("inside band - level (points)")
    bottom, top = grid[1, 0].get_ylim()
    grid[1, 0].set_ylim(min(bottom, -2 * WITHIN), max(top, 2 * WITHIN))
    handles = [h for axes in grid[:, 0] for h in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _values(table: pd.DataFrame, method: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Return values by sensor count (rows) and metric (columns)."""
    rows = table.loc[(table["method"] == method) & table["metric"].isin(metrics)]
    return rows.pivot_table(index="sensors", columns="metric", values="value")[list(metrics)]


def _ranks(axes: Axes, title: str, table: pd.DataFrame) -> None:
    """Draw rank histograms over all sensor counts."""
    bins = len({m for m in table["metric"] if str(m).startswith("rank_")})
    metrics = [f"rank_{k + 1}" for k in range(max(bins, 1))]
    shares = _values(table, METHOD, metrics).mean().to_numpy()
    linear = _values(table, LINEAR, metrics).mean().to_numpy()
    edges = np.linspace(0, 1, bins + 1)
    axes.bar(edges[:-1], shares, 1 / bins, align="edge", color=SKY, label=method_title(METHOD))
    axes.stairs(linear, edges, color=AMBER, linewidth=1.2, label=method_title(LINEAR))
    axes.axhline(1 / bins, color=BLACK, linewidth=0.7, linestyle="--", label="calibrated")
    axes.set(title=title, xlim=(0, 1), xticks=(0, 0.5, 1), xlabel="rank")


def _bands(axes: Axes, table: pd.DataFrame) -> None:
    """Draw by how much shares inside bands miss their levels, for each sensor count."""
    found = _values(table, METHOD, [f"within_{level}" for level in LEVELS])
    axes.axhspan(-WITHIN, WITHIN, color="#E8E8E8", zorder=0)
    axes.axhline(0, color=BLACK, linewidth=0.7, linestyle="--")
    for level, (marker, colour) in LEVELS.items():
        misses = 100 * found[f"within_{level}"].to_numpy() - level
        style = {"marker": marker, "color": colour, "markersize": 3.5, "linewidth": 0.8}
        axes.plot(found.index, misses, label=f"{level} % band", **style)
    axes.set_xticks([int(m) for m in found.index][:: 1 if len(found) < 6 else 3])
    axes.set_xlabel("sensors $m$")
