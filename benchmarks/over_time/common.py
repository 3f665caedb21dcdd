"""What a problem is, methods that several problems share, and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.people import inside, normal_crps, sample_crps


@dataclass(frozen=True)
class Answer:
    """Means and standard deviations of all test runs, points and steps; members where kept.

    Attributes
    ----------
    mean, std : ndarray (K, T', n)
    members : ndarray (K, S, T', n), optional
        Scored in place of the normal law that has this mean and std.
    """

    mean: np.ndarray
    std: np.ndarray
    members: np.ndarray | None = None


Method = Callable[["Problem"], Answer]


@dataclass(frozen=True)
class Problem:
    """Runs to learn from, test runs, and what sensors read of them.

    Attributes
    ----------
    name : str
    train : ndarray (N, T, n)
        Runs to learn from.
    times : ndarray (T,)
    points : ndarray (n, d)
    truths : ndarray (K, T', n)
        Test runs.
    test_times : ndarray (T',)
    layouts : list of K ndarrays (m,)
        Numbers of the points that sensors stand on, for each test run.
    noise_std : float
        Of the readings; independent and normal.
    readings : ndarray (K, F, m)
        Of the first F steps; there are none later.
    windows : dict of str to slice
        Steps that scores are averaged over.
    peers : dict of str to callable
        Methods by other code.
    period : list, optional
        Length after which an axis repeats, or None, for each axis of the points.
    constants, test_constants : dict of str to ndarray (N,) or (K,)
        Parameters of a run that no method is told in a test.
    stationary : bool
        Whether all steps have the same law. If not, test runs begin as the runs to learn from do.
    ahead : int
        An answer about step t may use readings up to step t - ahead.
    """

    name: str
    train: np.ndarray
    times: np.ndarray
    points: np.ndarray
    truths: np.ndarray
    test_times: np.ndarray
    layouts: list[np.ndarray]
    noise_std: float
    readings: np.ndarray
    windows: dict[str, slice]
    peers: dict[str, Method]
    period: list[float | None] | None = None
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    test_constants: dict[str, np.ndarray] = field(default_factory=dict)
    stationary: bool = True
    ahead: int = 0

    @property
    def filtered(self) -> int:
        """Number of steps with readings."""
        return self.readings.shape[1]

    @property
    def scale(self) -> float:
        """Root mean square of the runs' deviation from their mean; the unit of CRPS."""
        return float(np.sqrt(moments(self)[1].diagonal().mean()))


def make(
    name: str, train: np.ndarray, truths: np.ndarray, points: np.ndarray, layouts: list[np.ndarray],
    noise_std: float, generator: np.random.Generator, gap: float = 1.0, read: int | None = None,
    **more: Any,
) -> Problem:  # fmt: skip
    """Return a problem with frames `gap` of time apart, the first `read` of a test run read."""
    exact = np.stack([u[:read, at] for u, at in zip(truths, layouts, strict=True)])
    readings = exact + noise_std * generator.standard_normal(exact.shape)
    times, test_times = (gap * np.arange(u.shape[1]) for u in (train, truths))
    return Problem(
        name, train, times, points, truths, test_times, layouts, noise_std, readings, **more
    )


def moments(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (n,) and covariance (n, n) of all training frames."""
    frames = problem.train.reshape(-1, problem.train.shape[-1])
    return frames.mean(0), np.cov(frames.T)


def climatology(problem: Problem) -> Answer:
    """Return the mean and spread of the training runs; step by step if they are not stationary."""
    axes = (0, 1) if problem.stationary else 0
    mean, std = problem.train.mean(axes), problem.train.std(axes)
    shape = problem.truths.shape
    return Answer(np.broadcast_to(mean, shape), np.broadcast_to(std, shape))


def persistence(problem: Problem) -> Answer:
    """Hold the last true frame that an answer may know, told in full; before it, climatology."""
    base, steps = climatology(problem), np.arange(problem.truths.shape[1])
    mean, std = base.mean.copy(), base.std.copy()
    last = steps - problem.ahead if problem.ahead else np.full(len(steps), problem.filtered - 1)
    lag = np.minimum(steps - last, problem.train.shape[1] - 1)
    for step in steps[(last >= 0) & (lag > 0)]:
        mean[:, step] = problem.truths[:, last[step]]
    for one in np.unique(lag[lag > 0]):
        change = problem.train[:, one:] - problem.train[:, :-one]
        std[:, lag == one] = np.sqrt(np.square(change).mean((0, 1)))
    return Answer(mean, std)


def optimal_interpolation(problem: Problem) -> Answer:
    """Update the climatology with the readings of each step alone; climatology where none are."""
    base = climatology(problem)
    mean, std = base.mean.copy(), base.std.copy()
    centre, covariance = moments(problem)
    for k, index in enumerate(problem.layouts):
        noise = problem.noise_std**2 * np.eye(len(index))
        cross = covariance[:, index]
        gain = np.linalg.solve(cross[index] + noise, cross.T).T
        mean[k, : problem.filtered] = centre + (problem.readings[k] - centre[index]) @ gain.T
        variance = covariance.diagonal() - (gain * cross).sum(1)
        std[k, : problem.filtered] = np.sqrt(np.maximum(variance, 0))
    return Answer(mean, std)


BASIC: dict[str, Method] = {
    "optimal interpolation": optimal_interpolation,
    "climatology": climatology,
}
"""Methods that need no model."""


def rotation(size: int, generator: np.random.Generator) -> np.ndarray:
    """Return a random orthogonal matrix that maps the vector of ones to itself."""
    ones = np.full((size, 1), size**-0.5)
    basis = np.linalg.qr(np.concatenate([ones, np.eye(size)[:, 1:]], 1))[0][:, 1:]
    inner = np.linalg.qr(generator.standard_normal((size - 1, size - 1)))[0]
    return ones @ ones.T + basis @ inner @ basis.T


def etkf(
    step: Callable[[np.ndarray], np.ndarray], members: np.ndarray, readings: np.ndarray,
    index: np.ndarray, noise_std: float, inflation: float, generator: np.random.Generator,
    steps: int,
) -> np.ndarray:  # fmt: skip
    """Return members (S, steps, n) of an ensemble transform Kalman filter, each past readings only.

    Square root: Hunt, Kostelich and Szunyogh 2007; rotated at random at each step: Sakov and Oke
    2008. Where there are no readings any more, the members are a forecast.
    """
    size, kept = len(members), []
    for t in range(steps):
        members = step(members) if t else members
        if t < len(readings):
            mean = members.mean(0)
            apart = members - mean
            seen = apart[:, index] / noise_std
            values, vectors = np.linalg.eigh(seen @ seen.T + (size - 1) * np.eye(size))
            toward = seen @ ((readings[t] - mean[index]) / noise_std)
            weights = (vectors / values) @ (vectors.T @ toward)
            root = (vectors * np.sqrt((size - 1) / values)) @ vectors.T
            turn = inflation * rotation(size, generator) @ root
            members = mean + weights @ apart + turn @ apart
        kept.append(members)
    return np.stack(kept, 1)


def ensemble_filter(
    step: Callable[[np.ndarray], np.ndarray], size: int, inflation: float, keep: bool = False
) -> Method:
    """Return an `etkf` whose members start from training frames; `keep` its members."""

    def method(problem: Problem) -> Answer:
        generator, found = np.random.default_rng([size, 11]), []
        frames = problem.train.reshape(-1, problem.train.shape[-1])
        for index, readings in zip(problem.layouts, problem.readings, strict=True):
            start = frames[generator.choice(len(frames), size, replace=False)]
            members = etkf(step, start, readings, index, problem.noise_std, inflation, generator,
                           problem.truths.shape[1])  # fmt: skip
            found.append((members.mean(0), members.std(0, ddof=1), members if keep else None))
        mean, std, members = zip(*found, strict=True)
        return Answer(np.stack(mean), np.stack(std), np.stack(members) if keep else None)

    return method


class Linear(NamedTuple):
    """A linear step s' = matrix s + q, q ~ N(0, noise), and the law of the first state."""

    matrix: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


Moments = tuple[np.ndarray, np.ndarray]
"""Means (steps, n) and covariances (steps, n, n)."""


def kalman(
    model: Linear, readings: np.ndarray, index: np.ndarray, noise_std: float, steps: int
) -> tuple[Moments, Moments]:
    """Return moments before and after each step's readings; the update is in Joseph's form."""
    mean, covariance = model.mean, model.covariance
    before, after = [], []
    pick = np.eye(len(mean))[index]
    noise = noise_std**2 * np.eye(len(index))
    for t in range(steps):
        if t:
            mean = model.matrix @ mean
            covariance = model.matrix @ covariance @ model.matrix.T + model.noise
        before.append((mean, covariance))
        if t < len(readings):
            cross = covariance[:, index]
            gain = np.linalg.solve(cross[index] + noise, cross.T).T
            rest = np.eye(len(mean)) - gain @ pick
            mean = mean + gain @ (readings[t] - mean[index])
            covariance = rest @ covariance @ rest.T + gain @ noise @ gain.T
        after.append((mean, covariance))
    stacked = [tuple(map(np.stack, zip(*part, strict=True))) for part in (before, after)]
    return stacked[0], stacked[1]  # pyright: ignore[reportReturnType]


def rts(model: Linear, before: Moments, after: Moments) -> Moments:
    """Return means and covariances given all readings: Rauch, Tung and Striebel 1965."""
    mean, covariance = after[0].copy(), after[1].copy()
    for t in range(len(mean) - 2, -1, -1):
        gain = np.linalg.solve(before[1][t + 1], model.matrix @ covariance[t]).T
        mean[t] += gain @ (mean[t + 1] - before[0][t + 1])
        covariance[t] += gain @ (covariance[t + 1] - before[1][t + 1]) @ gain.T
    return mean, covariance


def of_moments(found: list[Moments]) -> Answer:
    """Return the answer whose means and covariances are these, test run by test run."""
    std = [np.sqrt(np.einsum("tii->ti", covariance)) for _, covariance in found]
    return Answer(np.stack([mean for mean, _ in found]), np.stack(std))


def by_frame(problem: Problem, answer: Answer) -> dict[str, np.ndarray]:
    """Return scores (K, T') of each frame: errors, CRPS over `scale`, spread, what bands hold."""
    truth, error = problem.truths, answer.mean - problem.truths
    found = {
        "rmse": np.sqrt(np.square(error).mean(-1)),
        "percent": 100 * np.linalg.norm(error, axis=-1) / np.linalg.norm(truth, axis=-1),
        "spread": np.sqrt(np.square(answer.std).mean(-1)),
    }
    if answer.members is None:
        with np.errstate(over="ignore"):  # where a method is certain
            crps = normal_crps(answer.mean, answer.std, truth)
        wide = [norm.ppf((1 + level) / 2) * answer.std for level in (0.5, 0.9)]
        bands = [(answer.mean - one, answer.mean + one) for one in wide]
    else:
        crps = np.stack(
            [sample_crps(members.reshape(len(members), -1), u.ravel()).reshape(u.shape)
             for members, u in zip(answer.members, truth, strict=True)]
        )  # fmt: skip
        cuts = np.quantile(answer.members, [0.25, 0.75, 0.05, 0.95], axis=1)
        bands = [(cuts[0], cuts[1]), (cuts[2], cuts[3])]
    found["crps"] = crps.mean(-1) / problem.scale
    rows = -1, truth.shape[-1]
    for name, (lower, upper) in zip(("held_50", "held_90"), bands, strict=True):
        held = inside(lower.reshape(rows), upper.reshape(rows), truth.reshape(rows))
        found[name] = 100 * held.reshape(truth.shape[:2])
    return found


def scores(problem: Problem, method: str, answer: Answer) -> pd.DataFrame:
    """Return a row for each window: means over test runs and steps, and the median run's error."""
    frames, rows = by_frame(problem, answer), []
    for window, steps in problem.windows.items():
        row: dict[str, object] = {"problem": problem.name, "window": window, "method": method}
        row |= {name: float(one[:, steps].mean()) for name, one in frames.items()}
        row["median_run"] = float(np.median(frames["percent"][:, steps].mean(1)))
        rows.append(row)
    return pd.DataFrame(rows)


def beside(answer: Answer, exact: Answer) -> dict[str, float]:
    """Return how far means are apart, in exact standard deviations, and the ratio of those."""
    off = (answer.mean - exact.mean) / exact.std
    return {"off": float(np.sqrt(np.square(off).mean())),
            "wide": float((answer.std / exact.std).mean())}  # fmt: skip
