"""Answers as pictures and pages. matplotlib is in the extra `runs`."""

from __future__ import annotations

import base64
import html
import io
import math
import textwrap
from importlib import resources
from itertools import cycle
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.fields.cloud import stretch, triangles
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
SHOWN_SAMPLES = 5  # sample functions in a picture of one dimension
SHOWN_FIELDS = 4  # fields that sensors read, each with a panel of its own
RUNS = 3  # runs in a picture of runs


def draw(
    posterior: Any, path: object, level: float, title: str | None, truth: object, x: Any
) -> Any:
    """Draw an answer at points x (m, d), a tensor (`FieldPosterior.plot`)."""
    if not posterior.single:
        raise ObservationError("a picture shows one set of sensors, found a batch")
    figure = _answered(posterior, level, _true(posterior, truth), x)
    count = _counted(int(posterior.sensors.mask.sum()))
    figure.suptitle(title or f"{posterior.field.name} given {count}")
    return _saved(figure, path)


def _counted(count: int) -> str:
    """Return in words how many sensors there are."""
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
        _titled(axes, f"expected reduction by a sensor of {name}")
        if dim == 1:
            order = x[:, 0].argsort()
            for k, line in enumerate(reduction):
                axes.plot(x[order, 0], line[order], lw=1.2, label=f"step {k + 1}")
            label = placement.read[name].axis_labels[0]
            axes.set(xlabel=label, ylabel=f"reduction of the variance of {placement.target}")
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False, fontsize=8)
            heights = placement.reduction[chosen, placement.chosen[taken]], np.zeros(len(known))
        else:
            figure.colorbar(
                _map(axes, placement.read[name], x, reduction[0], "viridis", {"vmin": 0}), ax=axes
            )
            heights = places[:, 1], known[:, 1]
        axes.plot(known[:, 0], heights[1], "s", color=GREY, mec="white", clip_on=False)
        axes.plot(places[:, 0], heights[0], "o", color=ORANGE, mec="white", ms=11)
        for k, *at in zip(chosen, places[:, 0], heights[0], strict=True):
            axes.annotate(str(k + 1), at, ha="center", va="center", fontsize=8)
    figure.suptitle(textwrap.fill(f"where to measure for {placement.target}", 40 * len(names)))
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
        ends = {"vmin": float(np.nanmin(values)), "vmax": float(np.nanmax(values))}
        labels = field.label, *field.axis_labels
        for number, (axes, row) in enumerate(zip(panels, values, strict=True)):
            _titled(axes, f"{name}, run {number}")
            if one.domain.dim == 1:
                order = points[:, 0].argsort()
                axes.plot(points[order, 0], row[order], color=BLUE)
                axes.set(xlabel=labels[1], ylabel="" if number else textwrap.fill(labels[0], 30))
            else:
                drawn = _map(axes, field, points, row, "viridis", ends)
                axes.set_ylabel("" if number else labels[2])
                if number == shown - 1:
                    bar(figure, drawn, panels.tolist(), field)
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


def _answered(posterior: Any, level: float, truth: Values | None, x: Any) -> Any:
    """Return a picture of an answer at points x (m, d), a tensor."""
    figure, domain = _figure(), posterior.field.domain
    if domain.size == 1:
        _draw_number(figure, posterior, level, truth)
    else:
        one = _draw_line if domain.dim == 1 else _draw_maps
        one(figure, posterior, level, truth, x)
    return figure


def _draw_number(figure: Any, posterior: Any, level: float, truth: Values | None) -> None:
    """Draw what is read, and beside it histograms of a single number, with and without them."""
    field, sets = posterior.field, posterior.sensors
    others = _read(posterior, False)
    figure.set_size_inches(5.5 * (len(others) + 1), 4.5)
    *panels, axes = figure.subplots(1, len(others) + 1, squeeze=False)[0]
    for panel, number in zip(panels, others, strict=True):
        _draw_read(panel, posterior, number)
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


