"""Scores of answers over time, instant by instant: while sensors are read, and after the last."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uqsonet.dynamics.instants import encoded
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.errors import DataError, ObservationError
from uqsonet.fields.field import part_columns
from uqsonet.files import path_of, write_text
from uqsonet.gauss.metrics import ascending, coverage, crps
from uqsonet.gauss.seeds import numpy_generator

SAMPLES = 300  # of each answer
RANKS = 10  # classes of the rank histogram
Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file


@dataclass(frozen=True)
class Instant:
    """Scores of a field at one instant, averaged over runs and points, in the field's units.

    `lead` counts steps since the last reading, 0 before. `spread` is the root mean square std: that
    of an honest law is as large as the error of its mean, `rmse`. `ranks` are the shares of truths
    in tenths of the law, each 0.1 where it is honest; `runs` the error of the mean of the runs.
    """

    time: Any
    lead: int
    rmse: float
    spread: float
    crps: float
    held_50: float
    held_90: float
    runs: float
    ranks: tuple[float, ...]


@dataclass(frozen=True)
class LeadReport:
    """Scores by instant; prints as a table."""

    field: str
    rows: tuple[Instant, ...]

    def __str__(self) -> str:
        lines = [f"{self.field:>10} {'lead':>4} {'rmse':>9} {'spread':>9} {'crps':>9}   50   90  "
                 "error of the runs' mean"]  # fmt: skip
        lines += [
            f"{one.time!s:>10.10} {one.lead:4d} {one.rmse:9.4g} {one.spread:9.4g} {one.crps:9.4g} "
            f"{100 * one.held_50:4.0f} {100 * one.held_90:4.0f}  {one.runs:9.4g}"
            for one in self.rows
        ]
        return "\n".join(lines)

    def save(self, path: Path | str) -> None:
        """Write the scores as CSV."""
        names, text = [*Instant.__annotations__][:-1], io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow([*names, *(f"rank_{k}" for k in range(RANKS))])
        table.writerows([*(getattr(one, name) for name in names), *one.ranks] for one in self.rows)
        write_text(path_of(path, "written"), text.getvalue())


def validate(
    model: Dynamics, held_out: Trajectories, sensors: int, read: int, field: str | None,
    noise_std: float | None, smooth: bool, seed: int,
) -> LeadReport:  # fmt: skip
    """Return the scores of held-out runs, each read by sensors at random points of its own."""
    fields = model.fields
    name = field or fields[0].name
    names = [one.name for one in fields]
    if set(held_out.snapshots.inputs) != set(names) or name not in names:
        raise DataError(f"held-out runs must have the fields {', '.join(names)}")
    lengths = np.bincount(held_out.run)
    length = int(lengths.min())
    if not 1 <= read <= length:
        raise ObservationError(f"read: {read} instants, runs have {length}")
    number = names.index(name)
    one, columns = fields[number], part_columns(fields, number)
    level = model.emulator.default_noise(number) if noise_std is None else noise_std
    rows, rng = encoded(model.emulator, held_out), numpy_generator(seed, "dynamics", "validate")
    times = model.clock.times(np.arange(length))
    found = torch.zeros(len(held_out), length, 6 + RANKS, dtype=torch.float64)
    usual = torch.as_tensor(one.decode(model.emulator.bases.input_mean[columns]))
    for run in range(len(held_out)):
        mine = np.flatnonzero(held_out.run == run)[:length]
        truth = one.decode(rows[mine][:, columns].double())
        at = rng.choice(one.domain.size, sensors, replace=False)
        noise = torch.from_numpy(level * rng.standard_normal((read, sensors)))
        values = one.noisy(truth[:read, at], noise)
        times = model.clock.times(held_out.instant[mine])
        answer = model.condition(
            **{name: (one.domain.points()[at], values, level)}, times=times[:read],
            until=times[-1], smooth=smooth,
        )[name]  # fmt: skip
        drawn = torch.as_tensor(answer.sample(SAMPLES))
        found[run] = _scored(drawn, truth, usual)
    mean = found.mean(0)
    table = []
    for t, scores in enumerate(mean.tolist()):
        error, spread, distance, held_50, held_90, runs, *ranks = scores
        table.append(Instant(times[t], max(0, t - read + 1), error**0.5, spread**0.5, distance,
                             held_50, held_90, runs**0.5, tuple(ranks)))  # fmt: skip
    return LeadReport(one.label, tuple(table))


def _scored(drawn: torch.Tensor, truth: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
    """Return scores (T, 6 + RANKS) of samples (T, n, M)."""
    found = []
    for some, true in zip(drawn, truth, strict=True):
        ordered = ascending(some)
        place = (ordered < true[:, None]).sum(1) * RANKS // (ordered.shape[1] + 1)
        ranks = torch.bincount(place, minlength=RANKS) / len(true)
        found.append(
            [float((some.mean(0) - true).square().mean()), float(some.var(0).mean()),
             crps(ordered, true), *coverage(ordered, true, (0.5, 0.9)),
             float((usual - true).square().mean()), *ranks.tolist()]
        )  # fmt: skip
    return torch.tensor(found, dtype=torch.float64)
