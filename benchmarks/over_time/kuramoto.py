"""Kuramoto-Sivashinsky, u_t = -u_xx - nu u_xxxx - u u_x on a periodic line: three problems.

`shred`: 400 runs from starts of one frequency, each with a nu of its own that nobody is told; two
sensors without noise, at random points for each test run. Recipe: the notebook
KuramotoSivashinsky of github.com/MatteoTomasetto/SHRED-ROM, to Tomasetto and others, "Reduced order
modeling with shallow recurrent decoder networks", Nature Communications (2025). Its network
reads the last 50 frames of two sensors at the same points in all runs, has no bands, and errs by
9.13 % (relative error, mean over frames and runs).
`dapper`: 128 points, all read with a noise of variance 1 at every unit of time. Recipe: Bocquet and
Farchi (2019) as `dapper.mods.KS.bocquet2019` of DAPPER has it; its list of root mean square errors:
climatology 1.3, optimal interpolation 0.5, ensemble filter of 20 that owns the solver 0.115, with
localisation and 16 members 0.11. DAPPER starts near the truth; here members start anywhere, which
20 do not survive.
`lead`: 8 of 64 points are read 40 times with a noise of a tenth of the field's standard deviation,
then there is a forecast of 80 steps.

    python -m benchmarks.over_time --only shred1 shred shred3 shred5 dapper lead

Expected, seed 0 (`uqsonet` on `shred`: the first 20 of its 50 test runs): relative error in
percent, CRPS over the field's standard deviation, what bands of 50 and 90 % hold (for `dapper`,
the root mean square error comes first).

    shred, 1 sensor, 201 frames   uqsonet filter         36.4   0.196  57  91   median run 23.7
                                  uqsonet smoother       33.5   0.187  53  89   median run 19.7
    shred, 2 sensors, 201 frames  uqsonet filter          3.26  0.012  64  91   median run 2.0
                                  uqsonet smoother        1.66  0.008  63  90   median run 0.7
                                  nearest pieces         22.9   0.126  53  86   median run 15.3
                                  optimal interpolation  65.5   0.369  50  90
                                  climatology           101.2   0.577  42  94
    shred, frames after 50        uqsonet filter          1.17  0.007  64  91   median run 0.4
                                  nearest pieces         21.6   0.126  52  85   median run 13.2
    shred, 3 sensors, 201 frames  uqsonet filter          1.68  0.006  64  90   median run 1.1
                                  uqsonet smoother        0.59  0.003  68  92   median run 0.3
                                  nearest pieces         18.9   0.103  56  87   median run 11.8
                                  optimal interpolation  52.6   0.291  54  91
    shred, 5 sensors, 201 frames  uqsonet filter          0.85  0.004  66  91   median run 0.6
                                  uqsonet smoother        0.43  0.002  70  92   median run 0.3
    dapper                        uqsonet filter         0.179  0.072  33  70
                                  uqsonet smoother       0.124  0.053  29  63
                                  etkf 40, true solver   0.101  0.038  55  93
                                  etkf 30, true solver   0.107  0.040  57  94
                                  optimal interpolation  0.528  0.228  50  90
                                  climatology            1.307  0.575  45  91
    lead, last 20 with readings   uqsonet filter           2.15  0.012  44  86
                                  etkf 200, true solver   1.96  0.010  51  90
    lead 1                        uqsonet                  1.88  0.010  49  85
                                  etkf 200, true solver   1.65  0.009  53  90
    lead 5                        uqsonet                  2.99  0.017  41  84
                                  etkf 200, true solver   2.61  0.015  49  85
    lead 10                       uqsonet                  3.87  0.021  39  79
                                  etkf 200, true solver   3.21  0.018  49  85
    lead 20                       uqsonet                  7.31  0.038  44  82
                                  etkf 200, true solver   5.41  0.031  58  85
    lead 40                       uqsonet                 27.67  0.164  40  75
                                  etkf 200, true solver  22.28  0.137  54  85
    lead 80                       uqsonet                 60.36  0.341  52  88
                                  etkf 200, true solver  52.69  0.287  55  90
    lead 1                        persistence of the truth 18.4 0.108  68  92
    lead 5                        persistence of the truth 80.4 0.471  62  89
    lead 5                        climatology            99.81  0.563  49  91
"""

