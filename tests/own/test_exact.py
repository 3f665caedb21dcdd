"""Exact answers: where fields are Gaussian and the operator linear, the posterior is known.

Scored is the relative L2 error of mean and std, averaged over 20 sets of sensors. What limits it is
the law itself, which is estimated from runs: with n of them the means are 1.5 / sqrt(n) to
2 / sqrt(n) off. Fields have rank 5 or 6, and sensors leave half of that open.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import uqsonet
from tests.own.conftest import Linear, closed_form, quiet, waves
from uqsonet import Emulator, Runs

RUNS = 1400
SETS = 20
LIMIT = 2.8 / RUNS**0.5

Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Mean and std found, and exact ones."""


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def require_exact(case: Callable[[np.random.Generator], Case]) -> None:
    """Compare means and stds of 20 sets with the closed form."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(SETS):
        mean, std, exact_mean, exact_std = case(rng)
        rows.append((error(mean, exact_mean), error(std, exact_std)))
    assert np.mean(rows, axis=0) == pytest.approx([0, 0], abs=LIMIT)


def drawn(
    rng: np.random.Generator, rows: np.ndarray, noise: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return readings of one draw of the law, with exact mean and std."""
    y = rows @ rng.standard_normal(rows.shape[1]) + noise * rng.standard_normal(len(noise))
    mean, covariance = closed_form(rows, y, noise, wanted)
    return y, mean, np.sqrt(covariance.diagonal().clip(0))


def fit(inputs: dict[str, object], outputs: dict[str, object]) -> Emulator:
    return uqsonet.fit(Runs(inputs, outputs), sensors=[3], bar=False)


def coordinates(rank: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((RUNS, rank))


LEVELS = {
    "exact": np.zeros(3),
    "the same noise": np.full(4, 0.3),
    "noise of each": np.array([0.0, 0.1, 0.5, 2.0, 0.3]),
}


@pytest.mark.parametrize("left", [0.0, 0.3])
def test_point_cloud(left: float) -> None:
    """What the input leaves open belongs to the band: ``left`` is noise at every point."""
    law = Linear(noise=left)
    model = uqsonet.fit(law.runs(RUNS), sensors=[3], bar=False)
    for noise in LEVELS.values():

        def case(rng: np.random.Generator, noise: np.ndarray = noise) -> Case:
            at = rng.choice(150, len(noise), replace=False)
            y, mean, std = drawn(rng, law.given[at], noise, law.wanted)
            posterior = quiet(model, law.points[at], y, noise_std=noise)
            return posterior.mean(), posterior.std(), mean, np.hypot(std, left)

        require_exact(case)


def test_three_dimensions() -> None:
    axis = np.linspace(0, 2, 7)
    mesh = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    given, wanted, xi = waves(mesh, 5, 1), waves(mesh, 5, 2), coordinates(5)
    a, p = ((xi @ side.T).astype(np.float32).reshape(-1, 7, 7, 7) for side in (given, wanted))
    model = fit({"a": (a, (axis,) * 3)}, {"p": (p, (axis,) * 3)})
    assert model.inputs[0].domain.shape == (7, 7, 7)

    def case(rng: np.random.Generator) -> Case:
        at, noise = rng.choice(343, 3, replace=False), np.array([0.0, 0.2, 0.2])
        y, *exact = drawn(rng, given[at], noise, wanted)
        posterior = quiet(model, mesh[at], y, noise_std=noise)
        return posterior.mean(), posterior.std(), *exact

    require_exact(case)


def test_two_input_fields(tmp_path: Path) -> None:
    """``k`` on a line and under log, ``f`` on a plane; both read at once, in two ways."""
    line, plane = np.linspace(0, 1, 41)[:, None], np.random.default_rng(8).random((60, 2))
    k, f, wanted = waves(line, 6, 1), 3 * waves(plane, 6, 2), waves(line, 6, 3)
    xi = coordinates(6)
    coefficient = uqsonet.FieldRuns.of(np.exp(0.4 * xi @ k.T), (line[:, 0],), transform="log")
    inputs = {"k": coefficient, "f": (xi @ f.T, plane)}
    model = fit(inputs, {"u": (xi @ wanted.T, (line[:, 0],))})
    table = tmp_path / "sensors.csv"

    def case(rng: np.random.Generator) -> Case:
        at, there = rng.choice(41, 2, replace=False), rng.choice(60, 2, replace=False)
        rows = np.concatenate([0.4 * k[at], f[there]])
        noise = np.array([0.05, 0.1, 0.4, 0.6])  # of log k, and of f
        y, *exact = drawn(rng, rows, noise, wanted)
        y[:2] = np.exp(y[:2])
        posterior = quiet(model, k=(line[at], y[:2], noise[:2]), f=(plane[there], y[2:], noise[2:]))
        places = [*((x, 0.0) for x in line[at, 0]), *plane[there]]
        lines = ["x,y,value,field,noise_std"] + [
            f"{x},{z},{value},{name},{level}"
            for (x, z), value, name, level in zip(places, y, "kkff", noise, strict=True)
        ]
        table.write_text("\n".join(lines))
        from_table = quiet(model, table)
        np.testing.assert_allclose(from_table.mean(), posterior.mean(), atol=1e-10)
        np.testing.assert_allclose(from_table.std(), posterior.std(), atol=1e-10)
        return posterior.mean(), posterior.std(), *exact

    require_exact(case)


def test_two_output_fields() -> None:
    """``u`` on a line, ``v`` on a plane; one point of v is always the sum of two points of u."""
    line, plane = np.linspace(0, 1, 41), np.random.default_rng(8).random((60, 2))
    a, u, v = waves(line[:, None], 6, 1), waves(line[:, None], 6, 2), waves(plane, 6, 3)
    v[0] = u[3] + u[30]
    xi = coordinates(6)
    model = fit({"a": (xi @ a.T, (line,))}, {"u": (xi @ u.T, (line,)), "v": (xi @ v.T, plane)})

    def case(rng: np.random.Generator) -> Case:
        at, noise = rng.choice(41, 3, replace=False), np.full(3, 0.2)
        y, *exact = drawn(rng, a[at], noise, np.concatenate([u, v]))
        posterior = quiet(model, line[at], y, noise_std=noise)
        mean, std = (
            np.concatenate([getattr(posterior[name], what)() for name in "uv"])
            for what in ("mean", "std")
        )
        return mean, std, *exact

    require_exact(case)
    posterior = quiet(model, line[[4, 20]], [0.3, -0.2])
    first, second = (posterior[name].sample(50, rng=4) for name in "uv")
    gap = second[:, 0] - first[:, 3] - first[:, 30]
    assert np.abs(gap).max() < 0.02 * second[:, 0].std()
    assert np.abs(posterior["v"].sample(50, rng=5)[:, 0] - second[:, 0]).max() > second[:, 0].std()
