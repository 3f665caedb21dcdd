"""The figure of sample functions: some of them, and how their power is spread over wave numbers.

A law with the right mean and std may still draw functions that are too smooth or too rough, or
whose points do not belong together. Spectra are those of deviations from the reference mean, by
the cosine transform, averaged over samples and over the paper's observation sets of one size; in
the plane over all directions. Both laws are cut at the same points, those of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.fft import dctn

from uqsonet.fields.grid import Grid
from uqsonet_study.config import Config
from uqsonet_study.evaluation.scores import uniform_grid
from uqsonet_study.reference.files import Reference
from uqsonet_study.report.figures.colours import PREDICTION, REFERENCE
from uqsonet_study.report.figures.panels import FUNCTION, PanelFiles, load_predictor, read_test
from uqsonet_study.report.figures.style import new_figure
from uqsonet_study.report.names import method_title, problem_title

SHOWN = 5  # sample functions drawn
FLOOR = 1e-11
"""Power below this share of the largest is rounding of stored single-precision samples."""


def draw(_config: Config, _name: str, files: Mapping[str, Any]) -> Figure:
    """Return sample functions and spectra, a column for each of the ``panels`` of `files`."""
    method = method_title("uqsonet")
    figure = new_figure(4.4)
    grid = figure.subplots(3, len(files["panels"]), squeeze=False, height_ratios=(1, 1, 1.4))
    for column, one in zip(grid.T, files["panels"], strict=True):
        _draw_column(column, one)
    for axes, label in zip(grid[:, 0], ("reference", method, "power"), strict=True):
        axes.set_ylabel(label)
    names = ("reference samples", f"{method} samples")
    figure.legend(grid[2, 0].lines, names, loc="outside lower center", ncols=2, handlelength=3)
    return figure


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


def _draw_column(column: np.ndarray, one: PanelFiles) -> None:
    """Draw samples of the reference, samples of the model, and the spectra of both."""
    path, count = one["reference"], one["sensors"]
    data, reference, noise_std = read_test(Path(one["functions"]), Path(path))
    assert isinstance(reference, Reference) and reference.samples is not None
    sets = (reference.counts == count).nonzero()[:, 0].tolist()
    first = next(s for s in sets if int(reference.function[s]) == FUNCTION)
    model, (_, kept) = load_predictor(one), data.fields.training_grid()
    grid, _ = uniform_grid(data.fields.output).subgrid(data.fields.output_stride)
    spectra = np.zeros((2, min(grid.shape) - 1))
    line = _middle(grid)
    places = grid.points()[line, 0].numpy()
    for s in sets:
        o = reference.observations[s : s + 1]
        posterior = model.condition(o.locations, o.values, o.mask, noise_std)
        theirs = reference.samples[s].double()
        generator = torch.Generator().manual_seed(s)
        ours = posterior.sample(len(theirs), grid.points(), generator)[0].double()
        for k, (law, color) in enumerate(((theirs, REFERENCE), (ours, PREDICTION))):
            spectra[k] += power((law - reference.mean[s, kept]).numpy(), grid) / len(sets)
            if s == first:
                column[k].plot(places, law[:SHOWN, line].T.numpy(), color=color, linewidth=0.8)
    top, middle, bottom = column
    middle.sharey(top)
    for axes in (top, middle):
        axes.set_xlim(places[0], places[-1])
        axes.tick_params(labelbottom=axes is middle)
        axes.locator_params(nbins=3)
    top.set_title(f"{problem_title(data.fields.name)}\n$m = {count}$")
    where = "" if grid.dim == 1 else f", y = {grid.points()[line[0], 1]:.2g}"
    middle.set_xlabel(f"$x{where}$")
    # The model's is dashed, over the reference's.
    numbers = np.arange(1, spectra.shape[1] + 1)
    bottom.loglog(numbers, spectra[0], color=REFERENCE, linewidth=2.0)
    bottom.loglog(numbers, spectra[1], color=PREDICTION, linestyle="--")
    bottom.set_ylim(FLOOR * spectra.max(), 10 * spectra.max())
    bottom.set_xlabel("wave number")


def _middle(grid: Grid) -> torch.Tensor:
    """Return the grid points along the first axis, halfway up the second."""
    points = torch.arange(len(grid.points())).reshape(grid.shape)
    return points if grid.dim == 1 else points[:, grid.shape[1] // 2]