from __future__ import annotations

import numpy as np
from numpy.fft import irfft, rfft

from benchmarks.over_time import common
from benchmarks.over_time.common import Answer, Problem

ROOTS = 32
"""Points of the circle that coefficients are averaged over."""

READINGS = 20
"""The last readings that `nearest` compares."""

NEAREST = 12
"""Pieces of runs that `nearest` averages."""


class Solver:
    """ETDRK4 of Cox and Matthews (2002), coefficients as Kassam and Trefethen (2005).

    Parameters
    ----------
    length : float
        Period of the line.
    points : int
        Even number of grid points, at even distances.
    step : float
        Of time.
    nu : float or ndarray (N,)
        One for each run, in this order.
    """

    def __init__(
        self, length: float, points: int, step: float, nu: float | np.ndarray = 1.0
    ) -> None:
        wave = 2 * np.pi / length * np.arange(points // 2 + 1)
        linear = step * (wave**2 - np.asarray(nu)[..., None] * wave**4)
        circle = np.exp(2j * np.pi * (np.arange(ROOTS) + 0.5) / ROOTS)
        z = linear[..., None] + circle
        e = np.exp(z)
        self.half, self.whole = np.exp(linear / 2), np.exp(linear)
        self.inner = step * np.mean((np.exp(z / 2) - 1) / z, -1).real
        self.first = step * np.mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3, -1).real
        self.middle = step * np.mean((4 + 2 * z + e * (-4 + 2 * z)) / z**3, -1).real
        self.last = step * np.mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3, -1).real
        self.slope = -0.5j * wave
        self.slope[-1] = 0  # the highest wave of an even grid has no slope there
        self.points = points

    def flux(self, hat: np.ndarray) -> np.ndarray:
        """Return the transform of -u u_x."""
        return self.slope * rfft(irfft(hat, self.points) ** 2)

    def __call__(self, u: np.ndarray, steps: int) -> np.ndarray:
        """Return fields (N, points) after some steps."""
        hat = rfft(u)
        for _ in range(steps):
            one = self.flux(hat)
            half = self.half * hat
            a = half + self.inner * one
            two = self.flux(a)
            b = half + self.inner * two
            three = self.flux(b)
            c = self.half * a + self.inner * (2 * three - one)
            hat = self.whole * hat + self.first * one + self.middle * (two + three)
            hat += self.last * self.flux(c)
        return irfft(hat, self.points)

    def frames(self, u: np.ndarray, count: int, every: int) -> np.ndarray:
        """Return runs (N, count, points), a frame at the start and after each `every` steps."""
        kept = [u]
        for _ in range(count - 1):
            kept.append(self(kept[-1], every))
        return np.stack(kept, 1)


def grid(length: float, points: int) -> np.ndarray:
    """Return the places (points, 1) of the grid."""
    return length / points * np.arange(points)[:, None]


