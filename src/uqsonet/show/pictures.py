"""Answers as pictures and pages. matplotlib is in the extra `runs`."""

from __future__ import annotations

import base64
import html
import io
import math
from importlib import resources
from itertools import cycle
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import real_numbers
from uqsonet.files import atomic_path, path_of, require_picture

if TYPE_CHECKING:
    from uqsonet.sensors.sensors import Sensors

BLUE, ORANGE, GREY = "#1f5fa8", "#d9661f", "#777777"  # the answer, sensors and truth, the rest

COLOURS = BLUE, ORANGE, "#2c8c4a", "#8a4fa3"
STYLES = {
    "uqsonet": (BLUE, "o-"),
    "cokriging": (ORANGE, "s--"),
    "sensor_free": (GREY, "^:"),
    "regression": (COLOURS[2], "d-."),
}
"""Colour and line of each method."""


Values = tuple[np.ndarray, np.ndarray]  # points (n, d) and values (n,)
MAX_MISSING = 4  # points of a grid over scattered points that are drawn as this grid
HISTOGRAM_SAMPLES, HISTOGRAM_BINS = 2000, 40  # of a single number
FAR = 4.0  # edges of triangles, over the distance of neighbours there, that cross a hole
SHOWN_SAMPLES = 5  # sample functions in a picture of one dimension
RUNS = 3  # runs in a picture of runs


def draw(
    posterior: Any, path: object, level: float, title: str | None, truth: object = None
) -> Any:
    """Draw an answer (`FieldPosterior.plot`)."""
    if not posterior.single:
        raise ObservationError("a picture shows one set of sensors, found a batch")
    figure = _answered(posterior, level, _true(posterior, truth))
    figure.suptitle(title or f"{posterior.field.name} given {_counted(posterior.sensors)}")
    return _saved(figure, path)


def _counted(sets: Sensors) -> str:
    """Return in words how many sensors one set has."""
    count = int(sets.mask.sum())
    return f"{count or 'no'} sensor{'' if count == 1 else 's'}"


def _saved(figure: Any, path: object) -> Any:
    """Return a picture, written to a file if there is a path."""
    _literal(figure)
    if path is not None:
        require_picture(path)
        with atomic_path(path_of(str(path))) as part:
            figure.savefig(part, dpi=150, format=path_of(str(path)).suffix[1:].lower())
    return figure


def draw_placement(placement: Any, path: object) -> Any:
    """Draw the map of expected reduction and the chosen places (`Placement.plot`)."""
    names = list(dict.fromkeys(placement.candidate_fields))
    figure = _figure(5.2 * len(names), 4.4)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        here, there, taken = (
            np.array(read, dtype=str) == name
            for read in (placement.candidate_fields, placement.given_fields, placement.fields)
        )
        dim = int(np.isfinite(placement.candidates[here][0]).sum())
        x, reduction = placement.candidates[here, :dim], placement.reduction[:, here]
        known, places, chosen = placement.given[there], placement.places[taken], taken.nonzero()[0]
        axes.set_title(f"expected reduction by a sensor of {name}", fontsize=10)
        if dim == 1:
            order = x[:, 0].argsort()
            for k, line in enumerate(reduction):
                axes.plot(x[order, 0], line[order], lw=1.2, label=f"step {k + 1}")
            axes.set(xlabel="x", ylabel=f"reduction of the variance of {placement.target}")
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False, fontsize=8)
            heights = placement.reduction[chosen, placement.chosen[taken]], np.zeros(len(known))
        else:
            figure.colorbar(_map(axes, x, reduction[0], "viridis", {"vmin": 0}), ax=axes)
            heights = places[:, 1], known[:, 1]
        axes.plot(known[:, 0], heights[1], "s", color=GREY, mec="white", clip_on=False)
        axes.plot(places[:, 0], heights[0], "o", color=ORANGE, mec="white", ms=11)
        for k, *at in zip(chosen, places[:, 0], heights[0], strict=True):
            axes.annotate(str(k + 1), at, ha="center", va="center", fontsize=8)
    figure.suptitle(f"where to measure for {placement.target}")
    return _saved(figure, path)


