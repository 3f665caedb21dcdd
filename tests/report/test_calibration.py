from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.report.conftest import whole_config
from tests.report.inside import require_tidy
from uqsonet.errors import DataError
from uqsonet_study.report.figures.calibration import draw, draw_calibration
from uqsonet_study.report.figures.style import styled


def table(shares: list[float], within: dict[int, float], counts: tuple[int, ...] = (1, 2)):
    rows = [
        ("poisson2d", label, method, m, metric, value)
        for label in ("paper", "precise")
        for method in ("uqsonet", "cokriging")
        for m in counts
        for metric, value in [
            *((f"rank_{k + 1}", share) for k, share in enumerate(shares)),
            *((f"within_{level}", value) for level, value in within.items()),
        ]
    ]
    names = ["experiment", "evaluation", "method", "sensors", "metric", "value"]
    return pd.DataFrame(rows, columns=pd.Index(names))


def test_bars_are_the_shares_and_points_the_misses() -> None:
    shares = [0.05, 0.1, 0.1, 0.1, 0.15, 0.15, 0.1, 0.1, 0.1, 0.05]
    found = {"A": table(shares, {50: 0.52, 90: 0.89, 95: 0.95})}
    with styled():
        figure = draw_calibration(found, found)
    ranks, coverages = figure.axes
    bars = [bar.get_height() for bar in ranks.containers[0]]
    assert bars == pytest.approx(shares)
    heights = {str(line.get_label()): line.get_ydata() for line in coverages.lines}
    assert np.allclose(heights["50 % band"], 2) and np.allclose(heights["90 % band"], -1)
    assert coverages.get_ylim()[0] <= -4 and coverages.get_ylim()[1] >= 4


def test_a_summary_without_ranks_is_refused() -> None:
    whole = table([0.5, 0.5], {50: 0.5, 90: 0.9, 95: 0.95})
    with styled(), pytest.raises(DataError, match="no within_50"):
        draw_calibration({"A": whole}, {"A": whole[whole["metric"] != "within_50"]})
    with styled(), pytest.raises(DataError, match="no rank_1"):
        draw_calibration({"A": whole[~whole["metric"].str.startswith("rank")]}, {"A": whole})


def test_the_figure_of_the_default_run_has_a_column_for_each_problem(tmp_path: Path) -> None:
    config = whole_config()
    one = table([0.1] * 10, {50: 0.5, 90: 0.9, 95: 0.95})
    experiments = config.figures["calibration"].experiments
    files = [str(tmp_path / f"{name}.csv") for name in experiments]
    for name, file in zip(experiments, files, strict=True):
        one.assign(experiment=name).to_csv(file, index=False)
    with styled():
        figure = draw(config, "calibration", {"summaries": files})
    assert len(figure.axes) == 2 * len(experiments) == 10
    require_tidy(figure)
