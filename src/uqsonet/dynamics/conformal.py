"""Conformal bands over time: a factor for each instant, from runs kept for this alone.

Runs are read by the same sensors at the same instants as the answer's, and answered by the same
filter. So a factor knows how many readings there have been and how long ago the last one was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.filters import Readings
from uqsonet.dynamics.trajectories import Trajectories
from uqsonet.emulator.calibration import (
    function_factor,
    pointwise_factor,
    ratios,
    require_runs,
)
from uqsonet.emulator.emulator import Emulator
from uqsonet.emulator.encode import encode
from uqsonet.emulator.field_law import BAND_SAMPLES
from uqsonet.errors import ObservationError
from uqsonet.fields.field import part_columns
from uqsonet.gauss.given import Given, fixed
from uqsonet.sensors.sensors import Sensors

Answer = Any  # `uqsonet.dynamics.over_time.OverTime`, whose methods call this file
POINTS = 100  # of a field at which bands are compared with runs, at most
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
    here = torch.arange(rows.shape[2])[part_columns(dynamics.fields, number)]
    here = here[torch.arange(min(len(here), POINTS)) * len(here) // min(len(here), POINTS)]
    bands = [_band(dynamics.emulator, path.law(case, answer.smooth), here, level)
             for case in range(rows.shape[1])]  # fmt: skip
    lower, median, upper = torch.stack(bands, 2)
    factor = function_factor if whole else pointwise_factor
    found = [
        factor(ratios(median[t], lower[t], upper[t], rows[t][:, here]), level)
        for t in range(len(sets))
    ]
    return torch.tensor(found, dtype=torch.float64)


def _band(emulator: Emulator, law: Given, here: Tensor, level: float) -> Tensor:
    """Return the ends of a plain band about its median, (3, T, k), at encoded points."""
    bases, generator = emulator.bases, fixed()
    assert bases is not None
    assert emulator.remainder is not None
    drawn = law.sample(BAND_SAMPLES, generator).double() @ bases.input_factor[here].double().T
    left = emulator.remainder[0][here].double()
    z = torch.randn(BAND_SAMPLES, left.shape[1], generator=generator, dtype=torch.float64)
    ends = np.quantile((drawn + z @ left.T).numpy(), [(1 - level) / 2, 0.5, (1 + level) / 2], 1)
    return torch.from_numpy(ends) + bases.input_mean[here]


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
