"""`uqsonet` on these problems."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

import uqsonet
from benchmarks.over_time.common import Answer, Problem
from uqsonet.fields.grid import Grid

LOG = logging.getLogger(__name__)

MEMBERS = 300
"""Trajectories that bands are read off."""

WINDOW = 20
"""Instants back that a forecast of one step looks, where a problem asks for each day's own."""


def runs_of(problem: Problem) -> uqsonet.Trajectories:
    """Return the runs to learn from."""
    points: Any = problem.points
    if problem.period is not None and problem.points.shape[1] == 1:
        length = problem.period[0]
        if length is not None:
            lower = float(points[0, 0])
            points = Grid((lower,), (lower + length,), (len(points),), True)
    return uqsonet.Trajectories(
        {"u": (problem.train, points)}, problem.times, constants=problem.constants
    )


def ours(problem: Problem) -> dict[str, Answer]:
    """Return answers by the name of the method: filter and smoother, each with its forecast."""
    model = uqsonet.fit_dynamics(runs_of(problem), bar=False)
    LOG.info("%s", model.card)
    if problem.ahead:
        return {"uqsonet": ahead(problem, model)}
    found: dict[str, list[np.ndarray]] = {"uqsonet filter": [], "uqsonet smoother": []}
    step = problem.test_times[1] - problem.test_times[0]
    # Runs that begin anywhere do not begin where those to learn from do.
    later = 0 if not problem.stationary else 10_000 * step
    times = problem.test_times + later
    for k, layout in enumerate(problem.layouts):
        for name, smooth in (("uqsonet filter", False), ("uqsonet smoother", True)):
            answer = model.condition(
                problem.points[layout], problem.readings[k], noise_std=problem.noise_std,
                times=times[: problem.filtered], until=times[-1], smooth=smooth,
            )  # fmt: skip
            drawn = np.asarray(answer["u"].sample(MEMBERS))
            found[name].append(drawn.transpose(1, 0, 2))
    return {
        name: Answer(np.stack([m.mean(0) for m in members]), np.stack([m.std(0) for m in members]),
                     np.stack(members))
        for name, members in found.items()
    }  # fmt: skip


def ahead(problem: Problem, model: uqsonet.Dynamics) -> Answer:
    """Return what each instant of the tests is thought to be, given readings before it."""
    means, stds = (np.empty_like(problem.truths) for _ in range(2))
    for k, layout in enumerate(problem.layouts):
        for t in range(problem.truths.shape[1]):
            some = slice(max(0, t - WINDOW - problem.ahead + 1), t - problem.ahead + 1)
            given: tuple[Any, ...] = ()
            when = problem.test_times[some]
            if len(when):
                given = problem.points[layout], problem.readings[k, some]
            answer = model.condition(
                *given, noise_std=problem.noise_std, times=when if len(when) else [0],
                until=problem.test_times[t], smooth=False,
            )  # fmt: skip
            means[k, t], stds[k, t] = answer["u"].mean()[-1], answer["u"].std()[-1]
    return Answer(means, stds)
