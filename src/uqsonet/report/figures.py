"""Figures: posteriors of one function beside the reference, and training as it went."""

from __future__ import annotations

from pathlib import Path

import torch

from uqsonet.config import Config
from uqsonet.metrics import relative_error
from uqsonet.nn.weights import load
from uqsonet.report.posterior_1d import draw_lines
from uqsonet.report.posterior_2d import draw_maps
from uqsonet.report.sets import Panel, ReferenceSet, find_sets, load_test
from uqsonet.report.style import save, styled
from uqsonet.report.training_curves import training_figure

__all__ = ["posterior_figure", "training_figure"]


def posterior_figure(
    experiment: str,
    config: Config,
    functions: Path,
    reference: Path,
    weights: Path,
    out_pdf: Path,
    out_png: Path,
) -> None:
    """Draw the reference law and the predicted one for one test function.

    Functions of one variable as in fig:1d-pde-plot, of two as in fig:2d-pde-plot.

    Parameters
    ----------
    experiment : str
    config : Config
        `figure_counts` of the experiment gives the panels; in two dimensions its largest entry is
        shown.
    functions, reference, weights : Path
        Test functions, the reference posteriors of an evaluation, a trained model (its first
        trial is shown).
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If the files do not belong together, the problem has more than two dimensions or an
        observation set is missing.
    """
    counts = config.experiments[experiment].figure_counts
    data, found, _ = load_test(functions, reference)
    line = data.problem.grid.dim == 1
    sets = find_sets(found, counts if line else [max(counts)], reference)
    panels = _predict(sets, weights)
    with styled():
        figure = draw_lines(data, panels) if line else draw_maps(data, panels[0])
        save(figure, config.scale, out_pdf, out_png)


def _predict(sets: list[ReferenceSet], weights: Path) -> list[Panel]:
    """Condition the model on the sensors of each panel."""
    model = load(weights)
    panels = []
    for one in sets:
        o = one.observations
        posterior = model.condition(o.locations, o.values, o.mask)
        mean, std = posterior.mean()[0].double(), posterior.std()[0].double()
        truths = torch.from_numpy(one.mean), torch.from_numpy(one.std)
        errors = (float(relative_error(mean, truths[0])), float(relative_error(std, truths[1])))
        panels.append(Panel(one, (mean.numpy(), std.numpy()), errors))
    return panels
