"""From summaries to what the figure of sweeps shows: its points and what stands beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from uqsonet_study.config import BASELINES, CompareFigure, Config
from uqsonet_study.report.figures.compare import COLUMNS, compare_figure
from uqsonet_study.report.summary import most_precise

METHOD, FLOOR = "uqsonet", "reference"


def sweep_figure(
    summaries: pd.DataFrame, config: Config, name: str, out_pdf: Path, out_png: Path
) -> None:
    """Draw a declared figure of layout ``compare``.

    Parameters
    ----------
    summaries : DataFrame
        Of all experiments that the figure names, one below the other.
    config : Config
    name : str
        Of the figure.
    out_pdf, out_png : Path

    Raises
    ------
    DataError
        If a summary lacks what is drawn.
    """
    figure = config.figures[name]
    assert isinstance(figure, CompareFigure)
    compare_figure(
        None if figure.distance is None else _distance(summaries, figure.distance),
        None if figure.errors is None else _errors(summaries, figure.errors),
        None if figure.spread is None else _spread(summaries, figure.spread),
        config.scale,
        out_pdf,
        out_png,
    )


def _rows(
    summaries: pd.DataFrame, experiment: str, methods: list[str], metrics: list[str], x: str
) -> pd.DataFrame:
    """Return the rows of an experiment, in its most precise evaluation, with their x."""
    found = most_precise(summaries, experiment)
    kept = found.loc[found["method"].isin(methods) & found["metric"].isin(metrics)]
    return kept.assign(x=kept[x].astype(float))


def _distance(summaries: pd.DataFrame, experiment: str) -> pd.DataFrame:
    metrics = ["w2", "w2_gaussian"]
    table = _rows(summaries, experiment, [METHOD, FLOOR], metrics, "latent_dim")
    # Two reference draws know nothing of d_z: one line for the whole axis.
    is_floor = (table["method"] == FLOOR) & (table["metric"] == "w2")
    floor = table.loc[is_floor].drop_duplicates("sensors").assign(x=float("nan"))
    both = [table.loc[table["method"] == METHOD], floor]
    return pd.concat(both).loc[:, COLUMNS]


def _errors(summaries: pd.DataFrame, experiment: str) -> pd.DataFrame:
    methods, metrics = [METHOD, *BASELINES, FLOOR], ["err_mean", "err_std"]
    return _rows(summaries, experiment, methods, metrics, "training").loc[:, COLUMNS]


def _spread(summaries: pd.DataFrame, experiment: str) -> pd.DataFrame:
    return _rows(summaries, experiment, [METHOD, FLOOR], ["mean_std"], "sensors").loc[:, COLUMNS]