def _draw_line(figure: Any, posterior: Any, level: float, truth: Values | None, x: Any) -> None:
    """Draw what is read, and below it mean, band and some sample functions along one axis."""
    field = posterior.field
    x = x[x[:, 0].argsort()]
    line = x[:, 0].numpy()
    others = _read(posterior, False)
    figure.set_size_inches(8, 4 + 2.5 * len(others))
    heights = [2.5] * len(others) + [4]
    *above, axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for panel, number in zip(above, others, strict=True):
        _draw_read(panel, posterior, number)
    lower, upper = (np.asarray(end) for end in posterior.band(level, x))
    name = f"{100 * level:g} % band"
    axes.fill_between(line, lower, upper, color=BLUE, alpha=0.2, lw=0, label=name)
    for k, sample in enumerate(np.asarray(posterior.sample(SHOWN_SAMPLES, x))):
        axes.plot(line, sample, color=GREY, lw=0.7, alpha=0.8, label="samples" if k == 0 else None)
    axes.plot(line, np.asarray(posterior.mean(x)), color=BLUE, lw=2, label="mean")
    if truth is not None:
        known = ~np.isnan(truth[1])
        there, values = truth[0][known, 0], truth[1][known]
        order = there.argsort()
        axes.plot(there[order], values[order], color=ORANGE, lw=1.5, ls="--", label="truth")
    for number in _read(posterior, True):
        _draw_readings(axes, posterior.sensors, number)
    axes.set(xlabel=field.axis_labels[0], ylabel=textwrap.fill(field.label, 30))
    axes.margins(x=0)
    axes.legend(frameon=False, fontsize=9, ncols=5, loc="lower right", bbox_to_anchor=(1, 1))


