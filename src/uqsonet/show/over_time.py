"""Answers over time as pictures and films. matplotlib is in the extra `runs`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.files import atomic_path, path_of
from uqsonet.show.pictures import (
    BLUE,
    GREY,
    ORANGE,
    _draw_readings,
    _figure,
    _map,
    _saved,
    bar,
    dots,
)

SHOWN_POINTS = 6  # points of a cloud whose lines over time are drawn
LEVEL = 0.9  # of the band in a film
FILMS = (".gif", ".mp4")


def draw_over_time(
    answer: Any, path: object, level: float, title: str | None, truth: object
) -> Any:
    """Draw an answer over time (`OverTime.plot`)."""
    domain, true = answer.field.domain, None if truth is None else np.asarray(truth)
    shown = answer.field.label
    if domain.dim == 1 and domain.size > 1:
        figure = _strips(answer, true)
    else:
        figure = _lines(answer, level, true)
    figure.suptitle(title or f"{shown} over time, given {int(answer.sensors.mask.sum())} readings")
    return _saved(figure, path)


def _read(answer: Any, t: slice | int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return instants (k,), places (k, d) and values (k,) at which the field itself is read."""
    sets, number = answer.sensors[np.atleast_1d(np.arange(len(answer.path))[t])], answer.number
    there, row = (sets.mask & (sets.field == number)).nonzero(as_tuple=True)
    places = sets.locations if sets.weights is None else sets.locations[:, :, 0]
    return there.numpy(), places[there, row].numpy(), sets.values[there, row].numpy()


def _strips(answer: Any, truth: np.ndarray | None) -> Any:
    """Draw mean, std and truth of a field on a line as maps of place and time."""
    x, times = answer.field.domain.points()[:, 0].numpy(), answer.times
    order, parts = x.argsort(), _parts(answer, truth)
    figure, drawn, dates = _figure(3.6 * len(parts), 3.6), [], library("matplotlib.dates")
    panels = figure.subplots(1, len(parts))
    there, places, read = _read(answer, slice(None))
    for axes, (name, values, colours, (low, high)) in zip(panels, parts, strict=True):
        how = {"cmap": colours, "vmin": low, "vmax": high}
        drawn.append(axes.pcolormesh(times, x[order], values.T[order], **how))
        axes.set(title=name, xlabel="time", ylabel=answer.field.axis_labels[0])
        axes.tick_params(axis="x", labelrotation=30)
        if times.dtype.kind == "M":
            axes.xaxis.set_major_locator(dates.AutoDateLocator(maxticks=5))
            axes.xaxis.set_major_formatter(
                dates.ConciseDateFormatter(axes.xaxis.get_major_locator())
            )
        dots(axes, times[there], places[:, 0], read, drawn[0], 9)
    _bars(figure, answer, panels, drawn)
    return figure


def _bars(figure: Any, answer: Any, panels: Any, drawn: list[Any]) -> None:
    """Draw one bar of colours for mean and truth, and that of the standard deviation."""
    for shown, beside in ((drawn[0], panels[:-1]), (drawn[-1], panels[-1:])):
        bar(figure, shown, list(beside), answer.field)


def _parts(answer: Any, truth: np.ndarray | None) -> list[tuple[str, np.ndarray, str, Any]]:
    """Return what maps show (T, M), by name: values, colours, and the ends of these."""
    mean, std = np.asarray(answer.mean()), np.asarray(answer.std())
    every = [mean] if truth is None else [mean, truth]
    ends = min(map(np.min, every)), max(map(np.max, every))
    shown = [
        (name, one, "viridis", ends) for name, one in zip(("mean", "truth"), every, strict=False)
    ]
    return [*shown, ("standard deviation", std, "magma", (0.0, std.max()))]


def _lines(answer: Any, level: float, truth: np.ndarray | None) -> Any:
    """Draw the band of a single number, or of some points, over time."""
    size = answer.field.domain.size
    some = np.linspace(0, size - 1, min(size, SHOWN_POINTS)).astype(int)
    points = answer.field.domain.points()[some]
    mean = np.asarray(answer.mean(points))
    lower, upper = (np.asarray(one) for one in answer.band(level, points))
    figure = _figure(7.5, 1.8 * len(some) + 0.8)
    for k, number in enumerate(some):
        axes = figure.add_subplot(len(some), 1, k + 1)
        axes.fill_between(answer.times, lower[:, k], upper[:, k], color=BLUE, alpha=0.25,
                          label=f"{100 * level:g} % band")  # fmt: skip
        axes.plot(answer.times, mean[:, k], color=BLUE, label="mean")
        if truth is not None:
            axes.plot(answer.times, truth[:, number], "--", color=GREY, label="truth")
        where = ", ".join(f"{c:.4g}" for c in points[k].tolist())
        axes.set(ylabel=answer.field.label, title=f"at {where}" if size > 1 else "")
        axes.tick_params(axis="x", labelrotation=20)
    figure.axes[0].legend(fontsize="small")
    figure.axes[-1].set_xlabel("time")
    return figure


