"""Lorenz 96, u_i' = (u_{i+1} - u_{i-2}) u_{i-1} - u_i + 8 on a ring: two problems.

`spantini2019`: 40 variables, every second one read every 0.4 with a noise of variance 0.5. Recipe:
Spantini, Baptista and Marzouk, "Coupling techniques for nonlinear ensemble filtering" (2019), as
`dapper.mods.Lorenz96.spantini2019` of DAPPER has it; its list of root mean square errors:
climatology 3.6, optimal interpolation 2.5, 3D-Var 2.3, ensemble filter of 100 0.97, with
localisation 0.84, iterative ensemble smoother of 100 with two steps' lag 0.43.
`bocquet2010`: 10 variables, every second one read every 0.05 with a noise of variance 2.25. Recipe:
Bocquet, Pires and Wu, "Beyond Gaussian statistical modeling in geophysical data assimilation"
(2010), as `dapper.mods.Lorenz96.bocquet2010` has it; its list: ensemble filter of 8 0.44, particle
filter of 800 0.28. Many particles come close to the exact law, bands and all.

All these methods own the true model; `uqsonet` has the runs to learn from alone.

    python -m benchmarks.over_time --only spantini2019 bocquet2010

Expected, seed 0, two test series: root mean square error, CRPS over the standard deviation, what
bands of 50 and 90 % hold. The ensemble of 40 has too few members for its spread to be right. Where
readings are frequent and growth is fast (`bocquet2010`), the spread of `uqsonet` is that of a few
far members: most stand too close together.

    spantini2019  uqsonet filter                    1.405  0.191  52  92
                  uqsonet smoother                  1.171  0.164  47  88
                  etkf 100, true model              0.951  0.132  55  93
                  etkf 40, true model               1.634  0.238  37  73
                  optimal interpolation             2.544  0.333  48  90
                  climatology                       3.632  0.571  47  90
    bocquet2010   uqsonet filter                    0.511  0.088  22  62
                  uqsonet smoother                  0.319  0.056  17  53
                  particle filter 5000, true model  0.297  0.046  53  90
                  20,000 that move by 0.2           0.281  0.044  53  89
                  etkf 20, true model               0.383  0.061  56  92
                  optimal interpolation             2.595  0.381  49  90
                  climatology                       3.585  0.567  48  90
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.over_time import common
from benchmarks.over_time.common import Answer, Method, Problem

FORCE = 8.0
"""Of the equation."""

SPIN_UP = 20.0
"""Time after which a start is forgotten."""

PARTICLES, KEPT = 5000, 200
"""Of the particle filter, and those that are scored."""


JITTER, EFFECTIVE = 0.4, 0.2
"""Standard deviations that a drawn particle moves; share of particles below which it is drawn."""


def slope(u: np.ndarray) -> np.ndarray:
    """Return the time derivative of states (..., n)."""
    return (np.roll(u, -1, -1) - np.roll(u, 2, -1)) * np.roll(u, 1, -1) - u + FORCE


def advance(u: np.ndarray, step: float, steps: int) -> np.ndarray:
    """Return states after some steps of the classic fourth-order method of Runge and Kutta."""
    for _ in range(steps):
        one = slope(u)
        two = slope(u + step / 2 * one)
        three = slope(u + step / 2 * two)
        four = slope(u + step * three)
        u = u + step / 6 * (one + 2 * (two + three) + four)
    return u


def simulate(
    runs: int, points: int, frames: int, step: float, every: int, generator: np.random.Generator
) -> np.ndarray:
    """Return runs (runs, frames, points) that have forgotten their starts."""
    start = FORCE + generator.standard_normal((runs, points))
    kept = [advance(start, step, round(SPIN_UP / step))]
    for _ in range(frames - 1):
        kept.append(advance(kept[-1], step, every))
    return np.stack(kept, 1)


def particle_filter(step: Callable[[np.ndarray], np.ndarray]) -> Method:
    """Return a bootstrap particle filter, resampled where few particles weigh much.

    It starts from all training frames. A particle that is drawn is moved toward the mean and at
    random by `JITTER` standard deviations: mean and covariance stay.
    """

    def method(problem: Problem) -> Answer:
        generator, found = np.random.default_rng(13), []
        frames = problem.train.reshape(-1, problem.train.shape[-1])
        for index, readings in zip(problem.layouts, problem.readings, strict=True):
            members, logs, kept = frames, np.zeros(len(frames)), []
            for t, reading in enumerate(readings):
                members = step(members) if t else members
                logs -= np.square((members[:, index] - reading) / problem.noise_std).sum(1) / 2
                weights = np.exp(logs - logs.max())
                weights /= weights.sum()
                kept.append(members[drawn(weights, KEPT, generator)])
                if 1 / np.square(weights).sum() < EFFECTIVE * len(logs):
                    members = members[drawn(weights, PARTICLES, generator)]
                    mean, covariance = members.mean(0), np.cov(members.T)
                    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
                    noise = generator.standard_normal(members.shape) @ root.T
                    members = mean + np.sqrt(1 - JITTER**2) * (members - mean) + JITTER * noise
                    logs = np.zeros(PARTICLES)
            found.append(np.stack(kept, 1))
        all_kept = np.stack(found)
        return Answer(all_kept.mean(1), all_kept.std(1, ddof=1), all_kept)

    return method


def drawn(weights: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return the numbers of particles drawn at even steps of their weights' sum."""
    places = (np.arange(count) + generator.random()) / count
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def every_second(
    name: str, variance: float, train: np.ndarray, truths: np.ndarray, gap: float, burn: int,
    peers: dict[str, Method], generator: np.random.Generator,
) -> Problem:  # fmt: skip
    """Return a problem whose every second variable is read at each frame, `gap` of time apart."""
    points, series = train.shape[2], truths.shape[1]
    return common.make(
        name, train, truths, np.arange(float(points))[:, None],
        [np.arange(0, points, 2)] * len(truths), variance**0.5, generator, gap,
        windows={f"after {burn}": slice(min(burn, series // 2), series)},
        peers=peers | common.BASIC,
        period=[float(points)],
    )  # fmt: skip


def spantini2019(
    seed: int = 0, runs: int = 1000, steps: int = 20, tests: int = 2, series: int = 500
) -> Problem:
    """Return the problem of 40 variables and rare readings."""
    generator = np.random.default_rng([seed, 5])
    train = simulate(runs, 40, steps, 0.02, 20, generator)
    truths = simulate(tests, 40, series, 0.02, 20, generator)
    peers = {
        f"etkf {size}, true model": common.ensemble_filter(
            lambda u: advance(u, 0.02, 20), size, 1.1
        )
        for size in (40, 100)
    }
    return every_second("spantini2019", 0.5, train, truths, 0.4, 50, peers, generator)


def bocquet2010(
    seed: int = 0, runs: int = 500, steps: int = 60, tests: int = 2, series: int = 1280
) -> Problem:
    """Return the problem of 10 variables and frequent readings."""
    generator = np.random.default_rng([seed, 6])
    train = simulate(runs, 10, steps, 0.05, 1, generator)
    truths = simulate(tests, 10, series, 0.05, 1, generator)
    peers = {
        f"particle filter {PARTICLES}, true model": particle_filter(lambda u: advance(u, 0.05, 1)),
        "etkf 20, true model": common.ensemble_filter(lambda u: advance(u, 0.05, 1), 20, 1.02),
    }
    return every_second("bocquet2010", 2.25, train, truths, 0.05, 400, peers, generator)