def draw_runs(runs: Any, path: object) -> Any:
    """Draw the first runs: a row for each field, a column for each run (`Runs.plot`)."""
    every, shown = {**runs.inputs, **runs.outputs}, min(RUNS, len(runs))
    figure = _figure(4.0 * shown, 3.2 * len(every))
    rows = figure.subplots(len(every), shown, squeeze=False, sharex="row", sharey="row")
    for panels, (name, one) in zip(rows, every.items(), strict=True):
        field = Field(name, one.domain, units=one.units, layout=one.layout)
        points = one.domain.points().numpy()
        values = np.asarray(one.values[:shown], dtype=np.float64)
        ends = {"vmin": float(values.min()), "vmax": float(values.max())}
        labels = field.label, *field.axis_labels
        panels[0].set_ylabel(labels[0 if one.domain.dim == 1 else 2])
        for number, (axes, row) in enumerate(zip(panels, values, strict=True)):
            axes.set_title(f"{name}, run {number}", fontsize=10)
            axes.set(xlabel=labels[1])
            if one.domain.dim == 1:
                order = points[:, 0].argsort()
                axes.plot(points[order, 0], row[order], color=BLUE)
            else:
                drawn = _map(axes, points, row, "viridis", ends)
                if number == shown - 1:
                    figure.colorbar(drawn, ax=panels.tolist(), label=labels[0])
    return _saved(figure, path)


def _true(posterior: Any, truth: object) -> Values | None:
    """Return points (M, d) and values (M,) of the truth, which may be at other points."""
    if truth is None:
        return None
    if isinstance(truth, tuple) and len(truth) == 2:
        points, values = posterior._points(truth[0]).numpy(), truth[1]
    else:
        points = posterior.field.domain.points().numpy()
        values = _in_domain_order(posterior.field, truth)
    values = real_numbers(values, "truth", missing=True).numpy().reshape(-1)
    points = points.reshape(len(points), -1)
    if len(points) != len(values):
        raise ObservationError(f"truth: {len(values)} values at {len(points)} points")
    return points, values


def _in_domain_order(field: Field, truth: object) -> object:
    """Return a truth of the file's shape, or the grid's, in the order of the domain's points."""
    shape = np.shape(truth)  # type: ignore[arg-type]
    if len(shape) < 2:
        return truth
    layout = field.layout
    allowed = field.domain.shape if layout is None else layout.index.shape
    if layout is not None and shape == allowed:
        ordered, there = np.empty(field.domain.size), layout.index >= 0
        ordered[layout.index[there]] = np.asarray(truth)[there]
        return ordered
    if shape != allowed:
        raise ObservationError(f"truth: shape {shape}, the field has {allowed}")
    return truth


def _answered(posterior: Any, level: float, truth: Values | None) -> Any:
    """Return a picture of an answer."""
    figure, domain = _figure(), posterior.field.domain
    one = _draw_number if domain.size == 1 else _draw_line if domain.dim == 1 else _draw_maps
    one(figure, posterior, level, truth)
    return figure


def _draw_number(figure: Any, posterior: Any, level: float, truth: Values | None) -> None:
    """Draw the sensors, and beside them histograms of a single number, with and without them."""
    field, sets = posterior.field, posterior.sensors
    figure.set_size_inches(11, 4.5)
    left, axes = figure.subplots(1, 2)
    _draw_sensors(left, figure, posterior)
    before = posterior.given(sets.each(lambda t: t[:, :0]))
    laws = {"without sensors": (before, GREY), "given the sensors": (posterior, BLUE)}
    for name, (law, colour) in laws.items():
        values = np.asarray(law.sample(HISTOGRAM_SAMPLES)).ravel()
        axes.hist(values, HISTOGRAM_BINS, density=True, color=colour, alpha=0.4, label=name)
    lower, upper = (float(np.asarray(end).ravel()[0]) for end in posterior.band(level))
    axes.axvspan(lower, upper, color=BLUE, alpha=0.12, lw=0, label=f"{100 * level:g} % band")
    axes.axvline(float(np.asarray(posterior.mean()).ravel()[0]), color=BLUE, lw=2, label="mean")
    if truth is not None:
        axes.axvline(float(truth[1][0]), color=ORANGE, lw=1.5, ls="--", label="truth")
    axes.set(xlabel=field.label, ylabel="density", yticks=[])
    axes.legend(frameon=False, fontsize=9)


