"""Figures of scores: every point is where the numbers say."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tests.report.conftest import make_summary, whole_study, write_summaries
from uqsonet_study import BASELINES
from uqsonet_study.report.captions import FIGURES, TABLES, figure_caption, table_caption
from uqsonet_study.report.figures import calibration, compare
from uqsonet_study.report.figures.style import styled

METRICS = ("err_mean", "err_std")


def require_line(axes: Axes, x: Any, y: Any) -> None:
    """One line of a panel goes through these points."""
    lines = [np.asarray(line.get_xydata(), float) for line in axes.lines]
    wanted = np.stack([np.asarray(x, float), np.asarray(y, float)], axis=1)
    assert any(line.shape == wanted.shape and np.allclose(line, wanted) for line in lines)


def of(summary: pd.DataFrame, experiment: str, method: str, metric: str, m: int | None = None):
    """Return the numbers of the evaluation with most sets."""
    found = summary[summary["experiment"].eq(experiment) & summary["method"].eq(method)]
    found = found[found["metric"].eq(metric) & (m is None or found["sensors"].eq(m))]
    return found[found["evaluation"].eq(found["evaluation"].max())]


def whole_summary() -> pd.DataFrame:
    """The default run with distances, and with shares of truths at ten ranks."""
    summary = make_summary(whole_study(Path()))
    spread = summary[summary["metric"].eq("mean_std")]
    learned = spread[spread["method"].ne("reference")]
    ranks = [learned.assign(metric=f"rank_{k + 1}", value=0.055 + 0.01 * k) for k in range(10)]
    gaussian = learned.assign(metric="w2_gaussian", value=learned["value"] / 2)
    return pd.concat([summary, spread.assign(metric="w2"), gaussian, *ranks], ignore_index=True)


def drawn(kind: Any, name: str, root: Path) -> Figure:
    study = whole_study(root)
    write_summaries(study, whole_summary())
    with styled():
        return kind.draw(study, name)


def draw_sweeps(root: Path, name: str = "1d-pde-compare") -> Figure:
    return drawn(compare, name, root)


def draw_calibration(root: Path) -> Figure:
    return drawn(calibration, "calibration", root)


def test_sweeps_are_those_of_the_summary(tmp_path: Path) -> None:
    summary = whole_summary()
    distance, errors, (spread,) = (row.axes for row in draw_sweeps(tmp_path).subfigs)
    for axes, metric in product(distance, ("w2", "w2_gaussian")):
        m = 3 if axes is distance[0] else 5
        found = of(summary, "diffusion1d_latent", "uqsonet", metric, m)
        assert found["latent_dim"].tolist() == [1, 2, 5, 10, 15, 20]
        require_line(axes, found["latent_dim"], found["value"])
    for axes, m in zip(errors, (3, 5), strict=True):
        for method, metric in product(("uqsonet", *BASELINES, "reference"), METRICS):
            found = of(summary, "diffusion1d_size", method, metric, m).sort_values("training")
            require_line(axes, found["training"], 100 * found["value"])
        bars = [b for b in axes.collections if isinstance(b, LineCollection)]
        lengths = np.concatenate([np.ptp(b.get_segments(), axis=1)[:, 1] for b in bars])
        errors_of = (of(summary, "diffusion1d_size", "uqsonet", e, m) for e in METRICS)
        pm = pd.concat([found["pm"].dropna() for found in errors_of])
        np.testing.assert_allclose(sorted(lengths), sorted(200 * pm))
    heights = [bar.get_height() for bar in spread.patches]
    found = [of(summary, "diffusion1d", m, "mean_std") for m in ("reference", "uqsonet")]
    assert heights == pytest.approx(pd.concat(found)["value"].tolist())
    assert len(draw_sweeps(tmp_path, "1d-sde-compare").subfigs) == 1


def test_calibration_shows_shares_and_misses(tmp_path: Path) -> None:
    figure, summary = draw_calibration(tmp_path), whole_summary()
    shown = whole_study(tmp_path).config.figures["calibration"].shown
    for experiment, ranks, bands in zip(shown, figure.axes[:5], figure.axes[5:], strict=True):
        bars = [bar.get_height() for bar in ranks.containers[0]]
        assert bars == pytest.approx([0.055 + 0.01 * k for k in range(10)])
        paper = summary[summary["evaluation"].eq("paper")]  # whose references hold samples
        for level in (50, 90, 95):
            found = of(paper, experiment, "uqsonet", f"within_{level}")
            require_line(bands, found["sensors"], 100 * found["value"] - level)


def test_captions_say_what_is_shown(tmp_path: Path) -> None:
    study = whole_study(tmp_path)
    for name, figure in study.config.figures.items():
        assert figure_caption(study, name) == f"{', '.join(figure.shown)}. {FIGURES[figure.layout]}"
    for name, table in study.config.tables.items():
        assert table_caption(study, name).endswith(TABLES[table.layout])
    small = whole_study(tmp_path, scale="smoke")
    assert figure_caption(small, "calibration").startswith("SMOKE SCALE: diffusion1d, poisson2d")
