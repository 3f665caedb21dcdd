"""Answers as pictures, datasets and pages. matplotlib and xarray are in the extra `runs`."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uqsonet.errors import ObservationError
from uqsonet.fields import Grid
from uqsonet.sensors import AXES

if TYPE_CHECKING:
    from uqsonet.field_posterior import FieldPosterior
    from uqsonet.scoring import Report, Score

BLUE, ORANGE, GREY = "#1f5fa8", "#d9661f", "#777777"
"""The answer, the sensors or the truth, and what is beside them."""

SHOWN = 5
"""Sample functions in a picture of one dimension."""


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise ImportError(f"this needs {package}: pip install 'uqsonet[runs]'") from None


def as_dataset(posterior: FieldPosterior, level: float) -> Any:
    """Return mean, std and band as an xarray.Dataset (`FieldPosterior.to_xarray`)."""
    xarray = _library("xarray")
    field, domain = posterior.field, posterior.field.domain
    lower, upper = posterior.band(level)
    values = {"mean": posterior.mean(), "std": posterior.std(), "lower": lower, "upper": upper}
    names = AXES[: domain.dim]
    lead: tuple[str, ...] = () if posterior.single else ("set",)
    if isinstance(domain, Grid):
        dims, shape = names, domain.shape
        coordinates: dict[str, Any] = {
            n: axis.numpy() for n, axis in zip(names, domain.axes(), strict=True)
        }
    else:
        dims, shape = ("point",), (domain.size,)
        points = domain.points().numpy()
        coordinates = {n: ("point", points[:, k]) for k, n in enumerate(names)}
    if lead:
        coordinates["set"] = posterior.sensors.labels
    arrays = {}
    for name, value in values.items():
        array = np.asarray(value).reshape((-1, *shape) if lead else shape)
        arrays[f"{field.name}_{name}"] = ((*lead, *dims), array, {"units": field.units})
    attributes = {"level": level, "sensors": int(posterior.sensors.mask.sum(1).max())}
    return xarray.Dataset(arrays, coordinates, attributes)


def draw(posterior: FieldPosterior, path: object, level: float, title: str | None) -> Any:
    """Draw an answer (`FieldPosterior.plot`)."""
    if not posterior.single:
        raise ObservationError("a picture shows one set of sensors, found a batch")
    figure = _library("matplotlib.figure").Figure(layout="constrained")
    dim = posterior.field.domain.dim
    if dim == 1:
        _draw_line(figure, posterior, level)
    else:
        _draw_maps(figure, posterior, level)
    count = int(posterior.sensors.mask.sum())
    plural = "" if count == 1 else "s"
    figure.suptitle(title or f"{posterior.field.name} given {count} sensor{plural}")
    if path is not None:
        _save(figure, Path(str(path)))
    return figure


def _save(figure: Any, path: Path) -> None:
    from uqsonet.errors import DataError

    kinds = (".png", ".pdf", ".svg")
    if path.suffix.lower() not in kinds:
        raise DataError(f"{path}: pictures end in {', '.join(kinds)}")
    figure.savefig(path, dpi=150)


def _draw_line(figure: Any, posterior: FieldPosterior, level: float, truth: Any = None) -> None:
    """Draw mean, band, some sample functions and sensors along one axis."""
    field = posterior.field
    x = field.domain.points()
    order = x[:, 0].argsort()
    x, line = x[order], x[order, 0].numpy()
    figure.set_size_inches(8, 4.2)
    axes = figure.add_subplot()
    lower, upper = (np.asarray(end) for end in posterior.band(level, x))
    axes.fill_between(line, lower, upper, color=BLUE, alpha=0.2, lw=0, label=f"{level:.0%} band")
    for k, sample in enumerate(np.asarray(posterior.sample(SHOWN, x))):
        axes.plot(line, sample, color=GREY, lw=0.7, alpha=0.8, label="samples" if k == 0 else None)
    axes.plot(line, np.asarray(posterior.mean(x)), color=BLUE, lw=2, label="mean")
    if truth is not None:
        axes.plot(*truth, color=ORANGE, lw=1.5, ls="--", label="truth")
    for place in _sensor_places(posterior):
        axes.axvline(place[0], ymax=0.04, color=ORANGE, lw=2)
    axes.set_xlabel("x")
    axes.set_ylabel(field.label)
    axes.margins(x=0)
    axes.legend(frameon=False, fontsize=9, ncols=2)


def _draw_maps(figure: Any, posterior: FieldPosterior, level: float, truth: Any = None) -> None:
    """Draw maps of mean, std and width of the band; in three dimensions the middle plane."""
    field, domain = posterior.field, posterior.field.domain
    lower, upper = (np.asarray(end) for end in posterior.band(level))
    maps = [("mean", np.asarray(posterior.mean()), "viridis")]
    maps.append(("standard deviation", np.asarray(posterior.std()), "magma"))
    maps.append((f"width of the {level:.0%} band", upper - lower, "magma"))
    if truth is not None:
        maps.insert(1, ("truth", np.asarray(truth), "viridis"))
    figure.set_size_inches(4.1 * len(maps), 4)
    places = _sensor_places(posterior)
    same = np.concatenate([m[1] for m in maps if m[2] == "viridis"])
    for axes, (name, values, colours) in zip(
        np.atleast_1d(figure.subplots(1, len(maps))), maps, strict=True
    ):
        limits = {"vmin": same.min(), "vmax": same.max()} if colours == "viridis" else {}
        mesh, note = _map(axes, domain, values, colours, limits)
        figure.colorbar(mesh, ax=axes, shrink=0.8)
        if len(places):
            axes.scatter(
                places[:, 0], places[:, 1], s=22, color="white", edgecolors=ORANGE, linewidths=1.6
            )
        axes.set_title(f"{name} of {field.label}{note}", fontsize=10)
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        axes.set_aspect("equal")


def _map(axes: Any, domain: Any, values: np.ndarray, colours: str, limits: Any) -> tuple[Any, str]:
    if isinstance(domain, Grid):
        x, y, *z = (axis.numpy() for axis in domain.axes())
        array, note = values.reshape(domain.shape), ""
        if z:
            middle = len(z[0]) // 2
            array, note = array[:, :, middle], f" at z = {z[0][middle]:.3g}"
        return axes.pcolormesh(x, y, array.T, cmap=colours, shading="nearest", **limits), note
    points = domain.points().numpy()
    size = max(4, 4000 / len(points))
    shown = axes.scatter(points[:, 0], points[:, 1], c=values, s=size, cmap=colours, **limits)
    return shown, " (seen along z)" if domain.dim == 3 else ""


def _sensor_places(posterior: FieldPosterior) -> np.ndarray:
    sets = posterior.sensors
    return sets.locations[0][sets.mask[0]].numpy()


def report_page(report: Report) -> str:
    """Return a report as one HTML page (`Report.save`)."""
    rows = report.rows()
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{html.escape(_heading(name))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(r.get(n, '–')))}</td>" for n in names) + "</tr>"
        for r in rows
    )
    pictures = [
        ("An answer beside the truth", _example(report)),
        ("Error and CRPS", _errors(report)),
        ("Coverage: share of truths inside a band, against its level", _coverage(report)),
        ("Ranks of the truth among samples: even for a calibrated law", _ranks(report)),
    ]
    figures = "".join(
        f'<figure><img alt="{html.escape(t)}" src="data:image/png;base64,{_png(f)}">'
        f"<figcaption>{html.escape(t)}.</figcaption></figure>"
        for t, f in pictures
    )
    remarks = "".join(f"<li>{html.escape(text)}</li>" for text in report.remarks())
    card = html.escape(str(report.emulator))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{html.escape(report.title)}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
 color: #1b1b1b; background: #fff }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }}
th, td {{ padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd }}
th {{ vertical-align: bottom }}
img {{ max-width: 100%; height: auto }}
figure {{ margin: 1.5rem 0 }}
pre {{ overflow-x: auto; background: #f5f5f5; padding: 1rem; font-size: 13px }}
</style></head><body>
<h1>Validation</h1>
<p>{html.escape(report.title)}. The model has not seen these runs.</p>
<ul>{remarks}</ul>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
<p>Errors of the mean are relative L2 errors in percent, with their standard error. CRPS and energy
score are in the units of the field; less is better. <em>Plain</em> bands are those of the law,
<em>conformal</em> ones are widened by the calibration runs, <em>whole</em> ones should hold the
whole function. <em>sensor_free</em> is the law before any measurement, <em>cokriging</em> the best
linear predictor from the same runs.</p>
{figures}
<h2>The model</h2><pre>{card}</pre>
</body></html>
"""


