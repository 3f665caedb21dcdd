"""What a table or a figure shows, in words: for `snakemake --report`."""

from __future__ import annotations

from uqsonet_study.cases import Study
from uqsonet_study.config import SMOKE
from uqsonet_study.report.figures.colours import PREDICTION, REFERENCE, TRUTH, WORDS

FIGURES = {
    "posterior": f"Reference posterior ({WORDS[REFERENCE]}) and prediction ({WORDS[PREDICTION]}) "
    f"for one test function: mean and a band of two std, with the true output "
    f"({WORDS[TRUTH]}); in two variables as maps, with the absolute error.",
    "compare": "Errors, distances or spread against what an experiment varies, with the baselines "
    "and the Monte Carlo floor. Bars: std over trials.",
    "calibration": "Top: ranks of the true function among samples of the law. Bottom: share of the "
    "reference's samples inside central bands, less the nominal level.",
}
"""Layout of a figure -> caption."""

TABLES = {
    "errors": "Errors beside the paper's, with intervals, and skill over no sensors.",
    "bands": "Widths of predicted bands beside the reference's.",
    "networks": "Networks and training, the paper's and ours.",
    "costs": "Hours of training and seconds of an answer, measured.",
    "scores": "Scores of whole laws beside all baselines.",
    "ablation": "Skill on validation sets, a row for each changed recipe.",
    "laws": "Laws of the input on one trained operator.",
}
"""Layout of a table -> caption."""


def figure_caption(study: Study, name: str) -> str:
    """Return the caption of a figure: experiments and layout."""
    figure = study.config.figures[name]
    return _caption(study, figure.shown, FIGURES[figure.layout])


def table_caption(study: Study, name: str) -> str:
    """Return the caption of a table; the table itself says more."""
    table = study.config.tables[name]
    return _caption(study, table.experiments, TABLES[table.layout])


def _caption(study: Study, experiments: list[str], text: str) -> str:
    scale = "SMOKE SCALE: " if study.config.scale == SMOKE else ""
    return f"{scale}{', '.join(experiments)}. {text}"
