"""Conformal bands over time: a factor for each instant, from runs kept for this alone.

Runs are read by the same sensors at the same instants as the answer's, and answered by the same
filter. So a factor knows how many readings there have been and how long ago the last one was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.dynamics.filters import Readings
from uqsonet.emulator.calibration import ConformalFactors, ratios
from uqsonet.emulator.encode import encode
from uqsonet.emulator.field_law import BAND_SAMPLES
from uqsonet.fields.field import part_columns
from uqsonet.gauss.given import Given, fixed
from uqsonet.operator.kernel_branch import spaced
from uqsonet.sensors.sensors import Sensors

Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file
LawOverTime = Any  # `uqsonet.dynamics.over_time.LawOverTime`
POINTS = 100  # of a field at which bands are compared with runs, at most
MAX_RUNS = 40  # runs that are followed; each costs as much as the answer


class FactorsOverTime(ConformalFactors):
    """The conformal factors of answers over time, whose instants are worked out together."""

    @property
    def gaps(self) -> bool:
        """Whether runs that calibrate have gaps: none has."""
        return False

    def runs(self, law: LawOverTime) -> int:
        """Return the number of runs that are as long as the answer."""
        return len(self._starts(law))

    def together(self, law: LawOverTime) -> list[Sensors]:
        """Return all instants of an answer."""
        return [law.sets]

    def key(self, law: LawOverTime, sets: Sensors) -> object:
        """Return what the factors of an answer depend on."""
        return super().key(law, sets), law.path.first, law.smooth

    def ratios(self, law: LawOverTime, sets: Sensors, levels: list[float]) -> list[list[Tensor]]:
        """Return `ratios` (C, k) of all runs, of each instant for each level."""
        model = self._operator
        rows = model.calibration.states[self._starts(law)[:, None] + torch.arange(len(sets))]
        rows = rows.transpose(0, 1).double()
        path = model.model.followed(read_by(model, sets, rows), law.path.first, 0)
        columns = part_columns(model.fields, law.number % len(model.fields))
        here = columns.start + spaced(columns.stop - columns.start, POINTS)
        levels_of_ends = [0.5, *((1 + sign * q) / 2 for q in levels for sign in (-1, 1))]
        bands = [_quantiles(model.emulator, path.law(case, law.smooth), here, levels_of_ends)
                 for case in range(rows.shape[1])]  # fmt: skip
        median, *ends = torch.stack(bands, 2)
        return [
            [ratios(median[t], low[t], high[t], rows[t][:, here])
             for low, high in zip(ends[::2], ends[1::2], strict=True)]
            for t in range(len(sets))
        ]  # fmt: skip

    def _starts(self, law: LawOverTime) -> Tensor:
        """Return where pieces begin, one of each calibration run: at the answer's first instant."""
        known, length = self._operator.calibration, len(law.sets)
        starts = known.starts(length)
        starts = torch.cat([starts[known.instant[starts] == law.path.first], starts])
        _, first = np.unique(known.run[starts].numpy(), return_index=True)
        return starts[torch.from_numpy(first[:MAX_RUNS])]


def _quantiles(emulator: Any, law: Given, here: Tensor, levels: list[float]) -> Tensor:
    """Return quantiles (Q, T, k) of a law at encoded points."""
    bases, generator = emulator.bases, fixed()
    drawn = law.sample(BAND_SAMPLES, generator).double() @ bases.input_factor[here].double().T
    left = emulator.remainder[0][here].double()
    z = torch.randn(BAND_SAMPLES, left.shape[1], generator=generator, dtype=torch.float64)
    ends = np.quantile((drawn + z @ left.T).numpy(), levels, 1)
    return torch.from_numpy(ends) + bases.input_mean[here]


def read_by(model: Dynamics, sets: Sensors, rows: Tensor) -> Readings:
    """Return what the sensors of T sets read of encoded snapshots (T, C, n), with their noise."""
    ready, bases = encode(model.emulator, sets), model.emulator.bases
    grid, generator = model.emulator.fields.input.domain, torch.Generator().manual_seed(0)
    values = torch.zeros(len(sets), rows.shape[1], ready.values.shape[1], dtype=torch.float64)
    for t in range(len(sets)):
        one = ready[t : t + 1]
        off = (rows[t] - bases.input_mean).T.contiguous()
        z = torch.randn(values.shape[1:], generator=generator, dtype=torch.float64)
        values[t] = one.read(grid, off)[0].T + z * torch.as_tensor(one.noise_level(0.0))
    return model.readings(ready)._replace(values=values)
