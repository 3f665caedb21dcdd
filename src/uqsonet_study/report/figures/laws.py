"""The figure of laws of the input: samples of the output beside those of the reference.

A row for the reference posterior and one for each law, given the same sensors of one test function.
In one variable samples stand beside marginals at three points; in the plane one sample beside mean
and std. References hold no samples, so they are drawn anew, from a seed of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from uqsonet.errors import DataError
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.operator.file import load
from uqsonet_study.config import Config, LawFigure
from uqsonet_study.problems import get_problem
from uqsonet_study.report.figures.colours import BLACK, GREY, PREDICTION, REFERENCE, TRUTH
from uqsonet_study.report.figures.maps import draw_bar, draw_map, draw_sensors, input_scale, scale
from uqsonet_study.report.figures.panels import Panel, error_of, read_panels
from uqsonet_study.report.figures.style import FIELD_MAP, STD_MAP, new_figure
from uqsonet_study.report.law_scores import law_name
from uqsonet_study.report.names import method_title, problem_title

SAMPLES = 4000  # behind marginals
SHOWN = 12  # sample functions drawn in one variable
PLACES = (0.25, 0.5, 0.75)  # where marginals are taken, as shares of the grid
MANY = 50  # sensors from which on they are drawn as dots
BINS = 40
SENSORS: dict[str, Any] = {"color": BLACK, "linestyle": "", "marker": "^", "markersize": 4}
TAIL = 0.002  # share of the reference's samples on either side that histograms leave out


class Row(NamedTuple):
    """A law as a row shows it: mean and std (n,), samples (size, n)."""

    title: str
    color: str
    mean: np.ndarray
    std: np.ndarray
    samples: np.ndarray

    def errors(self, of: Row) -> tuple[str, str]:
        """Return the relative errors of mean and std in print."""
        return error_of(self.mean, of.mean), error_of(self.std, of.std)


def draw(config: Config, name: str, files: Mapping[str, Any]) -> Figure:
    """Return a declared figure of layout ``laws``, from `files`: one of ``panels``."""
    declared = config.figures[name]
    assert isinstance(declared, LawFigure)
    (one,) = files["panels"]
    (panel,) = read_panels([one])
    plane = panel.fields.output.grid.dim == 2
    size = 1 if plane else SAMPLES
    laws = [
        _law(panel, law_name(config, declared.experiment, method), Path(path), size)
        for method, path in zip(declared.methods, one["weights"], strict=True)
    ]
    rows = [_reference(panel, size), *laws]
    figure = _maps(panel, rows) if plane else _lines(panel, rows)
    noise = rf", noise $\sigma = {panel.noise_std:.3g}$" if panel.noise_std else ""
    figure.suptitle(
        f"{problem_title(panel.fields.name)}, $m = {len(panel.values)}${noise}", fontsize=9
    )
    return figure


def _reference(panel: Panel, size: int) -> Row:
    """Return the reference posterior with samples that are drawn for the figure."""
    o, problem = panel.observations, get_problem(panel.fields.name)
    seen = problem.transform.forward(o.values[o.mask])
    law = problem.prior.posterior(o.locations[o.mask], seen, panel.noise_std)
    if law is None or panel.reference is None:
        raise DataError(f"nobody knows the posterior of {problem.name}: nothing to draw beside it")
    generator = numpy_generator(0, problem.name, "figure", "reference")
    fields, unobserved = problem.inputs(law, generator, size)
    samples = problem.outcomes(fields, unobserved)[1]
    mean, std = (np.asarray(moment, dtype=float) for moment in panel.reference)
    return Row("reference", REFERENCE, mean, std, samples.numpy())


def _law(panel: Panel, law: str, weights: Path, size: int) -> Row:
    """Return what a law says, and which one it is where it was chosen."""
    o, model = panel.observations, load(weights)
    chosen = getattr(model.config, "law", law)
    posterior = model.condition(o.locations, o.values, o.mask, panel.noise_std)
    generator = torch_generator(0, panel.fields.name, "figure", "law")
    found = posterior.mean(), posterior.std(), posterior.sample(size, generator=generator)
    mean, std, samples = (part[0].double().numpy() for part in found)
    title = method_title(law) + ("" if chosen == law else f" ({chosen})")
    return Row(title, PREDICTION, mean, std, samples)


def _lines(panel: Panel, rows: Sequence[Row]) -> Figure:
    """Return samples and marginals of functions of one variable."""
    reference, (_, truth) = rows[0], panel.truth
    x = panel.fields.output.grid.points()[:, 0].numpy()
    places = [round(share * (len(x) - 1)) for share in PLACES]
    figure = new_figure(1.55 * len(rows) + 0.7)
    grid = figure.subplots(
        len(rows), 1 + len(places), squeeze=False, sharex="col", width_ratios=(2.4, 1, 1, 1)
    )
    for axes, row in zip(grid, rows, strict=True):
        axes[0].sharey(grid[0, 0])
        axes[0].plot(x, row.samples[:SHOWN].T, color=row.color, linewidth=0.6)
        axes[0].plot(x, truth, color=TRUTH, linewidth=1.0)
        for k in places:
            axes[0].axvline(x[k], color=GREY, linewidth=0.5, linestyle=":")
        axes[0].set_xlim(x[0], x[-1])
        axes[0].set_ylabel(row.title)
        # Sensors read the input, so they have no height in a picture of the output.
        foot: dict[str, Any] = {"transform": axes[0].get_xaxis_transform(), "clip_on": False}
        axes[0].plot(panel.sensors[:, 0], np.zeros(len(panel.sensors)), **SENSORS, **foot)
        axes[0].xaxis.set_major_locator(MaxNLocator(4))
        if row is not reference:
            mean, std = row.errors(reference)
            axes[0].set_title(f"error of mean {mean}, of std {std}")
        for k, marginal in zip(places, axes[1:], strict=True):
            low, high = np.quantile(reference.samples[:, k], [TAIL, 1 - TAIL])
            room = 0.15 * (high - low)
            edges = np.linspace(low - room, high + room, BINS + 1)
            look: dict[str, Any] = {"bins": edges, "density": True}
            marginal.hist(reference.samples[:, k], color=REFERENCE, alpha=0.35, **look)
            step: dict[str, Any] = look | {"histtype": "step", "linewidth": 1.0}
            marginal.hist(row.samples[:, k], color=row.color, **step)
            marginal.set_yticks([])
            marginal.xaxis.set_major_locator(MaxNLocator(3))
            marginal.axvline(truth[k], color=TRUTH, linewidth=0.8)
    for k, axes in zip(places, grid[0, 1:], strict=True):
        axes.set_title(f"$x = {round(float(x[k]), 6) + 0.0:.3g}$")  # no -0, nor rounding of it
    for axes in grid[-1, 1:]:
        axes.set_xlabel(f"${panel.fields.output.symbol}$")
    grid[-1, 0].set_xlabel("$x$")
    handles = [
        Line2D([], [], color=REFERENCE, label="reference samples"),
        Line2D([], [], color=PREDICTION, label="samples of a law"),
        Line2D([], [], color=TRUTH, label="true output"),
        Line2D([], [], label="sensors of the input", **SENSORS),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _maps(panel: Panel, rows: Sequence[Row]) -> Figure:
    """Return one sample, mean and std of functions of two variables."""
    reference, (kappa, u), fields = rows[0], panel.truth, panel.fields
    figure = new_figure(1.62 * len(rows) + 0.9)
    grid = figure.subplots(len(rows), 4, squeeze=False)
    levels = scale(u, *(row.mean for row in rows), *(row.samples[0] for row in rows))
    spread = scale(*(row.std for row in rows), positive=True)
    title = f"true input ${fields.input.symbol}$"
    draw_map(grid[0, 0], fields.input.grid, kappa, input_scale(fields, kappa), FIELD_MAP, title)
    few, places = len(panel.sensors) < MANY, fields.output.grid
    small = {} if few else {"markersize": 1.5, "markeredgewidth": 0}
    draw_sensors(grid[0, 0], panel.sensors, **small)
    title = f"true output ${fields.output.symbol}$"
    field = std = draw_map(grid[1, 0], places, u, levels, FIELD_MAP, title)
    for axes in grid[2:, 0]:
        axes.set_axis_off()
    for line, row in zip(grid[:, 1:], rows, strict=True):
        errors = ("", "") if row is reference else [f", {e}" for e in row.errors(reference)]
        draw_map(line[0], places, row.samples[0], levels, FIELD_MAP, f"{row.title}: a sample")
        draw_map(line[1], places, row.mean, levels, FIELD_MAP, f"mean{errors[0]}")
        std = draw_map(line[2], places, row.std, spread, STD_MAP, f"std{errors[1]}")
    draw_bar(figure, field, grid[:, 1:3].ravel(), "bottom", aspect=40)
    draw_bar(figure, std, grid[:, 3], "bottom")
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    return figure
