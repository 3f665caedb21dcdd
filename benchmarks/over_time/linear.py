"""A field that drifts, spreads and is driven by noise: what is best is known exactly.

A periodic line of 100 points, s' = A s + q: A shifts by `SPEED` points a step, diffuses and damps,
q ~ N(0, Q) is smooth but for a rough part of `ROUGH` of its variance, and the first state has the
law that all steps have. Five sensors stand at even distances; their noise is normal. Since all laws
are normal, the Kalman filter and the smoother of Rauch, Tung and Striebel are exact, means and
bands, and no method can do better on average.

    python -m benchmarks.over_time --only linear

Expected, seed 0, 50 test runs: root mean square error, CRPS, what bands of 50 and 90 % hold.

    last 20 steps with readings   uqsonet smoother         0.413  0.221  50  90
                                  uqsonet filter           0.480  0.256  49  90
                                  rts smoother             0.410  0.220  51  90
                                  kalman filter            0.477  0.255  50  90
                                  optimal interpolation    0.640  0.343  50  90
                                  climatology              0.975  0.562  50  90
    1 step after                  uqsonet                  0.521  0.291  51  91
                                  kalman filter            0.517  0.289  52  91
                                  persistence of the truth 0.325  0.186  49  90
    10 steps after                uqsonet                  0.757  0.435  52  92
                                  kalman filter            0.759  0.437  51  91
                                  persistence of the truth 1.126  0.647  53  92
                                  climatology              0.921  0.530  52  93
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from benchmarks.over_time import common
from benchmarks.over_time.common import Answer, Linear, Problem

POINTS, SENSORS = 100, 5
"""Of the line."""

SPEED, DIFFUSION, DAMPING = 1.0, 0.5, 0.97
"""Points a step, squared points a step, factor a step."""

ROUGH = 1e-6
"""Share of the noise's variance that is independent from point to point: Q has an inverse."""

NOISE_STD = 0.1
"""Of the readings; the field's own standard deviation is 1."""

READ, AHEAD = 40, 10
"""Steps with readings, and steps after them."""


def model() -> Linear:
    """Return the step and the law of each state."""
    wave = 2 * np.pi * np.fft.fftfreq(POINTS)
    spectrum = DAMPING * np.exp(-1j * wave * SPEED - DIFFUSION * wave**2)
    matrix = np.real(np.fft.ifft(spectrum[:, None] * np.fft.fft(np.eye(POINTS), axis=0), axis=0))
    apart = 2 * np.pi * np.subtract.outer(np.arange(POINTS), np.arange(POINTS)) / POINTS
    noise = np.exp(-2 * np.square(np.sin(apart / 2) / 0.3)) + ROUGH * np.eye(POINTS)
    covariance = solve_discrete_lyapunov(matrix, noise)
    size = covariance[0, 0]
    return Linear(matrix, noise / size, np.zeros(POINTS), covariance / size)


def simulate(runs: int, steps: int, generator: np.random.Generator) -> np.ndarray:
    """Return runs (runs, steps, POINTS)."""
    law, kept = model(), []
    state = generator.standard_normal((runs, POINTS)) @ root(law.covariance).T
    driving = root(law.noise).T
    for _ in range(steps):
        kept.append(state)
        state = state @ law.matrix.T + generator.standard_normal((runs, POINTS)) @ driving
    return np.stack(kept, 1)


def root(covariance: np.ndarray) -> np.ndarray:
    """Return a matrix whose square is a covariance, which may have no inverse."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


def exact(problem: Problem, smooth: bool) -> Answer:
    """Return the law of each step given past readings, or given those of all steps."""
    law, steps, found = model(), problem.truths.shape[1], []
    for index, readings in zip(problem.layouts, problem.readings, strict=True):
        before, after = common.kalman(law, readings, index, problem.noise_std, steps)
        found.append(common.rts(law, before, after) if smooth else after)
    return common.of_moments(found)


def linear(seed: int = 0, runs: int = 1000, steps: int = 30, tests: int = 50) -> Problem:
    """Return the problem; `steps` of a run to learn from."""
    generator = np.random.default_rng([seed, 1])
    truths = simulate(tests, READ + AHEAD, generator)
    train = simulate(runs, steps, generator)
    return common.make(
        "linear", train, truths, np.arange(float(POINTS))[:, None],
        [np.arange(0, POINTS, POINTS // SENSORS)] * tests, NOISE_STD, generator, read=READ,
        windows={"first": slice(0, 1), "second half": slice(READ // 2, READ)}
        | {f"lead {k}": slice(READ - 1 + k, READ + k) for k in (1, AHEAD)},
        peers={
            "kalman filter": partial(exact, smooth=False),
            "rts smoother": partial(exact, smooth=True),
            "persistence of the truth": common.persistence,
            **common.BASIC,
        },
        period=[float(POINTS)],
    )  # fmt: skip
