"""What every figure shows, in words: for the page of a run and for Snakemake's own report."""

from __future__ import annotations

from uqsonet_study.config import CompareFigure, Config, PosteriorFigure
from uqsonet_study.config.whole import SMOKE
from uqsonet_study.report.figures.colours import PREDICTION, REFERENCE, TRUTH, WORDS

LAW = (
    f"{WORDS[REFERENCE].capitalize()} is the reference posterior, {WORDS[PREDICTION]} the "
    f"prediction: mean and a band of two std. The thin {WORDS[TRUTH]} line is the true output."
)
NO_REFERENCE = (
    "These data have no reference posterior: the true output stands in its place, and errors are "
    "taken against it."
)
LAW_BESIDE_TRUTH = (
    f"{WORDS[PREDICTION].capitalize()} is the prediction: mean and a band of two std. The thin "
    f"{WORDS[TRUTH]} line is the true output. {NO_REFERENCE}"
)
MAPS_BESIDE_TRUTH = (
    "Left the input with its sensors (top) and the true output (bottom); then mean (top) and std "
    "(bottom) of the prediction, and the mean's absolute error on the scale of the std. "
    f"{NO_REFERENCE}"
)
MAPS = (
    "Left the input with its sensors (top) and the true output (bottom); then mean (top) and std "
    "(bottom) of the reference and of the prediction on a common scale, and their absolute "
    "difference."
)


FIXED = {
    "calibration": (
        "Calibration",
        "Top: ranks of the true function among samples of the law, over all points, sensor counts "
        "and sets. Bottom: share of the reference's samples inside central bands less the nominal "
        "level, ten sets a count; the strip is two points wide on either side.",
    ),
    "spectra": (
        "Sample functions and their spectra",
        "Samples of the reference posterior and of UQ-SONet given the same sensors, in the plane "
        "along its middle line; below, the power of their deviations from the reference mean by "
        "wave number, averaged over the observation sets of that size.",
    ),
}
"""Layout -> title and caption, where they do not depend on what is shown."""


def caption(config: Config, name: str) -> tuple[str, str]:
    """Return title and caption of a declared figure, or of a picture of a problem."""
    figure = config.figures.get(name)
    if figure is None:
        return _picture(config, name)
    if isinstance(figure, PosteriorFigure):
        title, text = _posterior(config, figure)
    elif isinstance(figure, CompareFigure):
        title, text = _compare(config, figure)
    else:
        title, text = FIXED[figure.layout]
    return f"fig:{name}. {title}", _scaled(config, text)


def _picture(config: Config, name: str) -> tuple[str, str]:
    """Return title and caption of a picture that comes with every problem."""
    experiment, _, kind = name.rpartition("_")
    known = config.has_reference(experiment)
    shown = "the reference posterior" if known else "its true output"
    text = {
        "data": f"Samples of inputs and outputs, then one function with {shown} for "
        "few, some and many sensors.",
        "training": "Terms of the loss, and skill over the sensor-free predictor on validation "
        "functions for every number of sensors; one line for each trial."
        + ("" if known else " Skill compares the mean with the true functions."),
        "layouts": "Regular-space layouts: examples, and how often each grid point is taken.",
    }[kind]
    title = {"data": "Data", "training": "Training", "layouts": "Sensor layouts"}[kind]
    return f"{title} of {experiment}", _scaled(config, text)


def table_caption(config: Config, name: str) -> tuple[str, str]:
    """Return title and caption of a declared table; the table itself says more."""
    return f"tab:{name}", _scaled(config, f"Layout: {config.tables[name].layout}.")


def _posterior(config: Config, figure: PosteriorFigure) -> tuple[str, str]:
    experiment = config.experiments[figure.experiment]
    counts = ", ".join(str(m) for m in figure.counts)
    noise = ", ".join(f"{level:g}" for level in figure.noise_std)
    known = config.has_reference(figure.experiment)
    title = "Reference and prediction" if known else "Prediction and truth"
    title += f", {experiment.problem}, m = {counts}"
    if figure.noise_std != [0.0]:
        title += f", noise {noise}"
    plane = len(figure.counts) == len(figure.noise_std) == 1
    who = figure.method if figure.method != "uqsonet" else "UQ-SONet"
    shown = f"One test function; prediction by {who}, first trial."
    maps, lines = (MAPS, LAW) if known else (MAPS_BESIDE_TRUTH, LAW_BESIDE_TRUTH)
    return title, f"{maps if plane else lines} {shown}"


def _compare(config: Config, figure: CompareFigure) -> tuple[str, str]:
    names = {
        "distance": "W2 distance to the reference against the latent dimension, exact between "
        "samples and between Gaussians, with the distance of two independent reference draws",
        "errors": "relative errors of mean and std against the number of training pairs N, with "
        "regression on the pairs, cokriging, the sensor-free predictor and the Monte Carlo floor",
        "spread": "mean over the domain of the std against the number of sensors, beside the "
        "reference's",
    }
    there = [text for key, text in names.items() if getattr(figure, key) is not None]
    letters = [f"({'abc'[k]}) " if len(there) > 1 else "" for k in range(len(there))]
    text = "; ".join(letter + part for letter, part in zip(letters, there, strict=True))
    problem = config.experiments[figure.experiments[0]].problem
    return f"Sweeps, {problem}", f"{text[0].upper()}{text[1:]}. Error bars: std over trials."


def _scaled(config: Config, text: str) -> str:
    return f"SMOKE SCALE: {text}" if config.scale == SMOKE else text