def on_attractor(
    solver: Solver, runs: int, steps: int, generator: np.random.Generator
) -> np.ndarray:
    """Return fields (runs, points) that began as a few random waves and forgot them."""
    waves = generator.standard_normal((runs, 8)) + 1j * generator.standard_normal((runs, 8))
    hat = np.zeros((runs, solver.points // 2 + 1), complex)
    hat[:, 1:9] = solver.points / 8 * waves
    return solver(irfft(hat, solver.points), steps)


def nearest(problem: Problem) -> Answer:
    """Average the pieces of training runs whose last readings are the nearest; spread as theirs."""
    frames = problem.train.reshape(-1, problem.train.shape[-1])
    mean, std = np.empty_like(problem.truths), np.empty_like(problem.truths)
    for k, index in enumerate(problem.layouts):
        known, new = (last(y) for y in (problem.train[:, :, index], problem.readings[k][None]))
        square = (known**2).sum(1) - 2 * new @ known.T
        rows = np.argpartition(square, NEAREST, axis=1)[:, :NEAREST]
        mean[k], std[k] = frames[rows].mean(1), frames[rows].std(1, ddof=1)
    return Answer(mean, std)


def last(readings: np.ndarray) -> np.ndarray:
    """Return the last readings (N T, READINGS m) of each frame (N, T, m); zeros before a run."""
    zeros = np.zeros((len(readings), READINGS - 1, readings.shape[2]))
    padded = np.concatenate([zeros, readings], 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, READINGS, axis=1)
    return windows.reshape(-1, readings.shape[2] * READINGS).astype(np.float32)


def shred(
    seed: int = 0, runs: int = 400, tests: int = 50, sensors: int = 2, frames: int = 201
) -> Problem:
    """Return the problem of PySHRED; the grid of u0 has both ends, as theirs."""
    length, points, generator = 22.0, 100, np.random.default_rng([seed, 2])
    nu = generator.uniform(1, 2, runs + tests)
    omega = generator.uniform(1, 5, runs + tests)
    turn = 2 * np.pi * omega[:, None] * np.linspace(0, 1, points)
    solver = Solver(length, points, 0.05, nu)
    u = solver.frames(np.cos(turn) * (1 + np.sin(turn)), frames, 20)
    layouts = [generator.choice(points, sensors, replace=False) for _ in range(tests)]
    return common.make(
        f"shred, {sensors} sensors", u[:runs], u[runs:], grid(length, points), layouts, 0.0,
        generator,
        windows={"all": slice(0, frames)}
        | {f"after {k}": slice(min(k, frames - 1), frames) for k in (20, 50)},
        peers={"nearest pieces": nearest, **common.BASIC},
        period=[length],
        constants={"nu": nu[:runs]},
        test_constants={"nu": nu[runs:]},
        stationary=False,
    )  # fmt: skip


def dapper(
    seed: int = 0, runs: int = 200, steps: int = 60, tests: int = 2, series: int = 300
) -> Problem:
    """Return the problem of DAPPER."""
    length, points, generator = 32 * np.pi, 128, np.random.default_rng([seed, 3])
    solver = Solver(length, points, 0.5)
    start = on_attractor(solver, runs + tests, 400, generator)
    train, truths = solver.frames(start[:runs], steps, 2), solver.frames(start[runs:], series, 2)
    peers = {
        f"etkf {size}, true solver": common.ensemble_filter(lambda u: solver(u, 2), size, inflation)
        for size, inflation in ((30, 1.03), (40, 1.02))
    }
    return common.make(
        "dapper", train, truths, grid(length, points), [np.arange(points)] * tests, 1.0, generator,
        windows={"after 50": slice(min(50, series // 2), series)},
        peers=peers | common.BASIC,
        period=[length],
    )  # fmt: skip


def lead(seed: int = 0, runs: int = 1500, steps: int = 60, tests: int = 20) -> Problem:
    """Return the problem of 8 sensors, 40 steps with readings and 80 without."""
    length, points, read, generator = 22.0, 64, 40, np.random.default_rng([seed, 4])
    solver = Solver(length, points, 0.25)
    start = on_attractor(solver, runs + tests, 800, generator)
    train, truths = solver.frames(start[:runs], steps, 4), solver.frames(start[runs:], read + 80, 4)
    return common.make(
        "lead", train, truths, grid(length, points), [np.arange(0, points, points // 8)] * tests,
        0.1 * float(train.std()), generator, read=read,
        windows={"filtering": slice(read // 2, read)}
        | {f"lead {k}": slice(read - 1 + k, read + k) for k in (1, 5, 10, 20, 40, 80)},
        peers={
            "etkf 200, true solver": common.ensemble_filter(lambda u: solver(u, 4), 200, 1.0, True),
            "persistence of the truth": common.persistence,
            "climatology": common.climatology,
        },
        period=[length],
    )  # fmt: skip
