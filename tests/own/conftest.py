"""Linear-Gaussian laws whose posterior is known in closed form, and small fits that tests share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import uqsonet
from tests.conftest import make_once
from uqsonet.fitting import fit as fitting


@pytest.fixture(scope="module", autouse=True)
def quick_cards() -> Iterator[None]:
    """Leave the scores out of cards: these tests do not read them, and they take most of a fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "score", lambda *_, **__: [[]])
        yield


def waves(points: np.ndarray, rank: int, seed: int) -> np.ndarray:
    """Return smooth functions (n, rank) of points (n, d), of falling size."""
    rng = np.random.default_rng(seed)
    frequency, phase = 2.5 * rng.standard_normal((rank, points.shape[1])), 6 * rng.random(rank)
    return np.cos(points @ frequency.T + phase) * np.linspace(1, 0.5, rank)


def closed_form(
    rows: np.ndarray, residual: np.ndarray, noise: np.ndarray, responses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (M,) and covariance (M, M) of ``responses @ xi``, ``xi ~ N(0, I)``.

    Given ``residual = rows @ xi + noise * N(0, I)``; noise (m,) may be zero.
    """
    gain = rows.T @ np.linalg.inv(rows @ rows.T + np.diag(noise**2))
    covariance = responses @ (np.eye(rows.shape[1]) - gain @ rows) @ responses.T
    return responses @ (gain @ residual), covariance


@dataclass(frozen=True)
class Linear:
    """Two fields on 150 scattered points in the plane, linear in the same standard normals."""

    rank: int = 6
    noise: float = 0.0

    @property
    def points(self) -> np.ndarray:
        return np.random.default_rng(5).random((150, 2))

    @property
    def given(self) -> np.ndarray:
        return waves(self.points, self.rank, 1)

    @property
    def wanted(self) -> np.ndarray:
        return waves(self.points, self.rank, 2)

    def runs(self, size: int, seed: int = 0) -> uqsonet.Runs:
        rng = np.random.default_rng(seed)
        xi = rng.standard_normal((size, self.rank))
        u = xi @ self.wanted.T + self.noise * rng.standard_normal((size, 150))
        pairs = {"a": (xi @ self.given.T, self.points)}, {"p": (u, self.points)}
        return uqsonet.Runs(*pairs, name="linear")


def quiet(model: uqsonet.Emulator, *sensors: object, **named: object) -> uqsonet.FieldPosterior:
    """Condition without warnings: among many sets some are improbable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", uqsonet.ObservationWarning)
        return model.condition(*sensors, **named)


@pytest.fixture(scope="session")
def linear_runs() -> uqsonet.Runs:
    return Linear().runs(400)


@pytest.fixture(scope="session")
def linear(linear_runs: uqsonet.Runs, tmp_path_factory: pytest.TempPathFactory) -> uqsonet.Emulator:
    """A small model on a point cloud."""

    def make(folder: Path) -> None:
        model = uqsonet.fit(linear_runs, sensors=[4], bar=False)
        model.save(folder / "model.safetensors")

    return uqsonet.load(make_once(tmp_path_factory, "linear", make) / "model.safetensors")