def film(answer: Any, path: object, truth: object, rate: int) -> None:
    """Write an answer over time as a film (`OverTime.film`)."""
    animation = library("matplotlib.animation", "runs")
    target = path_of(path, "written")  # type: ignore[arg-type]
    if target.suffix.lower() not in FILMS:
        raise ObservationError(f"{target}: films end in {' or '.join(FILMS)}")
    writer = animation.PillowWriter if target.suffix.lower() == ".gif" else animation.FFMpegWriter
    if not writer.isAvailable():
        raise ObservationError(f"{target}: ffmpeg is not there; a .gif needs none")
    figure, frames = _frames(answer, None if truth is None else np.asarray(truth))
    with tempfile.TemporaryDirectory() as folder:
        written, made = Path(folder) / f"film{target.suffix}", writer(fps=rate)
        made.setup(figure, str(written), 100)
        for _ in frames:
            made.grab_frame()
        made.finish()
        with atomic_path(target) as temporary:
            temporary.write_bytes(written.read_bytes())


def _frames(answer: Any, truth: np.ndarray | None) -> tuple[Any, Iterator[None]]:
    """Return a figure, and what draws one instant after another into it."""
    field = answer.field
    if field.domain.size == 1:
        raise ObservationError(f"{field.name} is a single number: plot shows it over time")
    line = field.domain.dim == 1
    figure = _figure(6.5, 4) if line else _figure(4.2 * (2 if truth is None else 3), 3.8)
    drawn = (_line_now if line else _maps_now)(figure, answer, truth)

    def titled() -> Iterator[None]:
        for time, _ in zip(answer.times, drawn, strict=True):
            figure.suptitle(f"{field.label}, time {time}")
            yield

    return figure, titled()


def _line_now(figure: Any, answer: Any, truth: np.ndarray | None) -> Iterator[None]:
    """Draw a field on a line at each instant: mean, band, truth, and where sensors read it."""
    field, x = answer.field, answer.field.domain.points()[:, 0].numpy()
    order, mean = x.argsort(), np.asarray(answer.mean())
    lower, upper = map(np.asarray, answer.band(LEVEL))
    every = [lower, upper] if truth is None else [lower, upper, truth]
    ends = min(map(np.min, every)), max(map(np.max, every))
    margin = 0.05 * (ends[1] - ends[0])
    for t in range(len(mean)):
        figure.clear()
        axes = figure.add_subplot()
        band = lower[t][order], upper[t][order]
        axes.fill_between(x[order], *band, color=BLUE, alpha=0.25, label=f"{100 * LEVEL:g} % band")
        axes.plot(x[order], mean[t][order], color=BLUE, label="mean")
        if truth is not None:
            axes.plot(x[order], truth[t][order], "--", color=GREY, label="truth")
        for place in _read(answer, t)[1][:, 0]:
            axes.axvline(place, color=ORANGE, lw=0.8)
        axes.set(xlabel=field.axis_labels[0], ylabel=field.label)
        axes.set_ylim(ends[0] - margin, ends[1] + margin)
        axes.legend(frameon=False, fontsize="small", ncols=3, loc="upper right")
        yield


def _maps_now(figure: Any, answer: Any, truth: np.ndarray | None) -> Iterator[None]:
    """Draw maps of mean, truth and std at each instant, and where sensors read the field."""
    parts, points = _parts(answer, truth), answer.field.domain.points().numpy()
    for t in range(len(answer.path)):
        figure.clear()
        panels, drawn = figure.subplots(1, len(parts)), []
        for axes, (name, values, colours, (low, high)) in zip(panels, parts, strict=True):
            ends = {"vmin": low, "vmax": high}
            drawn.append(_map(axes, answer.field, points, values[t], colours, ends))
            axes.set(title=name)
            _draw_readings(axes, answer.sensors[np.array([t])], answer.number, drawn[0])
        _bars(figure, answer, panels, drawn)
        yield
