"""Section 4.5 step by step: four sensors read the vorticity at every unit of time, not only at 0.

An answer about a time knows readings until then, and is scored on the points that training sees.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.fit import fit_dynamics
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.errors import DataError
from uqsonet.fitting.fit import fit
from uqsonet.gauss.gaussian import condition
from uqsonet.gauss.seeds import numpy_generator, seed_sequence
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import Runs
from uqsonet_study.jobs import log_rows
from uqsonet_study.layouts import load_layouts
from uqsonet_study.problems.navier_stokes import NavierStokes
from uqsonet_study.settings import OverTime
from uqsonet_study.solvers.navier_stokes import solve_navier_stokes
from uqsonet_study.storage import ArrayFile, write_arrays

KIND, PROBLEM = "trajectories", NavierStokes()
GRID, SEEN = PROBLEM.training_grid()
SENSORS, NOISE = 4, 0.01  # their number; standard deviation over that of the vorticity
UNIT, BLOCK = 1.0, 40  # length of a step; runs that are solved at a time
SHOTS = (1, 2, 5, 10)  # times that operators from time 0 are learned for, a minute or two each

Moments = np.ndarray
"""Means and standard deviations (2, K, T, n), of times 1, 2, ..., T."""


def solved(w: Tensor, steps: int) -> Tensor:
    """Return fields (B, steps + 1, n), float64, from initial ones (B, n) on."""
    about = PROBLEM.forcing, PROBLEM.viscosity, UNIT, PROBLEM.tolerance
    frames = [w.reshape(-1, *PROBLEM.grid.shape)]
    for _ in range(steps):
        frames.append(solve_navier_stokes(frames[-1], *about))
    return torch.stack(frames, 1).flatten(2)


def simulate_over_time(config: OverTime, seed: int, path: Path) -> None:
    """Store runs (size, T + 1, n), float32; test runs on all points, as sensors stand anywhere."""

    def runs(split: str, size: int, points: Any) -> list[np.ndarray]:
        first = PROBLEM.prior.draw(numpy_generator(seed, PROBLEM.name, KIND, split), size)
        return [solved(w, config.steps)[..., points].float().numpy() for w in first.split(BLOCK)]

    training = runs("training", config.training, SEEN)
    arrays = {"training": training, "test": runs("test", config.test, slice(None))}
    meta = {"problem": PROBLEM.name, "seed": seed, "sampled_in": "float64"}
    write_arrays(path, KIND, meta, arrays)


class Task(NamedTuple):
    """Runs to learn from, and what sensors read of K test runs."""

    config: OverTime
    seed: int
    training: np.ndarray  # (N, T + 1, n)
    truths: np.ndarray  # (K, T, n)
    places: np.ndarray  # (K, m), of the whole grid
    readings: np.ndarray  # (K, T + 1, m)
    noise_std: float

    @property
    def locations(self) -> np.ndarray:
        """Sensors (K, m, 2)."""
        return PROBLEM.grid.points().numpy()[self.places]


def sensor_free(task: Task) -> Moments:
    """Return the law of the training runs, whatever sensors read."""
    law = np.stack([task.training[:, 1:].mean(0), task.training[:, 1:].std(0)])
    return np.broadcast_to(law[:, None], (2, *task.truths.shape))


def one_shot(task: Task) -> Moments:
    """Learn an operator for some times, and give it the readings at time 0 alone; else NaN."""
    first = FieldRuns.of(task.training[:, 0], GRID)
    moments = np.full((2, *task.truths.shape), np.nan)
    for t in {*SHOTS, task.config.steps} & {*range(task.config.steps + 1)}:
        runs = Runs({"w_0": first}, {"w": FieldRuns.of(task.training[:, t], GRID)})
        model = fit(runs, sensors=[SENSORS], noise_std=task.noise_std, rng=task.seed)
        answer = model.condition(task.locations, task.readings[:, 0])
        moments[:, :, t - 1] = answer.mean(), answer.std()
    return moments


def filtered(task: Task) -> Moments:
    """Learn a step, and filter the readings of all times with it.

    Nobody says that the grid is periodic: convolutions, which take ten times as long, are left out.
    """
    runs = Trajectories({"w": (task.training, tuple(one.numpy() for one in GRID.axes()))})
    model, found = fit_dynamics(runs, rng=task.seed), []
    for locations, values in zip(task.locations, task.readings, strict=True):
        answer = model.condition(locations, values, noise_std=task.noise_std, smooth=False)
        found.append((answer.mean()[1:], answer.std()[1:]))
    return np.stack(found, 1)


def ensemble(task: Task) -> Moments:
    """Return a square-root ensemble Kalman filter, neither inflated nor localised, that solves."""
    found, size = [], task.config.members
    for k, (places, readings) in enumerate(zip(task.places, task.readings, strict=True)):
        members = PROBLEM.prior.draw(numpy_generator(task.seed, KIND, "ensemble", k), size)
        for t, values in enumerate(torch.from_numpy(readings)):
            members = solved(members, 1)[:, 1] if t else members
            mean = members.mean(0)
            apart = (members - mean) / (size - 1) ** 0.5
            law = condition(apart[:, places].T, values - mean[places], task.noise_std, None)
            mean, apart = mean + law.mean @ apart, law.root @ apart
            members = mean + apart * (size - 1) ** 0.5
            found.append((mean[SEEN].numpy(), apart[:, SEEN].norm(dim=0).numpy()))
    shape = 2, len(task.places), task.config.steps + 1, -1
    return np.stack(found, 1).reshape(shape)[:, :, 1:]


METHODS: dict[str, Callable[[Task], Moments]] = {
    "sensor_free": sensor_free, "one_shot": one_shot, "filter": filtered, "ensemble": ensemble,
}  # fmt: skip


def answer_over_time(
    method: str, config: OverTime, seed: int, trajectories: Path, sensors: Path, out: Path
) -> None:
    """Write the scores of a method by time (CSV), means over test runs.

    They are the relative L2 error of the mean in percent, with its standard error, and the root
    mean square of the std over that of the error, both relative to the true field.
    """
    places = load_layouts(sensors, "test")[SENSORS][: config.test].numpy()
    if len(places) < config.test:
        raise DataError(f"{sensors}: {len(places)} layouts, over_time.test asks for {config.test}")
    with ArrayFile(trajectories, KIND) as file:
        training, runs = file.read("training"), file.read("test").astype(np.float64)
    noise_std = NOISE * float(training.std(dtype=np.float64))
    readings = np.take_along_axis(runs, places[:, None], 2)
    noise = numpy_generator(seed, PROBLEM.name, KIND, "noise").standard_normal(readings.shape)
    own = int(seed_sequence(seed, PROBLEM.name, KIND, method).generate_state(1)[0])
    truths, readings = runs[:, 1:, SEEN.numpy()], readings + noise_std * noise
    task = Task(config, own, training, truths, places, readings, noise_std)
    mean, std = METHODS[method](task)
    size, off, wide = (np.linalg.norm(one, axis=2) for one in (truths, mean - truths, std))
    error, spread, rows = off / size, wide / size, []
    ratio = ((spread**2).mean(0) / (error**2).mean(0)) ** 0.5
    doubt = error.std(0, ddof=1) / len(error) ** 0.5
    for t in np.flatnonzero(np.isfinite(ratio)):
        where = {"method": method, "time": UNIT * (t + 1)}
        number = {"value": 100 * error[:, t].mean(), "pm": 100 * doubt[t]}
        rows.append(where | {"metric": "error", "unit": "percent"} | number)
        rows.append(where | {"metric": "ratio", "unit": "1", "value": ratio[t]})
    log_rows(out, rows)
