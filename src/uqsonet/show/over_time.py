"""Answers over time as pictures and films. matplotlib is in the extra `runs`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.files import atomic_path, path_of
from uqsonet.show.pictures import BLUE, GREY, ORANGE, _figure, _map, _saved

SHOWN_POINTS = 6  # points of a cloud whose lines over time are drawn
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


def _strips(answer: Any, truth: np.ndarray | None) -> Any:
    """Draw mean, std and truth of a field on a line as maps of place and time."""
    mean, std = np.asarray(answer.mean()), np.asarray(answer.std())
    x, times = answer.field.domain.points()[:, 0].numpy(), answer.times
    parts = [("mean", mean, "viridis"), ("standard deviation", std, "magma")]
    if truth is not None:
        parts.insert(1, ("truth", truth, "viridis"))
    figure = _figure(3.6 * len(parts), 3.6)
    ends = mean.min(), mean.max()
    for k, (name, values, colours) in enumerate(parts):
        axes = figure.add_subplot(1, len(parts), k + 1)
        low, high = ends if name != "standard deviation" else (0.0, std.max())
        drawn = axes.pcolormesh(times, x, values.T, cmap=colours, vmin=low, vmax=high)
        figure.colorbar(drawn, ax=axes)
        axes.set(title=name, xlabel="time", ylabel=answer.field.axis_labels[0])
        axes.tick_params(axis="x", labelrotation=30)
        if name == "mean":
            there, row = answer.sensors.mask.numpy().nonzero()
            places = answer.sensors.locations[..., 0].numpy()
            axes.plot(times[there], places[there, row], ".", color=ORANGE, markersize=3)
    return figure


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
    mean, std = np.asarray(answer.mean()), np.asarray(answer.std())
    domain, ends = answer.field.domain, (mean.min(), mean.max())
    parts = [("mean", mean, "viridis", ends)]
    if truth is not None:
        parts.append(("truth", truth, "viridis", ends))
    parts.append(("standard deviation", std, "magma", (0.0, std.max())))
    line, points = domain.dim == 1, domain.points().numpy()
    figure = _figure(6.5, 4) if line else _figure(3.8 * len(parts), 3.8)

    def drawn() -> Iterator[None]:
        for t, time in enumerate(answer.times):
            figure.clear()
            if line:
                _line_now(figure.add_subplot(), points[:, 0], mean[t], std[t], truth, t, ends)
            for k, (name, values, colours, (low, high)) in enumerate([] if line else parts):
                axes = figure.add_subplot(1, len(parts), k + 1)
                shown = _map(axes, points, values[t], colours, {"vmin": low, "vmax": high})
                figure.colorbar(shown, ax=axes, shrink=0.7)
                axes.set_title(name)
            figure.suptitle(f"{answer.field.label}, time {time}")
            yield

    return figure, drawn()


def _line_now(
    axes: Any, x: np.ndarray, mean: np.ndarray, std: np.ndarray, truth: np.ndarray | None, t: int,
    ends: tuple[float, float],
) -> None:  # fmt: skip
    """Draw a field on a line at one instant: mean, two standard deviations, truth."""
    axes.fill_between(x, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.25)
    axes.plot(x, mean, color=BLUE)
    if truth is not None:
        axes.plot(x, truth[t], "--", color=GREY)
    margin = 0.2 * (ends[1] - ends[0])
    axes.set_ylim(ends[0] - margin, ends[1] + margin)
