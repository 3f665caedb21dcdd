"""Many sensors of outputs: what an operator leaves over of few held-out runs says too little."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import uqsonet
from uqsonet.fitting.choose_answer import counts_of_outputs
from uqsonet.laws.base import _squared_distance


def front_runs(size: int) -> tuple[np.ndarray, ...]:
    """Return points (41, 1) and (205, 2), starts (size, 41), and fronts at five times."""
    x = np.linspace(0, 1, 41)
    kernel = np.exp(-((x[:, None] - x) ** 2) / (2 * 0.06**2)) + 1e-8 * np.eye(41)
    k = np.random.default_rng(0).standard_normal((size, 41)) @ np.linalg.cholesky(kernel).T
    times = [k]
    for _ in range(5):
        smooth = sum(np.roll(times[-1], shift, 1) for shift in (-1, 0, 1)) / 3
        times.append(1.4 * np.tanh(smooth))
    xt = np.stack(np.meshgrid(x, np.linspace(0, 1, 5), indexing="ij"), -1).reshape(-1, 2)
    return x[:, None], xt, k, np.stack(times[1:], 2).reshape(size, -1)


def test_many_sensors_of_outputs_are_answered_as_well_as_by_least_squares() -> None:
    x, xt, k, u = front_runs(260)
    runs = uqsonet.Runs({"k": (k[:200], x)}, {"u": (u[:200], xt)})
    model = uqsonet.fit(runs, sensors=[5], bar=False)
    places = np.random.default_rng(1).choice(205, 60, replace=False)
    answer = model.condition(u=(np.broadcast_to(xt[places], (60, 60, 2)), u[200:, places]))["k"]
    train = np.column_stack([u[:200, places], np.ones(200)])
    plain = np.column_stack([u[200:, places], np.ones(60)]) @ np.linalg.lstsq(train, k[:200])[0]
    lower, upper = answer.band(0.9, kind="plain")
    truth = k[200:]
    # Regression reads pairs through their modes: what these leave out is noise to it.
    assert np.square(answer.mean() - truth).mean() < 1.2 * np.square(plain - truth).mean()
    assert 0.85 < ((lower <= truth) & (truth <= upper)).mean() < 0.95


def test_more_sensors_are_compared_where_they_read_outputs() -> None:
    assert counts_of_outputs([3, 10], 4096) == (3, 10, 80)
    assert counts_of_outputs([10, 30], 50) == (10, 30, 50)
    assert counts_of_outputs([200], 4096) == (200, 256)
    assert counts_of_outputs([600], 4096) == (600,)


@pytest.mark.parametrize(("readings", "modes"), [(40, 6), (6, 40), (7, 7)])
def test_how_far_readings_are_from_a_law_takes_the_smaller_of_two_matrices(
    readings: int, modes: int
) -> None:
    rng = np.random.default_rng(0)
    rows, off, level = (
        torch.from_numpy(rng.random(shape) + 0.1)
        for shape in ((2, readings, modes), (2, readings), (2, readings))
    )
    covariance = rows @ rows.mT + torch.diag_embed(level.square())
    expected = (off * torch.linalg.solve(covariance, off)).sum(1)
    torch.testing.assert_close(_squared_distance(rows, off, level), expected, rtol=1e-9, atol=0)
