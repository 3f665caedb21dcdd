"""Figures: posteriors of one function beside the reference, and training as it went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from uqsonet.errors import DataError
from uqsonet_study.report.figures.chosen import Chosen, choose, predict
from uqsonet_study.report.figures.posterior_1d import draw_lines
from uqsonet_study.report.figures.posterior_2d import draw_maps
from uqsonet_study.report.figures.style import save, styled
from uqsonet_study.report.figures.training import training_figure

__all__ = ["Chosen", "choose", "posterior_figure", "training_figure"]


def posterior_figure(
    panels: Sequence[Chosen], scale: str, out_pdf: Path, out_png: Path, columns: int = 2
) -> None:
    """Draw the reference law and the predicted one for one test function.

    Functions of one variable as in fig:1d-pde-plot, fig:1d-pde-addnoise and
    fig:1d-pde-ensemble-plot, of two as in fig:2d-pde-plot.

    Parameters
    ----------
    panels : sequence of Chosen
        Along the rows; one in two dimensions. All of one test function.
    scale : {"full", "smoke"}
    out_pdf, out_png : Path
    columns : int
        Panels in a row.

    Raises
    ------
    DataError
        If files do not belong together or to the noise named, the problem has more than two
        dimensions, an observation set is missing or maps are asked of several panels.
    """
    data, drawn = predict(panels)
    line = data.problem.grid.dim == 1
    if not line and len(drawn) > 1:
        raise DataError(f"{panels[0].functions}: a figure of maps has one panel, not {len(drawn)}")
    with styled():
        figure = draw_lines(data, drawn, columns) if line else draw_maps(data, drawn[0])
        save(figure, scale, out_pdf, out_png)