def _heading(name: str) -> str:
    known = {"err_mean": "error of the mean, %", "err_mean_se": "±", "crps": "CRPS"}
    if name in known:
        return known[name]
    kind, _, level = name.rpartition("_")
    return f"{kind} {level} %" if level.isdigit() else name


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return base64.b64encode(buffer.getvalue()).decode()


def _figure(width: float, height: float) -> Any:
    return _library("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def _example(report: Report) -> Any:
    figure = _figure(8, 4)
    posterior, domain = report.example, report.example.field.domain
    truth, points = report.truth.numpy(), report.points
    if domain.dim == 1:
        order = points[:, 0].argsort()
        _draw_line(figure, posterior, 0.9, (points[order, 0].numpy(), truth[order]))
    else:
        same = points.shape == domain.points().shape and torch.equal(points, domain.points())
        _draw_maps(figure, posterior, 0.9, truth if same else None)
    return figure


def _methods(report: Report) -> dict[str, list[Score]]:
    first = report.scores[0].field
    found: dict[str, list[Score]] = {}
    for score in report.scores:
        if score.field == first:
            found.setdefault(score.method, []).append(score)
    return found


def _errors(report: Report) -> Any:
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    styles = {"uqsonet": (BLUE, "o-"), "cokriging": (ORANGE, "s--"), "sensor_free": (GREY, "^:")}
    for method, scores in _methods(report).items():
        colour, style = styles[method]
        counts = [s.sensors for s in scores]
        errors = [100 * s.err_mean for s in scores]
        bars = [200 * s.err_mean_se for s in scores]
        left.errorbar(counts, errors, bars, color=colour, fmt=style, capsize=3, label=method)
        right.plot(counts, [s.crps for s in scores], style, color=colour, label=method)
    left.set_ylabel("error of the mean, %")
    right.set_ylabel("CRPS")
    for axes in (left, right):
        axes.set_xlabel("sensors")
        axes.set_ylim(bottom=0)
    left.legend(frameon=False)
    return figure


def _coverage(report: Report) -> Any:
    figure = _figure(4.6, 4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=GREY, lw=1, label="exact")
    for k, score in enumerate(_methods(report)["uqsonet"]):
        colour = (BLUE, ORANGE, "#2c8c4a", "#8a4fa3")[k % 4]
        for kind, style in (("plain", "o--"), ("conformal", "s-")):
            bands = getattr(score, kind)
            if bands:
                label = f"{kind}, {score.sensors} sensors"
                axes.plot(list(bands), list(bands.values()), style, color=colour, label=label)
    axes.set_xlabel("level of the band")
    axes.set_ylabel("share of truths inside")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _ranks(report: Report) -> Any:
    figure = _figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    scores = _methods(report)["uqsonet"]
    for score in scores:
        edges = np.linspace(0, 1, len(score.ranks) + 1)
        left.stairs(score.ranks, edges, label=f"{score.sensors} sensors", lw=1.8)
        bins = max(2, min(10, len(score.functional_ranks) // 5))
        counts = np.histogram(score.functional_ranks, bins, (0, 1))[0]
        share = counts / max(1, counts.sum()) * bins / 10
        right.stairs(share, np.linspace(0, 1, bins + 1), lw=1.8)
    for axes, name in ((left, "single points"), (right, "mean over the domain")):
        axes.axhline(0.1, color=GREY, lw=1)
        axes.set_ylim(bottom=0)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("rank of the truth")
    left.set_ylabel("share")
    left.legend(frameon=False)
    return figure