def _draw_maps(figure: Any, posterior: Any, level: float, truth: Values | None, x: Any) -> None:
    """Draw maps of mean, truth or a sample, std and the ends of the band, and what sensors read."""
    field = posterior.field
    points = x.numpy()
    lower, upper = (np.asarray(end) for end in posterior.band(level, x))
    if truth is None:
        other = "one function of the law", points, np.asarray(posterior.sample(1, x))[0]
    else:
        other = "truth", *truth
    shared = [
        ("mean", points, np.asarray(posterior.mean(x))),
        other,
        (f"lower end of the {100 * level:g} % band", points, lower),
        (f"upper end of the {100 * level:g} % band", points, upper),
    ]
    every = np.concatenate([values for _, _, values in shared])
    ends = {"vmin": float(np.nanmin(every)), "vmax": float(np.nanmax(every))}
    wide, high = np.ptp(points[:, :2] / stretch(points[:, :2]), axis=0)
    others = _read(posterior, False)
    left, right = [*map(str, others), "std"], [("mean", "other"), ("lower", "upper")]
    size = min(7.0, max(3.6, 2.0 + 5.0 * high / wide))
    figure.set_size_inches(12, size * max(1.0, len(left) / 2))
    panels = figure.subplot_mosaic(
        [[left[row // 2], *right[row // len(left)]] for row in range(2 * len(left))]
    )
    for number in others:
        _draw_read(panels[str(number)], posterior, number)
    spread = np.asarray(posterior.std(x))
    drawn = _map(panels["std"], field, points, spread, "magma", {"vmin": 0})
    _titled(panels["std"], "standard deviation")
    bar(figure, drawn, panels["std"], field, min(1.0, len(left) / 2))
    maps = [panels[name] for names in right for name in names]
    for axes, (title, places, values) in zip(maps, shared, strict=True):
        drawn = _map(axes, field, places, values, "viridis", ends)
        _titled(axes, title)
    bar(figure, drawn, maps, field)
    for number in _read(posterior, True):
        for axes in (panels["std"], *maps[:2]):
            _draw_readings(axes, posterior.sensors, number, drawn)
    if points.shape[1] == 3:
        panels["std"].annotate("in the middle plane of z", (0, -0.25), xycoords="axes fraction")


def _map(
    axes: Any, field: Field | None, points: np.ndarray, values: np.ndarray, colours: str, ends: Any
) -> Any:
    """Draw values at points (n, 2) or (n, 3): a grid by its cells, a mesh by triangles.

    Of a grid in three dimensions it is the middle plane, of other points there the points. Axes of
    one unit have one scale, unless the map would be a strip.
    """
    apart = np.ptp(stretch(points[:, :2])) > 0
    if field is not None:
        labels = field.axis_labels[:2]
        apart |= len({label.partition(" [")[2] for label in labels}) > 1
        axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_aspect("auto" if apart else "equal")
    lines, places = zip(*(np.unique(column, return_inverse=True) for column in points.T),
                        strict=True)  # fmt: skip
    shape = [len(line) for line in lines]
    if math.prod(shape) > MAX_MISSING * len(points):
        known = ~np.isnan(values)
        points, values = points[known], values[known]
        if points.shape[1] == 2 and len(points) > 3:
            mesh = library("matplotlib.tri").Triangulation(*points.T, _triangles(field, points))
            return axes.tripcolor(mesh, values, cmap=colours, shading="gouraud", **ends)
        size = min(60.0, max(2.0, 12000 / len(points)))
        return axes.scatter(*points[:, :2].T, c=values, s=size, cmap=colours, lw=0, **ends)
    array = np.full(shape, np.nan)  # points that a grid lacks stay blank
    array[tuple(places)] = values
    if array.ndim == 3:
        array = array[:, :, array.shape[2] // 2]
    return axes.pcolormesh(*lines[:2], array.T, cmap=colours, shading="nearest", **ends)


def _triangles(field: Field | None, points: np.ndarray) -> np.ndarray:
    """Return triangles (t, 3) of points (n, 2): those of the field's mesh, if they are its own."""
    layout = None if field is None else field.layout
    own = None if layout is None else layout.triangles
    if own is not None and np.array_equal(points, field.domain.points()):  # type: ignore[union-attr]
        return own
    mesh, inside = triangles(points)
    return mesh.simplices[inside]


def _sensors(sets: Sensors, number: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places and values of a field's sensors at points, and the points of the others."""
    here = sets.mask[0] & (sets.field[0] == number)
    places, values = sets.locations[0][..., :dim], sets.values[0]
    if sets.weights is None:
        return places[here].numpy(), values[here].numpy(), np.empty((0, dim))
    alone = here & sets.at_points[0]
    others = places[here & ~alone][sets.weights[0][here & ~alone] != 0]
    return places[alone][:, 0].numpy(), values[alone].numpy(), others.numpy()


def _read(posterior: Any, own: bool) -> list[int]:
    """Return the numbers of fields that sensors read: of the one answered, or of some others."""
    name = posterior.field.name
    found = [number for number, one in posterior.read.items() if (one.name == name) == own]
    return found[:SHOWN_FIELDS]


def _draw_readings(axes: Any, sets: Sensors, number: int, drawn: Any = None) -> None:
    """Draw what sensors read of a field: along a line, or in the colours of a map of it."""
    x, y, points = _sensors(sets, number, 1 if drawn is None else 2)
    if drawn is None:
        axes.scatter(x[:, 0], y, color=ORANGE, s=36, zorder=3, label="sensors")
        if len(points):  # sensors that read combinations stand on the axis
            axes.plot(points[:, 0], np.zeros(len(points)), "|", color=ORANGE, ms=10,
                      transform=axes.get_xaxis_transform(), label="weighted")  # fmt: skip
        return
    axes.scatter(*points.T, color=ORANGE, s=9)
    dots(axes, x[:, 0], x[:, 1], y, drawn, 50)


def dots(axes: Any, x: Any, y: Any, values: np.ndarray, drawn: Any, size: float) -> None:
    """Draw readings in the colours of a map, with an edge that is seen on any colour."""
    shown: Any = {"zorder": 3, "clip_on": False}
    axes.scatter(x, y, color="black", s=1.6 * size, lw=0, **shown)
    shown |= {"cmap": drawn.cmap, "norm": drawn.norm, "edgecolors": "white"}
    axes.scatter(x, y, c=values, s=size, lw=0.15 * size**0.5, **shown)


def _draw_read(axes: Any, posterior: Any, number: int) -> None:
    """Draw the mean of a field that sensors read, and what they read: a panel of a picture."""
    field, sets = posterior.read[number], posterior.sensors
    points, mean = field.domain.points().numpy(), np.asarray(posterior[field.name].mean())
    count = int((sets.mask & (sets.field == number)).sum())
    alone = len(points) == 1 and count > 0  # a number that is read has no other mean to speak of
    _titled(axes, f"{_counted(count)} of {field.name}" + ("" if alone else ", and its mean"))
    if field.domain.dim == 1:
        order = points[:, 0].argsort()
        if not alone:
            axes.plot(points[order, 0], mean[order], "." if len(order) == 1 else "-", color=BLUE)
        axes.set(xlabel=field.axis_labels[0], ylabel=textwrap.fill(field.label, 30))
        axes.margins(x=0)
        _draw_readings(axes, sets, number)
    else:
        drawn = _map(axes, field, points, mean, "viridis", {})
        bar(axes.figure, drawn, axes, field)
        _draw_readings(axes, sets, number, drawn)


def _titled(axes: Any, text: str) -> None:
    axes.set_title(textwrap.fill(text, 44), fontsize=10)


def bar(figure: Any, drawn: Any, panels: Any, field: Field, shrink: float = 1.0) -> None:
    """Draw the bar of a field's colours beside the maps that have them."""
    label = textwrap.fill(field.label, 24)
    figure.colorbar(drawn, ax=panels, label=label, aspect=30, shrink=shrink)


def report_page(report: Any) -> str:
    """Return a report as one HTML page (`Report.save`)."""
    escape = html.escape
    rows = [_cells(score) for score in report.scores]
    if len({score.field for score in report.scores}) == 1:
        rows = [{name: cell for name, cell in row.items() if name != "field"} for row in rows]
    table = library("pandas").DataFrame(rows).fillna("–")
    shown = {
        "An answer beside the truth": _answered(
            report.example,
            0.9,
            (report.points.numpy(), report.truth.numpy()),
            report.example.field.domain.points(),
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
        axes.set_xticks(sorted({score.sensors for score in report.scores}))
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
