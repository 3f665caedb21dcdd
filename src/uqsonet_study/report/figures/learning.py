"""The figure of what learning costs: errors against training pairs and against core-minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from uqsonet.errors import DataError
from uqsonet_study.config import Config, LearningFigure
from uqsonet_study.report.figures.colours import AMBER, BLUE, GREEN, GREY, PURPLE
from uqsonet_study.report.figures.maps import log_axis, log_ticks
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import METRICS, method_title
from uqsonet_study.report.summary import most_precise

ERRORS = ("err_mean", "err_std")
MARGIN = 1.2  # room beyond the data on a logarithmic axis, a factor
LEARNED = {"attention_prior": "learned set embedding", "attention": "the paper's set embedding"}
"""Network -> its line, where nothing is given of the law of the input; others have a law."""

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "marker": "o"},
    {"color": AMBER, "marker": "s", "linestyle": (0, (5, 2))},
    {"color": GREEN, "marker": "^", "linestyle": (0, (3, 1, 1, 1))},
    {"color": PURPLE, "marker": "v", "linestyle": (0, (1, 1.5))},
)
BASELINES: dict[str, dict[str, Any]] = {
    "regression": {"color": GREY, "marker": "x", "linewidth": 0.8},
    "sensor_free": {"color": GREY, "linewidth": 0.8, "linestyle": (0, (6, 2, 1, 2))},
}


def draw(config: Config, name: str, files: Mapping[str, Any]) -> Figure:
    """Return a declared figure of layout ``learning``.

    `files` has ``summaries``, and ``runs``: case, method, network, logs of training and of laws.
    """
    declared = config.figures[name]
    assert isinstance(declared, LearningFigure)
    scores = pd.concat(map(pd.read_csv, files["summaries"]))
    scores = pd.concat([most_precise(scores, e) for e in declared.experiments])
    scores = scores.loc[scores["metric"].isin(ERRORS) & scores["sensors"].isin(declared.counts)]
    found = pd.DataFrame(
        [
            {key: run[key] for key in ("case", "method")}
            | {"line": line_of(run["network"], run["method"]), "minutes": minutes(run)}
            for run in files["runs"]
        ]
    )
    lines = list(dict.fromkeys(found["line"]))
    if len(lines) > len(LOOKS):
        raise DataError(
            f"figures.{name}: {len(lines)} lines, at most {len(LOOKS)} can be told apart"
        )
    ours = scores.merge(found, on=["case", "method"])
    base = scores.loc[scores["method"].isin(BASELINES)]
    base = base.assign(line=base["method"])
    base = base.drop_duplicates(["line", "training", "sensors", "metric"])
    sizes = pd.concat([ours.loc[ours["experiment"].isin(declared.sizes)], base])
    budgets = ours.loc[ours["experiment"].isin(declared.budgets)]
    looks = dict(zip(lines, LOOKS, strict=False)) | BASELINES
    figure = new_figure(7.2)
    rows = ((sizes, "training"), (budgets, "minutes"))
    parts = np.atleast_1d(np.asarray(figure.subfigures(2, 1)))
    for part, (table, x) in zip(parts, rows, strict=True):
        grid = part.subplots(len(ERRORS), len(declared.counts), sharex=True, squeeze=False)
        for panels, metric in zip(grid, ERRORS, strict=True):
            for axes, m in zip(panels, declared.counts, strict=True):
                here = table.loc[(table["metric"] == metric) & (table["sensors"] == m)]
                _draw_panel(axes, here, x, looks)
                axes.set_title(f"{METRICS[metric]}, $m = {m}$")
            panels[0].set_ylabel("relative $L_2$ error (%)")
        for axes in grid[-1]:
            axes.set_xlabel("training pairs $N$" if x == "training" else "minutes of one core")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    titles = [method_title(label) for label in labels]
    figure.legend(handles, titles, loc="outside lower center", ncols=3)
    return figure


def line_of(network: str, method: str) -> str:
    """Return how a method with a network is called."""
    if network in LEARNED:
        return LEARNED[network]
    return "law: " + method_title("gaussian" if method == "uqsonet" else method).lower()


def minutes(run: Mapping[str, Any]) -> float:
    """Return the minutes that one trial took: its training, and its law where one is fitted."""
    seconds = np.mean([log["seconds"].max() for log in _by_trial(run["training"])])
    if run["laws"]:
        seconds += np.mean([log["seconds"].sum() for log in _by_trial(run["laws"])])
    return float(seconds) / 60


def _by_trial(files: Sequence[str]) -> list[pd.DataFrame]:
    return [log for _, log in pd.concat(map(pd.read_csv, files)).groupby("trial")]


def _draw_panel(axes: Axes, table: pd.DataFrame, x: str, looks: Mapping[str, Any]) -> None:
    for line, look in looks.items():
        own = table.loc[table["line"] == line].sort_values(x)
        axes.plot(own[x], 100 * own["value"], label=line, markersize=3.5, **look)
    values = 100 * np.asarray(table["value"], float)
    axes.set_xscale("log")
    log_axis(axes, values.min() / MARGIN, values.max() * MARGIN, most=5)
    if x == "training":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    else:
        ticks = log_ticks(min(table[x]), max(table[x]), most=5)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
