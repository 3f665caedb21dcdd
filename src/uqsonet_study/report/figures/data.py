"""What the data are: sample pairs, then one pair with its sensors and its reference posterior."""

from __future__ import annotations

from pathlib import Path

from uqsonet_study.config import Config
from uqsonet_study.report.figures.data_1d import draw_lines
from uqsonet_study.report.figures.data_2d import draw_maps
from uqsonet_study.report.figures.sets import Shown, find_sets, load_test
from uqsonet_study.report.figures.style import save, styled


def data_figure(
    experiment: str, config: Config, functions: Path, reference: Path, out_pdf: Path, out_png: Path
) -> None:
    """Draw pairs of the data set, and the reference posterior for three numbers of sensors.

    Parameters
    ----------
    experiment : str
    config : Config
        The smallest, the middle and the largest sensor count of its first case are shown.
    functions, reference : Path
        Test functions and the reference posteriors of an evaluation.
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If the files do not belong together, the problem has more than two dimensions or an
        observation set is missing.
    """
    counts = config.cases_of([experiment])[0].sensors.counts
    data, found, noise_std = load_test(functions, reference)
    chosen = sorted({counts[0], counts[len(counts) // 2], counts[-1]})
    shown = Shown(data, find_sets(found, chosen, reference), noise_std)
    with styled():
        figure = draw_lines(shown) if data.problem.grid.dim == 1 else draw_maps(shown)
        save(figure, config.scale, out_pdf, out_png)