def _draw_line(figure: Any, posterior: Any, level: float, truth: Values | None) -> None:
    """Draw the sensors, and below them mean, band and some sample functions along one axis."""
    field = posterior.field
    x = field.domain.points()
    x = x[x[:, 0].argsort()]
    line = x[:, 0].numpy()
    figure.set_size_inches(8, 6)
    above, axes = figure.subplots(2, 1, height_ratios=(1, 2))
    _draw_sensors(above, figure, posterior)
    lower, upper = (np.asarray(end) for end in posterior.band(level, x))
    name = f"{100 * level:g} % band"
    axes.fill_between(line, lower, upper, color=BLUE, alpha=0.2, lw=0, label=name)
    for k, sample in enumerate(np.asarray(posterior.sample(SHOWN_SAMPLES, x))):
        axes.plot(line, sample, color=GREY, lw=0.7, alpha=0.8, label="samples" if k == 0 else None)
    axes.plot(line, np.asarray(posterior.mean(x)), color=BLUE, lw=2, label="mean")
    if truth is not None:
        there, order = truth[0][:, 0], truth[0][:, 0].argsort()
        axes.plot(there[order], truth[1][order], color=ORANGE, lw=1.5, ls="--", label="truth")
    for number, one in posterior.read.items():
        if one is field:
            x, y, points = _sensors(posterior.sensors, number)
            axes.scatter(x[:, 0], y, color=ORANGE, s=36, zorder=3, label="sensors")
            _draw_weighted(axes, points)
    axes.set(xlabel=field.axis_labels[0], ylabel=field.label)
    axes.margins(x=0)
    box = field.domain.lower, field.domain.upper
    if all((one.domain.lower, one.domain.upper) == box for one in posterior.read.values()):
        above.set_xlim(axes.get_xlim())
    axes.legend(frameon=False, fontsize=9, ncols=5, loc="lower right", bbox_to_anchor=(1, 1))


def _draw_maps(figure: Any, posterior: Any, level: float, truth: Values | None) -> None:
    """Draw the sensors and maps of mean, truth or a sample, std and the ends of the band."""
    field = posterior.field
    points = field.domain.points().numpy()
    lower, upper = (np.asarray(end) for end in posterior.band(level))
    name = field.label
    if truth is None:
        other = f"one function of the law of {name}", points, np.asarray(posterior.sample(1))[0]
    else:
        other = f"true {name}", *truth
    shared = [
        (f"mean of {name}", points, np.asarray(posterior.mean())),
        other,
        (f"lower end of the {100 * level:g} % band", points, lower),
        (f"upper end of the {100 * level:g} % band", points, upper),
    ]
    every = np.concatenate([values for _, _, values in shared])
    ends = {"vmin": float(every.min()), "vmax": float(every.max())}
    wide, high = (points[:, k].max() - points[:, k].min() for k in (0, 1))
    figure.set_size_inches(12, min(7.0, max(4.5, 2.0 + 6.5 * high / wide)))
    panels = figure.subplots(2, 3)
    for axes in panels.flat:
        axes.set(xlabel=field.axis_labels[0], ylabel=field.axis_labels[1])
    _draw_sensors(panels[0, 0], figure, posterior)
    spread = _map(panels[1, 0], points, np.asarray(posterior.std()), "magma", {"vmin": 0})
    panels[1, 0].set_title(f"standard deviation of {name}", fontsize=10)
    figure.colorbar(spread, ax=panels[1, 0], label=name)
    meshes = []
    for axes, (title, places, values) in zip(panels[:, 1:].flat, shared, strict=True):
        meshes.append(_map(axes, places, values, "viridis", ends))
        axes.set_title(title, fontsize=10)
    figure.colorbar(meshes[0], ax=panels[:, 1:], label=name)
    if points.shape[1] == 3:
        panels[1, 0].annotate("in the middle plane of z", (0, -0.25), xycoords="axes fraction")


