"""Inputs that latent fields make, given sensors of the output alone: against weighted draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uqsonet
from tests.laws.conftest import SMALL, points, seeded, two_values
from uqsonet.operator.particles import Following, tempered

AT = np.array([4, 9, 15, 20])
NOISE = 0.05


def outputs(k: np.ndarray) -> np.ndarray:
    """Return a curved function of running means."""
    mean = np.cumsum(k, axis=1) / SMALL.size
    return mean + 3 * mean**2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    k, x = two_values(np.random.default_rng(0), 1500), SMALL.points().numpy()
    runs = uqsonet.Runs({"k": (k, x)}, {"u": (outputs(k), x)})
    found = uqsonet.fit(runs, sensors=[5], law="latent", bar=False)
    path = Path(tmp_path_factory.mktemp("made")) / "model.safetensors"
    found.save(path)
    return uqsonet.load(path)


TRUTH = two_values(np.random.default_rng(5), 1)
READINGS = outputs(TRUTH)[0, AT]


def gaussian(off: np.ndarray) -> np.ndarray:
    return -((off / NOISE) ** 2).sum(1) / 2


def absolute(off: np.ndarray) -> np.ndarray:
    misfit = np.abs(off).mean(1)
    return np.where(misfit < 0.08, -((misfit / 0.04) ** 2) / 2, -np.inf)


@pytest.mark.parametrize(
    ("likelihood", "density"), [(None, gaussian), (lambda p, y: absolute(p - y), absolute)]
)
def test_fields_given_outputs_are_those_of_weighted_draws(
    model: Any, likelihood: object, density: Callable[[np.ndarray], np.ndarray]
) -> None:
    assert model.card["recipe"]["branch"] == "linear and kernel"
    k = model.condition()["k"].sample(100_000)
    weight = np.exp(density(outputs(k)[:, AT] - READINGS))
    assert weight.sum() ** 2 / (weight**2).sum() > 300
    share = weight @ (k > 0) / weight.sum()
    answer = model.condition(u=(points()[AT], READINGS, NOISE), likelihood=likelihood)
    fields = answer["k"].sample(1000)
    assert np.abs(fields) == pytest.approx(0.8, rel=1e-6)
    assert np.abs((fields > 0).mean(0) - share).mean() < 0.08
    assert np.abs(answer["k"].mean() - 1.6 * (share - 0.5)).mean() < 0.12
    mean = weight @ outputs(k) / weight.sum()
    assert answer["u"].mean() == pytest.approx(mean, abs=0.1)  # before: 0.8 each way
    assert answer.effective_size > 50


def test_samples_follow_a_law_that_is_known() -> None:
    rows = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    rows = torch.nn.functional.pad(rows, [0, 20])
    values, level = torch.tensor([2.0, -1.0], dtype=torch.float64), 0.1

    def weigh(z: torch.Tensor, _: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        wide = -((values - z @ rows.T) / (3 * level)).square().sum(1) / 2
        sharp = -((values - z @ rows.T) / level).square().sum(1) / 2
        return z.float(), torch.stack([wide, sharp - wide], 1)

    source = Following(weigh, rows.shape[1])
    source.last = 2.0
    found, _ = tempered(source, 2048, seeded())
    gain = torch.linalg.solve(rows @ rows.T + level**2 * torch.eye(2), rows).T
    std = (1 - (gain @ rows).diagonal()).sqrt()
    assert torch.allclose(found.z.mean(0), gain @ values, atol=0.12)
    assert torch.allclose(found.z.std(0), std, rtol=0.15)
    assert found.effective_size > 200
