"""Conformal bands over time: a factor for each instant, from runs kept for this alone.

Runs are read by the same sensors at the same instants as the answer's, and answered by the same
filter. So a factor knows how many readings there have been and how long ago the last one was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uqsonet.dynamics.filters import Readings
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.emulator.calibration import (
    MAX_KEPT_POINTS,
    function_factor,
    pointwise_factor,
    ratios,
    require_runs,
)
from uqsonet.emulator.encode import encode
from uqsonet.errors import ObservationError
from uqsonet.fields.field import part_columns
from uqsonet.sensors.sensors import Sensors

Answer = Any  # `uqsonet.dynamics.over_time.OverTime`, whose methods call this file
MAX_RUNS = 40  # runs that are followed; each costs as much as the answer


@dataclass(frozen=True)
class Calibration:
    """Runs that nothing was fitted to, as a model sees them: snapshots (S, n), float32."""

    rows: Tensor
    run: Tensor
    instant: Tensor

    @classmethod
    def of(cls, rows: Tensor, runs: Trajectories) -> Calibration:
        """Return the snapshots of runs, encoded."""
        return cls(rows.float(), torch.from_numpy(runs.run), torch.from_numpy(runs.instant))


def factors_of(answer: Answer, number: int, level: float, whole: bool) -> Tensor:
    """Return by how much the plain band of a field must be widened, (T,).

    It raises `ObservationError` if runs are too few for the level, or too short.
    """
    dynamics, sets = answer.dynamics, answer.sensors
    rows = _pieces(dynamics, answer.first, len(sets))
    require_runs(rows.shape[1], level)
    readings = read_by(dynamics, sets, rows)
    path = dynamics.model.followed(readings, answer.first, 0)
    bases, fields = dynamics.emulator.bases, dynamics.fields
    here = torch.arange(sum(one.domain.size for one in fields))[part_columns(fields, number)]
    here = here[torch.arange(min(len(here), MAX_KEPT_POINTS)) * len(here)
                // min(len(here), MAX_KEPT_POINTS)]  # fmt: skip
    factor, mean = bases.input_factor[here].double(), bases.input_mean[here]
    left = dynamics.emulator.remainder[0][here].double().norm(dim=1)
    means, roots = path.moments(answer.smooth)
    wide = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64))
    found = []
    for t in range(len(sets)):
        median = mean + means[t] @ factor.T
        std = ((factor @ roots[t]).square().sum(-1) + left.square()).sqrt()
        one = ratios(median, median - wide * std, median + wide * std, rows[t][:, here])
        found.append((function_factor if whole else pointwise_factor)(one, level))
    return torch.tensor(found, dtype=torch.float64)


def _pieces(dynamics: Any, first: int, length: int) -> Tensor:
    """Return encoded snapshots (T, C, n) of calibration runs that are long enough."""
    known, pieces = dynamics.calibration, []
    for run in known.run.unique().tolist():
        mine = (known.run == run).nonzero()[:, 0]
        steps = known.instant[mine]
        starts = [k for k in range(len(mine) - length + 1)
                  if int(steps[k + length - 1] - steps[k]) == length - 1]  # fmt: skip
        begin = [k for k in starts if int(steps[k]) == first]
        if starts:
            k = (begin or starts)[0]
            pieces.append(known.rows[mine[k : k + length]])
    if not pieces:
        raise ObservationError(
            f"no calibration run is {length} instants long, as the answer is; kind='plain' gives "
            "the band of the law"
        )
    return torch.stack(pieces[:MAX_RUNS], 1).double()


def read_by(dynamics: Any, sets: Sensors, rows: Tensor) -> Readings:
    """Return what the sensors of T sets read of encoded snapshots (T, C, n), with their noise."""
    emulator = dynamics.emulator
    ready, alone = encode(emulator, sets), dynamics.readings(sets)
    grid, bases = emulator.fields.input.domain, emulator.bases
    generator = torch.Generator().manual_seed(0)
    values = torch.zeros(len(sets), rows.shape[1], ready.values.shape[1], dtype=torch.float64)
    for t in range(len(sets)):
        if not ready.mask[t].any():
            continue
        one = ready[t : t + 1]
        off = (rows[t] - bases.input_mean).T.contiguous()
        z = torch.randn(values.shape[1:], generator=generator, dtype=torch.float64)
        values[t] = one.read(grid, off)[0].T + z * torch.as_tensor(one.noise_level(0.0))
    return alone._replace(values=values)
