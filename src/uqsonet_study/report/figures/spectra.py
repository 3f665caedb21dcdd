"""The figure of sample functions: some of them, and how their power is spread over wave numbers.

A law with the right mean and std may still draw functions that are too smooth or too rough, or
whose points do not belong together. Spectra are those of deviations from the reference mean, by
the cosine transform, averaged over samples and over the paper's observation sets of one size; in
the plane over all directions. Both laws are cut at the same points, those of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.fft import dctn

from uqsonet.errors import DataError
from uqsonet.fields import Grid
from uqsonet_study.report.figures.chosen import Chosen
from uqsonet_study.report.figures.sets import FUNCTION, load_test
from uqsonet_study.report.figures.style import BLUE, RED, new_figure, save, styled
from uqsonet_study.report.names import problem_title

SHOWN = 5
"""Sample functions drawn."""

FLOOR = 1e-11
"""Power below this share of the largest is rounding of stored single-precision samples."""


@dataclass(frozen=True)
class Drawn:
    """Samples of both laws for one problem.

    Attributes
    ----------
    title : str
    symbol : str
        Of the line along which functions are drawn.
    line : ndarray, shape (k,)
    reference, predicted : ndarray, shape (SHOWN, k)
        Samples along the line given the first test function's sensors.
    spectra : tuple of ndarray, shape (K,)
        Power at wave numbers 1..K of the reference and of the model.
    method : str
    """

    title: str
    symbol: str
    line: np.ndarray
    reference: np.ndarray
    predicted: np.ndarray
    spectra: tuple[np.ndarray, np.ndarray]
    method: str


def spectra_figure(panels: Sequence[Chosen], scale: str, out_pdf: Path, out_png: Path) -> None:
    """Draw sample functions and spectra, one column a panel.

    Parameters
    ----------
    panels : sequence of Chosen
        References must hold samples.
    scale : {"full", "smoke"}
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If files do not belong together, no set has that many sensors, or there are no samples.
    """
    drawn = [_samples(chosen) for chosen in panels]
    with styled():
        save(draw_spectra(drawn), scale, out_pdf, out_png)


def power(samples: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the mean power of samples (n, M) on a grid at wave numbers 1, 2, ....

    Coefficients of the orthonormal cosine transform; in the plane wave number k gathers those
    whose |(k_x, k_y)| rounds to k. Numbers reach as far as the shorter side of the grid does.
    """
    axes = tuple(range(1, 1 + grid.dim))
    waves = dctn(samples.reshape(-1, *grid.shape), axes=axes, norm="ortho", workers=1)
    squares = np.square(np.asarray(waves)).mean(0)
    lengths = np.sqrt(sum(np.square(k) for k in np.indices(grid.shape)))
    number = np.rint(lengths).astype(int)
    return np.bincount(number.ravel(), squares.ravel())[1 : min(grid.shape)]


def _samples(chosen: Chosen) -> Drawn:
    data, reference, noise_std = load_test(chosen.functions, chosen.reference)
    if reference.samples is None:
        raise DataError(f"{chosen.reference}: holds no samples, so no spectra can be drawn")
    sets = (reference.observations.counts == chosen.sensors).nonzero()[:, 0].tolist()
    first = [s for s in sets if int(reference.function[s]) == FUNCTION]
    if not first:
        raise DataError(f"{chosen.reference}: no observation set with {chosen.sensors} sensors")
    problem = data.problem
    grid, kept = problem.training_grid()
    line = _middle(grid)
    shown: list[np.ndarray] = []
    total = [np.zeros(min(grid.shape) - 1) for _ in range(2)]
    for s in sets:
        o = reference.observations[s : s + 1]
        posterior = chosen.model.condition(o.locations, o.values, o.mask, noise_std)
        theirs = reference.samples[s].double()
        generator = torch.Generator().manual_seed(s)
        ours = posterior.sample(len(theirs), grid.points(), generator)[0].double()
        for k, law in enumerate((theirs, ours)):
            total[k] += power((law - reference.mean[s, kept]).numpy(), grid) / len(sets)
            if s == first[0]:
                shown.append(law[:SHOWN, line].numpy())
    title = f"{problem_title(problem.name)}\n$m = {chosen.sensors}$"
    symbol = "x" if grid.dim == 1 else f"x, y = {grid.points()[line[0], 1]:.2g}"
    places = grid.points()[line, 0].numpy()
    spectra = total[0], total[1]
    return Drawn(title, symbol, places, shown[0], shown[1], spectra, chosen.method)


def _middle(grid: Grid) -> torch.Tensor:
    """Return the grid points along the first axis, halfway up the second."""
    points = torch.arange(len(grid.points())).reshape(grid.shape)
    return points if grid.dim == 1 else points[:, grid.shape[1] // 2]


def draw_spectra(drawn: Sequence[Drawn]) -> Figure:
    """Return the figure; open `styled` first."""
    figure = new_figure(4.4)
    grid = figure.subplots(3, len(drawn), squeeze=False, height_ratios=(1, 1, 1.4))
    for (top, middle, bottom), one in zip(grid.T, drawn, strict=True):
        middle.sharey(top)
        for axes, lines, color in ((top, one.reference, RED), (middle, one.predicted, BLUE)):
            axes.plot(one.line, lines.T, color=color, linewidth=0.8)
            axes.set_xlim(one.line[0], one.line[-1])
            axes.tick_params(labelbottom=axes is middle)
            axes.locator_params(nbins=3)
        top.set_title(one.title)
        middle.set_xlabel(f"${one.symbol}$")
        _spectra(bottom, one)
    for axes, label in zip(grid[:, 0], ("reference", drawn[0].method, "power"), strict=True):
        axes.set_ylabel(label)
    handles, labels = grid[-1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=3)
    return figure


def _spectra(axes: Axes, one: Drawn) -> None:
    """Draw both spectra, the model's dashed over the reference's."""
    looks = ({"color": RED, "linewidth": 2.0}, {"color": BLUE, "linestyle": "--"})
    names = ("reference samples", f"{one.method} samples")
    largest = max(float(spectrum.max()) for spectrum in one.spectra)
    for spectrum, look, name in zip(one.spectra, looks, names, strict=True):
        axes.loglog(np.arange(1, len(spectrum) + 1), spectrum, label=name, **look)
    axes.set_ylim(FLOOR * largest, 10 * largest)
    axes.set_xlabel("wave number")
