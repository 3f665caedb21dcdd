"""The figure of places: the reference's spread against the number of sensors, by strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from uqsonet_study.config import Config
from uqsonet_study.report.figures.colours import AMBER, BLUE, GREEN, GREY
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import problem_title
from uqsonet_study.report.place_scores import STRATEGIES

COLUMNS = 3
LOOKS: dict[str, dict[str, Any]] = {
    "greedy": {"color": BLUE, "marker": "o"},
    "random": {"color": GREY, "marker": "s"},
    "space_filling": {"color": GREEN, "marker": "^"},
    "worst": {"color": AMBER, "marker": "v"},
}


def draw(config: Config, name: str, files: Mapping[str, Any]) -> Figure:
    """Return a declared figure of layout ``placement``, from `files`: ``scores``."""
    scores = pd.read_csv(files["scores"][0])
    cases = config.cases_of(config.figures[name].experiments)
    rows = -(-(len(cases) + 1) // COLUMNS)
    figure = new_figure(2.1 * rows)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, case in zip(panels, cases, strict=False):
        axes.set_axis_on()
        own = scores.loc[scores["problem"] == case.problem]
        lines = own.pivot_table(index="sensors", columns="strategy", values="std")
        axes.fill_between(
            lines.index, lines["random_low"], lines["random_high"], color=GREY, alpha=0.25, lw=0
        )
        for strategy, look in LOOKS.items():
            title = STRATEGIES[strategy]
            axes.plot(lines.index, lines[strategy], markersize=3, label=title, **look)
        axes.set(title=problem_title(case.problem), xlabel="number of sensors $m$")
        axes.set_xticks(list(lines.index))
    panels[0].set_ylabel("std, mean over the domain")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center")
    return figure
