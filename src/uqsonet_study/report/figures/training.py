"""The picture of training: loss terms and skill against iteration, from the training logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from uqsonet_study.config import Config
from uqsonet_study.report.figures.colours import BLACK, CYCLE, GREY
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import method_title
from uqsonet_study.report.summary import read_numbers

HEAD = ["trial", "iteration", "seconds", "learning_rate", "loss"]
SKILLS = {"skill_mean_": "skill of the mean", "skill_std_": "skill of the std"}
DECADE = 10.0  # losses that span more are drawn on a logarithmic axis
LOWEST = -0.5  # skills below are cut off: early ones can be so bad that nothing else would be seen


def draw(_config: Config, _name: str, files: Mapping[str, Any]) -> Figure:
    """Return loss terms and skill per sensor count, a row of panels for each method.

    `files` has CSV ``logs``: those in one folder ``<method>-<digest>`` belong to one method.
    """
    methods: dict[str, list[pd.DataFrame]] = {}
    for path in map(Path, files["logs"]):
        method = path.parent.name.partition("-")[0]
        methods.setdefault(method, []).append(read_numbers(path, HEAD))
    tables = {name: pd.concat(parts, ignore_index=True) for name, parts in methods.items()}
    counts = sorted({m for table in tables.values() for m in _counts(table)})
    terms = dict.fromkeys(term for table in tables.values() for term in _terms(table))
    hues = dict(zip(terms, CYCLE, strict=False))
    shades = mpl.colormaps["viridis"](np.linspace(0, 0.92, max(len(counts), 2)))
    colors = dict(zip(counts, shades, strict=False))
    figure = new_figure(2.1 * len(tables) + 0.6)
    grid = figure.subplots(len(tables), 1 + len(SKILLS), squeeze=False, sharex="row")
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        _draw_loss(axes[0], name, table, hues)
        for panel, (prefix, title) in zip(axes[1:], SKILLS.items(), strict=True):
            _draw_skill(panel, table, prefix, colors)
            panel.set_title(title)
    for panel in grid.flat:
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    for panel in grid[-1]:
        panel.set_xlabel("iteration")
    _legend(figure, hues, colors)
    return figure


def _counts(log: pd.DataFrame) -> list[int]:
    found = {name.rsplit("_", 1)[1] for name in log.columns if name.startswith(tuple(SKILLS))}
    return sorted(int(m) for m in found)


def _terms(log: pd.DataFrame) -> list[str]:
    """Return the columns of the loss; a sole term repeats the loss and is left out."""
    others = [c for c in log.columns if c not in HEAD and not c.startswith(tuple(SKILLS))]
    return ["loss", *(c for c in others if not np.allclose(log[c], log["loss"]))]


def _lines(axes: Axes, log: pd.DataFrame, column: str, color: Any) -> None:
    """Draw one thin line a trial."""
    for _, part in log.groupby("trial"):
        # A log with a single row is a dot, or nothing would be seen.
        marker = "." if len(part) == 1 else ""
        axes.plot(part["iteration"], part[column], color=color, linewidth=0.7, marker=marker)


def _draw_loss(axes: Axes, name: str, log: pd.DataFrame, hues: dict[str, str]) -> None:
    terms = _terms(log)
    for term in terms:
        _lines(axes, log, term, hues.get(term, GREY))
    values = log[terms].to_numpy()
    if values.min() > 0 and values.max() > DECADE * values.min():
        axes.set_yscale("log")
    trials = len(set(log["trial"]))
    axes.set_title(f"{method_title(name)}: loss ({trials} trial{'s' if trials > 1 else ''})")


def _draw_skill(axes: Axes, log: pd.DataFrame, prefix: str, colors: dict[int, Any]) -> None:
    counts = [m for m in _counts(log) if f"{prefix}{m}" in log.columns]
    if not counts:
        center: dict[str, Any] = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "no spread,\nor none to\ncompare with", color=GREY, **center)
        axes.set_yticks([])
        return
    for m in counts:
        _lines(axes, log, f"{prefix}{m}", colors[m])
    lowest = float(log[[f"{prefix}{m}" for m in counts]].to_numpy().min())
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set_ylim(max(LOWEST, min(-0.05, 1.1 * lowest)), 1.03)


def _legend(figure: Figure, hues: dict[str, str], colors: dict[int, Any]) -> None:
    """Name the loss terms, if there are several, and the sensor counts, once for all panels."""
    named = hues if len(hues) > 1 else {}
    handles = [Line2D([], [], color=c, label=t.replace("_", " ")) for t, c in named.items()]
    handles += [Line2D([], [], color=c, label=f"m = {m}") for m, c in colors.items()]
    handles.append(Line2D([], [], color=BLACK, linewidth=0.8, linestyle="--", label="no skill"))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, columnspacing=1.2)
