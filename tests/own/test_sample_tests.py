"""TARP and C2ST tell a calibrated law from one that is shifted, too narrow or too wide.

The laws are exact Gaussian posteriors of a linear model, so calibration is known.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

import uqsonet
from tests.own.conftest import Linear, closed_form
from uqsonet.fitting.sample_tests import c2st, residuals, tarp

RUNS, DRAWS = 200, 400


def chances(seed: int, shift: float = 0.0, width: float = 1.0) -> tuple[float, float, float]:
    """Return the chances of TARP and C2ST, and the share of C2ST, of changed exact laws."""
    rng = np.random.default_rng(seed)
    rows, wanted = rng.standard_normal((2, 4)), rng.standard_normal((10, 4))
    noise = np.full(2, 0.5)
    xi = rng.standard_normal((RUNS, 4))
    truths, order = xi @ wanted.T, rng.permutation(RUNS)
    shares, first, second = [], [], []
    for run in range(RUNS):
        y = rows @ xi[run] + noise * rng.standard_normal(2)
        mean, covariance = closed_form(rows, y, noise, wanted)
        root = np.linalg.svd(covariance)[0] * np.sqrt(np.linalg.svd(covariance)[1])
        std = np.sqrt(covariance.diagonal())
        drawn = mean + shift * std + width * rng.standard_normal((DRAWS, 10)) @ root.T
        other = truths[np.roll(order, 1)[order.argsort()[run]]]
        shares.append(tarp(drawn, truths[run], other))
        for into, one in zip((first, second), residuals(drawn, truths[run], run), strict=True):
            into.append(one)
    share, chance = c2st(np.array(first), np.array(second))
    return kstest(shares, "uniform").pvalue, chance, share


def test_a_calibrated_law_passes_as_often_as_it_should():
    found = np.array([chances(seed) for seed in range(20)])
    for column in found[:, :2].T:
        assert kstest(column, "uniform").pvalue > 0.01
    assert abs(found[:, 2].mean() - 0.5) < 0.03


@pytest.mark.parametrize("change", [{"shift": 0.7}, {"width": 0.5}, {"width": 1.8}])
def test_a_shifted_or_overconfident_law_fails(change):
    for seed in range(3):
        by_tarp, by_classifier, share = chances(seed, **change)
        assert by_tarp < 0.01 and by_classifier < 0.01 and share > 0.55, (seed, change)


def test_the_report_has_them_beside_the_ranks(linear, tmp_path):
    held_out = Linear().runs(40, seed=3)
    report = linear.validate(held_out, sensors=[4])
    ours, other = report.rows()[:2]
    assert {"ranks_p", "tarp_p", "c2st", "c2st_p"} <= set(ours) and "c2st" not in other
    assert min(ours["tarp_p"], ours["c2st_p"]) > 0.01 and 0.35 < ours["c2st"] < 0.65
    u = held_out.outputs["p"].values + 3  # far from what the model has learned
    points = Linear().points
    moved = uqsonet.Runs({"a": (held_out.inputs["a"].values, points)}, {"p": (u, points)})
    report = linear.validate(moved, sensors=[4])
    assert report.scores[0].tests["c2st_p"] < 0.01
    assert "a classifier tells truths from samples (C2ST)" in "\n".join(report.remarks())
    report.save(tmp_path / "report.html")
    assert "<th>tarp_p</th>" in (tmp_path / "report.html").read_text()
