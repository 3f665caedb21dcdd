"""Scores of answers over time, instant by instant: while sensors are read, and after the last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.instants import encoded
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.errors import DataError, ObservationError
from uqsonet.fields.field import part_columns
from uqsonet.files import path_of, write_text
from uqsonet.fitting.card import table_lines
from uqsonet.gauss.metrics import ascending, coverage, crps, rank_shares
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.show.export import csv_text

SAMPLES = 300  # of each answer
RANKS = 10  # classes of the rank histogram
Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file


@dataclass(frozen=True)
class Instant:
    """Scores of a field at one instant, averaged over runs and points, in the field's units.

    `lead` counts steps since the last reading, 0 before. `spread` is the root mean square std: that
    of an honest law is as large as the error of its mean, `rmse`. `runs` is the error of the mean
    of the runs. `ranks` are the shares of truths in tenths of the law, each 0.1 where it is honest.
    """

    time: Any
    lead: int
    rmse: float
    spread: float
    runs: float
    crps: float
    held_50: float
    held_90: float
    ranks: list[float]

    def row(self) -> dict[str, Any]:
        """Return the scores as a flat row of a table."""
        found = {name: value for name, value in vars(self).items() if name != "ranks"}
        return found | {f"rank_{k}": share for k, share in enumerate(self.ranks)}


@dataclass(frozen=True)
class LeadReport:
    """Scores by instant; prints as a table."""

    field: str
    rows: tuple[Instant, ...]

    def __str__(self) -> str:
        names = [*Instant.__annotations__][:-1]
        shown = ({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in one.row().items()}
                 for one in self.rows)  # fmt: skip
        return "\n".join([self.field, *table_lines([{k: one[k] for k in names} for one in shown])])

    def save(self, path: Path | str) -> None:
        """Write the scores as CSV."""
        rows = [one.row() for one in self.rows]
        lines = ([str(value) for value in one.values()] for one in rows)
        write_text(path_of(path, "written"), csv_text(iter([list(rows[0]), *lines])))


def validate(
    model: Dynamics, held_out: Trajectories, sensors: int, read: int, field: str | None,
    noise_std: float | None, smooth: bool, seed: int,
) -> LeadReport:  # fmt: skip
    """Return the scores of held-out runs, each read by sensors at random points of its own."""
    names = [one.name for one in model.fields]
    name = field or names[0]
    if set(held_out.snapshots.inputs) != set(names) or name not in names:
        raise DataError(f"held-out runs must have the fields {', '.join(names)}")
    length, number = int(np.bincount(held_out.run).min()), names.index(name)
    if not 1 <= read <= length:
        raise ObservationError(f"read: {read} instants, runs have {length}")
    one, columns = model.fields[number], part_columns(model.fields, number)
    level = model.emulator.default_noise(number) if noise_std is None else noise_std
    rows, rng = encoded(model.emulator, held_out), numpy_generator(seed, "dynamics", "validate")
    usual = torch.as_tensor(one.decode(model.emulator.bases.input_mean[columns]))
    found, times = [], np.empty(0)
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
        found.append([_scored(*both, usual) for both in zip(drawn, truth, strict=True)])
    table = []
    for t, (error, spread, runs, mean, held_50, held_90, *ranks) in enumerate(
        np.mean(found, 0).tolist()
    ):
        roots = error**0.5, spread**0.5, runs**0.5
        lead = max(0, t - read + 1)
        table.append(Instant(times[t], lead, *roots, mean, held_50, held_90, ranks))
    return LeadReport(one.label, tuple(table))


def _scored(drawn: Tensor, truth: Tensor, usual: Tensor) -> list[float]:
    """Return the scores of samples (n, M) in the order of `Instant`, the first three squared."""
    ordered = ascending(drawn)
    squares = (drawn.mean(0) - truth).square(), drawn.var(0), (usual - truth).square()
    return [
        *(float(one.mean()) for one in squares), crps(ordered, truth),
        *coverage(ordered, truth, (0.5, 0.9)), *rank_shares(ordered, truth, RANKS),
    ]  # fmt: skip
