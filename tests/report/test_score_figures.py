"""Figures of scores and logs: every point is where the numbers say."""

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

from tests.report.conftest import make_config, make_summary, whole_config
from uqsonet.errors import DataError
from uqsonet_study.config import BASELINES
from uqsonet_study.report.figures import calibration, compare, training
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
    summary = make_summary(whole_config())
    spread = summary[summary["metric"].eq("mean_std")]
    learned = spread[spread["method"].ne("reference")]
    ranks = [learned.assign(metric=f"rank_{k + 1}", value=0.055 + 0.01 * k) for k in range(10)]
    gaussian = learned.assign(metric="w2_gaussian", value=learned["value"] / 2)
    return pd.concat([summary, spread.assign(metric="w2"), gaussian, *ranks], ignore_index=True)


def drawn(kind: Any, name: str, path: Path, summary: pd.DataFrame) -> Figure:
    summary.to_csv(path / "summary.csv", index=False)
    with styled():
        return kind.draw(whole_config(), name, {"summaries": [str(path / "summary.csv")]})


def draw_sweeps(folder: Path, name: str = "1d-pde-compare") -> Figure:
    return drawn(compare, name, folder, whole_summary())


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
        pm = pd.concat([found["pm"].dropna() for found in errors_of])  # the largest: one trial
        np.testing.assert_allclose(sorted(lengths), sorted(200 * pm))
    heights = [bar.get_height() for bar in spread.patches]
    found = [of(summary, "diffusion1d", m, "mean_std") for m in ("reference", "uqsonet")]
    assert heights == pytest.approx(pd.concat(found)["value"].tolist())
    assert len(draw_sweeps(tmp_path, "1d-sde-compare").subfigs) == 1


def draw_calibration(folder: Path) -> Figure:
    return drawn(calibration, "calibration", folder, whole_summary())


def test_calibration_shows_shares_and_misses(tmp_path: Path) -> None:
    figure, summary = draw_calibration(tmp_path), whole_summary()
    shown = whole_config().figures["calibration"].experiments
    for experiment, ranks, bands in zip(shown, figure.axes[:5], figure.axes[5:], strict=True):
        bars = [bar.get_height() for bar in ranks.containers[0]]
        assert bars == pytest.approx([0.055 + 0.01 * k for k in range(10)])
        paper = summary[summary["evaluation"].eq("paper")]  # whose references hold samples
        for level in (50, 90, 95):
            found = of(paper, experiment, "uqsonet", f"within_{level}")
            require_line(bands, found["sensors"], 100 * found["value"] - level)


HEAD = "trial,iteration,seconds,learning_rate,loss,reconstruction,"


def draw_training(folder: Path) -> Figure:
    """Draw the losses and skills of two trials of one method and of a single row of another."""
    logs = [folder / name for name in ("uqsonet/0.csv", "uqsonet/1.csv", "vidon/0.csv")]
    for trial, log in enumerate(logs):
        log.parent.mkdir(exist_ok=True)
        rows = f"{trial},100,1,0.1,20,12,8,-3,0.1\n{trial},200,2,0,1,0.6,0.4,0.5,0.2\n"
        log.write_text(f"{HEAD}kl,skill_mean_1,skill_std_1\n{rows}")
    logs[-1].write_text(f"{HEAD}skill_mean_1,skill_mean_2\n0,10,1,0,-2,-2,0.1,0.3\n")
    with styled():
        return training.draw(make_config(), "e_1_training", {"logs": [str(log) for log in logs]})


def test_training_shows_losses_and_skills(tmp_path: Path) -> None:
    loss, mean, std, other = draw_training(tmp_path).axes[:4]
    for terms in ((20, 1), (12, 0.6), (8, 0.4)):
        require_line(loss, (100, 200), terms)
    require_line(mean, (100, 200), (-3, 0.5))
    require_line(std, (100, 200), (0.1, 0.2))
    require_line(other, [10], [-2])
    assert len(loss.lines) == 6  # two trials
    for text in ("", "a,b\n1,2\n"):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(DataError, match=r"x\.csv"):
            training.draw(make_config(), "e_1_training", {"logs": [str(tmp_path / "x.csv")]})
