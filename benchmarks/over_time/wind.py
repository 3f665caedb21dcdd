"""Irish wind, 1961 to 1978: tomorrow at twelve stations, from the readings of four until today.

Haslett and Raftery, "Space-time modelling with long-memory dependence: assessing Ireland's wind
power resource", Applied Statistics 38 (1989): daily means in knots. As theirs, fields are square
roots of speeds less a season that all stations share and less each station's mean, both fitted to
the years to learn from, here the first twelve. A score is of each day of the last six years.

The table is `wind` of the R package gstat; Debian has it as r-cran-gstat. With PyPI's rdata:

    apt-get download r-cran-gstat && dpkg-deb -x r-cran-gstat_*.deb gstat && pip install rdata
    python -c "import rdata; rdata.read_rda('gstat/usr/lib/R/site-library/gstat/data/wind.rda') \\
        ['wind'].to_csv('wind.csv', index=False)"
    python -m benchmarks.over_time --only wind --wind wind.csv

Expected: root mean square error in square roots of knots, CRPS over the field's standard deviation,
what bands of 50 and 90 % hold.

    uqsonet                             0.598  0.473  51  91
    kalman filter of an autoregression  0.598  0.473  51  91
    ridge on two days                   0.598  0.473  51  90
    persistence, told all stations      0.664  0.532  53  91
    climatology                         0.696  0.556  50  91
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import solve_discrete_lyapunov

from benchmarks.over_time import common
from benchmarks.over_time.common import Answer, Linear, Problem

STATIONS = ["RPT", "VAL", "ROS", "KIL", "SHA", "BIR", "DUB", "CLA", "MUL", "CLO", "BEL", "MAL"]
"""The columns of the table."""

DEGREES = np.array([
    (-8.25, 51.80), (-10.25, 51.93), (-6.36, 52.28), (-7.27, 52.67), (-8.92, 52.70), (-7.88, 53.08),
    (-6.25, 53.43), (-8.98, 53.72), (-7.37, 53.53), (-7.23, 54.18), (-10.00, 54.23), (-7.33, 55.37),
])  # fmt: skip
"""Longitude and latitude of the stations, from the package's `wind.loc`."""

READ = [1, 5, 6, 11]
"""The stations that are read: Valentia, Birr, Dublin and Malin Head."""

YEARS = 12
"""To learn from."""

RIDGE = 1.0
"""Added to sums of squares over some 4,000 days; of little effect."""


def ridge(problem: Problem) -> Answer:
    """Return a regression of tomorrow on the four readings of today and of yesterday."""
    index, train = problem.layouts[0], problem.train[0]

    def lags(readings: np.ndarray) -> np.ndarray:
        return np.concatenate([readings[1:-1], readings[:-2]], 1)

    known = lags(train[:, index])
    square = known.T @ known + RIDGE * np.eye(known.shape[1])
    weights = np.linalg.solve(square, known.T @ train[2:])
    base = common.climatology(problem)
    mean, std = base.mean.copy(), base.std.copy()
    mean[0, 2:] = lags(problem.readings[0]) @ weights
    std[0, 2:] = (train[2:] - known @ weights).std(0)
    return Answer(mean, std)


def vector_autoregression(problem: Problem) -> Answer:
    """Return the Kalman filter of the linear step that fits all twelve stations' days best."""
    train = problem.train[0]
    matrix = np.linalg.lstsq(train[:-1], train[1:], rcond=None)[0].T
    noise = np.cov((train[1:] - train[:-1] @ matrix.T).T)
    covariance = solve_discrete_lyapunov(matrix, noise)
    law = Linear(matrix, noise, np.zeros(len(matrix)), covariance)
    steps = problem.truths.shape[1]
    before, _ = common.kalman(law, problem.readings[0], problem.layouts[0], 0.0, steps)
    return common.of_moments([before])


def wind(path: Path, seed: int = 0) -> Problem:
    """Return the problem; `seed` has no effect, since nothing is random."""
    table = pd.read_csv(path)
    learn = int(np.sum(table["year"].to_numpy() < 61 + YEARS))
    root = np.sqrt(table[STATIONS].to_numpy(float))
    turn = 2 * np.pi * np.arange(len(table)) / 365.25
    waves = [np.cos(turn), np.sin(turn), np.cos(2 * turn), np.sin(2 * turn)]
    season = np.stack([np.ones(len(table)), *waves], 1)
    shared = np.linalg.lstsq(season[:learn], root[:learn].mean(1), rcond=None)[0]
    field = root - (season @ shared)[:, None]
    field = (field - field[:learn].mean(0))[None]
    return common.make(
        "wind", field[:, :learn], field[:, learn:],
        111.2 * (DEGREES - DEGREES.mean(0)) * np.array([np.cos(np.deg2rad(53)), 1]),
        [np.array(READ)], 0.0, np.random.default_rng(seed),
        windows={"tomorrow": slice(2, None)},
        peers={
            "kalman filter of an autoregression": vector_autoregression,
            "ridge on two days": ridge,
            "persistence, told all stations": common.persistence,
            "climatology": common.climatology,
        },
        ahead=1,
    )  # fmt: skip