def _map(axes: Any, points: np.ndarray, values: np.ndarray, colours: str, ends: Any) -> Any:
    """Draw values at points (n, 2) or (n, 3): a grid by its cells, a mesh by triangles.

    Of a grid in three dimensions it is the middle plane, of other points there the points.
    """
    lines, places = zip(*(np.unique(column, return_inverse=True) for column in points.T),
                        strict=True)  # fmt: skip
    axes.set_aspect("equal")
    shape = [len(line) for line in lines]
    if math.prod(shape) > MAX_MISSING * len(points):
        if points.shape[1] == 2:
            mesh = _triangles(points)
            return axes.tripcolor(mesh, values, cmap=colours, shading="gouraud", **ends)
        size = min(60.0, max(2.0, 12000 / len(points)))
        return axes.scatter(*points[:, :2].T, c=values, s=size, cmap=colours, lw=0, **ends)
    array = np.full(shape, np.nan)  # points that a grid lacks stay blank
    array[tuple(places)] = values
    if array.ndim == 3:
        array = array[:, :, array.shape[2] // 2]
    return axes.pcolormesh(*lines[:2], array.T, cmap=colours, shading="nearest", **ends)


def _triangles(points: np.ndarray) -> Any:
    """Return triangles of points (n, 2) without those that cross a hole or a bay."""
    from scipy.spatial import KDTree

    mesh = library("matplotlib.tri").Triangulation(*points.T)
    corners = points[mesh.triangles]
    edges = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(1)
    apart = KDTree(points).query(points, 2)[0][:, 1][mesh.triangles].max(1)
    mesh.set_mask(edges > FAR * apart)
    return mesh


def _sensors(sets: Sensors, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places and values of a field's sensors at points, and the points of the others."""
    here = sets.mask[0] & (sets.field[0] == number)
    if sets.weights is None:
        return sets.locations[0][here].numpy(), sets.values[0][here].numpy(), np.empty((0, 1))
    alone = here & sets.at_points[0]
    others = sets.locations[0][here & ~alone][sets.weights[0][here & ~alone] != 0]
    return sets.locations[0][alone][:, 0].numpy(), sets.values[0][alone].numpy(), others.numpy()


def _draw_weighted(axes: Any, points: np.ndarray) -> None:
    """Draw the points of sensors that read combinations: on the axis, or where they lie."""
    if len(points) and points.shape[1] == 1:
        level, how = np.zeros(len(points)), axes.get_xaxis_transform()
        axes.plot(points[:, 0], level, "|", color=ORANGE, ms=10, transform=how, label="weighted")
    elif len(points):
        axes.plot(points[:, 0], points[:, 1], ".", color=ORANGE, ms=6)


def _draw_sensors(axes: Any, figure: Any, posterior: Any) -> None:
    """Draw where sensors stand and what they read: a panel of a picture."""
    sets, read = posterior.sensors, posterior.read
    fields = list(read.values())
    dim = max(field.domain.dim for field in fields)
    coloured = len(fields) == 1 and dim > 1
    for (number, field), marker in zip(read.items(), cycle("osD^v"), strict=False):
        x, y, points = _sensors(sets, number)
        _draw_weighted(axes, points)
        if dim == 1:
            axes.scatter(x[:, 0], y, color=ORANGE, marker=marker, s=36, label=field.label)
        elif coloured:
            how: Any = {"cmap": "cividis", "edgecolors": "black", "s": 70, "zorder": 3}
            figure.colorbar(axes.scatter(x[:, 0], x[:, 1], c=y, **how), ax=axes)
        else:
            axes.scatter(x[:, 0], x[:, 1], marker=marker, s=50, label=field.label)
    names = ", ".join(field.label for field in fields)
    whole = [field for field in fields if field.domain.dim == dim]
    lower = np.min([field.domain.lower for field in whole], 0)
    upper = np.max([field.domain.upper for field in whole], 0)
    pad, labels = 0.03 * (upper - lower), whole[0].axis_labels
    ends = np.stack([lower - pad, upper + pad], 1)
    axes.set(xlim=ends[0], xlabel=labels[0], ylabel=names if dim == 1 else labels[1])
    if dim > 1:
        axes.set(ylim=ends[1], aspect="equal")
        axes.set_title(f"{_counted(sets)} of {names}", fontsize=10)
    if len(fields) > 1:
        axes.legend(frameon=False, fontsize=9)


def report_page(report: Any) -> str:
    """Return a report as one HTML page (`Report.save`)."""
    escape = html.escape
    rows = [_cells(score) for score in report.scores]
    if len({score.field for score in report.scores}) == 1:
        rows = [{name: cell for name, cell in row.items() if name != "field"} for row in rows]
    table = library("pandas").DataFrame(rows).fillna("–")
    shown = {
        "An answer beside the truth": _answered(
            report.example, 0.9, (report.points.numpy(), report.truth.numpy())
        ),
        "Error and CRPS": _errors(report),
        "Coverage: share of truths inside a band, against its level": _coverage(report),
        "Ranks of the truth among samples: even for a calibrated law": _ranks(report),
    }
    figures = (
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{_png(figure)}">'
        f"<figcaption>{escape(text)}.</figcaption></figure>"
        for text, figure in shown.items()
    )
    page = (resources.files("uqsonet.show") / "web" / "report.html").read_text(encoding="utf-8")
    return Template(page).substitute(
        title=escape(report.title),
        remarks="".join(f"<li>{escape(text)}</li>" for text in report.remarks()),
        table=table.to_html(index=False, border=0),
        figures="".join(figures),
        card=escape(str(report.emulator)),
    )


def _cells(score: Any) -> dict[str, str]:
    """Return a row of the page's table by its headings."""
    found = {
        "method": score.method,
        "field": score.field,
        "sensors": str(score.sensors),
        "error of the mean, %": f"{100 * score.err_mean:.1f} ± {100 * score.err_mean_se:.1f}",
        "CRPS": f"{score.crps:.4g}",
        "energy score": f"{score.energy:.4g}",
    }
    for kind in ("plain", "conformal", "whole"):
        for level, share in (getattr(score, kind) or {}).items():
            found[f"{kind} {100 * level:.0f} %"] = f"{100 * share:.0f}"
    known = {"roughness": f"{score.roughness:.2f}", "outside, %": f"{100 * score.outside:.1f}"}
    return found | {name: "" if text == "nan" else text for name, text in known.items()}


def _literal(figure: Any) -> None:
    """Let names and units in a picture be what they are: a dollar begins no formula."""
    for text in figure.findobj(library("matplotlib.text").Text):
        text.set_parse_math(False)


def _png(figure: Any) -> str:
    _literal(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return base64.b64encode(buffer.getvalue()).decode()


def _figure(*size: float) -> Any:
    """Return an empty picture of a width and a height, by default matplotlib's."""
    return library("matplotlib.figure").Figure(figsize=size or None, layout="constrained")


def _methods(report: Any) -> dict[str, list[Any]]:
    """Return the scores of the first field by method."""
    found: dict[str, list[Any]] = {}
    for score in report.scores:
        if score.field == report.scores[0].field:
            found.setdefault(score.method, []).append(score)
    return found


def _errors(report: Any) -> Any:
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    for method, scores in _methods(report).items():
        colour, style = STYLES[method]
        counts = [s.sensors for s in scores]
        errors = [100 * s.err_mean for s in scores]
        bars = [200 * s.err_mean_se for s in scores]
        left.errorbar(counts, errors, bars, color=colour, fmt=style, capsize=3, label=method)
        right.plot(counts, [s.crps for s in scores], style, color=colour, label=method)
    for axes, name in ((left, "error of the mean, %"), (right, "CRPS")):
        axes.set(xlabel="sensors", ylabel=name, ylim=(0, None))
    left.legend(frameon=False)
    return figure


def _coverage(report: Any) -> Any:
    figure = _figure(4.6, 4)
    axes = figure.add_subplot()
    axes.plot([0.4, 1], [0.4, 1], color=GREY, lw=1, label="exact")
    for score, colour in zip(_methods(report)["uqsonet"], cycle(COLOURS), strict=False):
        for kind, style in (("plain", "o--"), ("conformal", "s-")):
            if bands := getattr(score, kind):
                label = f"{kind}, {score.sensors} sensors"
                axes.plot(list(bands), list(bands.values()), style, color=colour, label=label)
    axes.set(xlim=(0.4, 1), ylim=(min(0.4, axes.get_ylim()[0]), 1))
    axes.set(xlabel="level of the band", ylabel="share of truths inside")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _ranks(report: Any) -> Any:
    figure = _figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    for score in _methods(report)["uqsonet"]:
        edges = np.linspace(0, 1, len(score.ranks) + 1)
        left.stairs(score.ranks, edges, label=f"{score.sensors} sensors", lw=1.8)
        bins = max(2, min(10, len(score.functional_ranks) // 5))
        counts = np.histogram(score.functional_ranks, bins, (0, 1))[0]
        share = counts / max(1, counts.sum()) * bins / 10
        right.stairs(share, np.linspace(0, 1, bins + 1), lw=1.8)
    for axes, name in ((left, "single points"), (right, "mean over the domain")):
        axes.axhline(0.1, color=GREY, lw=1)
        axes.set(ylim=(0, None), xlabel="rank of the truth")
        axes.set_title(name, fontsize=10)
    left.set_ylabel("share")
    left.legend(frameon=False)
    return figure
