"""Readings whose noise is not Gaussian: against Gaussian answers, quadrature and truncation."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch

from tests.test_joint import SMALL, curved_model, integral, linear_model
from uqsonet.emulator.emulator import Emulator
from uqsonet.errors import ObservationError

X = np.linspace(0, 1, 12)[:, None]
NOISE = {"k": 0.2, "u": 0.05}


@cache
def model(bent: bool = False) -> Emulator:
    return Emulator.around(curved_model() if bent else linear_model())


def sensors(
    names: str, factor: float = 1.0, bent: bool = False
) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Return noisy readings of a function that the model itself gives."""
    truth, rng = model(bent).condition(), np.random.default_rng(1)
    read = {name: truth[name].sample(1, X, 3)[0] for name in "ku"}
    noisy = {name: y + NOISE[name] * rng.standard_normal(len(X)) for name, y in read.items()}
    return {name: (X, noisy[name], NOISE[name] * factor) for name in names}


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize("names", ["k", "u", "ku"])
def test_a_gaussian_function_gives_the_gaussian_answer(names: str, bent: bool) -> None:
    level = np.concatenate([np.full(len(X), NOISE[n]) for n in names])

    def gaussian(predicted: np.ndarray, readings: np.ndarray) -> np.ndarray:
        assert predicted.shape == (len(predicted), len(level))
        return -(((predicted - readings) / level) ** 2).sum(1) / 2

    exact = model(bent).condition(**sensors(names, 1, bent))
    found = model(bent).condition(**sensors(names, 1.5, bent), likelihood=gaussian)
    assert found.effective_size > 200
    for field in "ku":
        mean, std = exact[field].mean(), exact[field].std()
        assert np.abs(found[field].mean() - mean).max() < 0.15 * std.max()
        assert np.abs(found[field].std() - std).max() < 0.1 * std.max()


def test_a_solver_corrects_a_wrong_linear_operator_exactly() -> None:
    exact, wrong = model(), copy.deepcopy(linear_model())
    with torch.no_grad():
        wrong.bases.linear_weight.mul_(0.7)
    x, solver = SMALL.points().numpy(), integral().numpy().T
    k = exact.condition()["k"].sample(1, seed=5)[0]
    u = k @ solver + 0.03 * np.random.default_rng(0).standard_normal(len(k))
    read = {"u": (x[::2], u[::2], 0.03)}
    truth, start = exact.condition(**read), Emulator.around(wrong).condition(**read)
    found = start.corrected(lambda inputs: inputs @ solver)
    assert found.solves.before < 5 and found.solves.after > 0.9 * found.solves.of
    for field in "ku":
        std = truth[field].std()
        assert np.abs(found[field].mean() - truth[field].mean()).max() < 0.01 * std.max()
        assert np.abs(found[field].std() - std).max() < 0.01 * std.max()
    assert np.abs(start["k"].mean() - truth["k"].mean()).max() > truth["k"].std().max()
    with pytest.raises(ObservationError, match="40 solves"):
        start.corrected(lambda inputs: inputs @ solver, 10)
    with pytest.raises(ObservationError, match="outputs of shape"):
        start.corrected(lambda inputs: inputs[:, 1:])
