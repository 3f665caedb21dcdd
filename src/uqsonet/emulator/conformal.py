"""Conformal factors of an answer, from calibration runs observed with its sensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.calibration import Calibration, function_factor, pointwise_factor, ratios
from uqsonet.emulator.field_law import Conditioned, FieldLaw
from uqsonet.emulator.named_operator import NamedOperator, sensor_locations
from uqsonet.fields.field import read_at
from uqsonet.sensors.sensors import SensorSets

BAND_SAMPLES = 1000
"""Number of functions behind a band, of a new function and of the calibration runs alike."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Usual levels of bands: they are calibrated together, as sorting takes most of the time."""

MAX_KEPT = 64
"""Number of calibrations that are remembered."""


class ConformalFactors:
    """The conformal factors of an operator's bands, for any sensors of its inputs.

    They are worked out when they are needed, and the last ones are remembered.

    Parameters
    ----------
    operator : NamedOperator
        It has calibration runs.
    """

    def __init__(self, operator: NamedOperator) -> None:
        self._operator = operator
        self._kept: dict[object, Tensor] = {}

    def of(self, sets: SensorSets, number: int, level: float, whole: bool) -> Tensor:
        """Return the factor (B,) of each set's band for an output, inputs counted first.

        Raises
        ------
        ObservationError
            If there are too few calibration runs for the level.
        """
        factor = function_factor if whole else pointwise_factor
        ones = (sets[b : b + 1] for b in range(len(sets)))
        factors = [factor(self._ratios(one, number, level), level) for one in ones]
        return torch.tensor(factors, dtype=torch.float64)

    def _ratios(self, one: SensorSets, number: int, level: float) -> Tensor:
        """Return by how much plain bands must be widened to hold each calibration run."""
        operator, runs, kept = self._operator, self._operator.calibration, self._kept
        assert runs is not None
        used = one.mask[0]
        parts = (one.field, one.locations, one.noise_std, one.weights)
        key = number, b"".join(t[0][used].numpy().tobytes() for t in parts if t is not None)
        if (key, level) in kept:
            return kept[key, level]
        field = operator.named_fields[number]
        columns = operator.output_columns(number - len(operator.inputs))
        here = (runs.columns >= columns.start) & (runs.columns < columns.stop)
        x = field.domain.points()[runs.columns[here] - columns.start]
        truth = runs.outputs[:, here].double() * field.scale
        levels = sorted({level, *LEVELS})
        ends = np.array([0.5, *((1 + sign * q) / 2 for q in levels for sign in (-1, 1))])
        law = FieldLaw(Conditioned(operator, observed(operator, runs, one)), number)
        median, *bands = law.quantiles(ends, x, BAND_SAMPLES, 0).unbind(1)
        while len(kept) > MAX_KEPT:
            kept.pop(next(iter(kept)))
        for k, q in enumerate(levels):
            kept[key, q] = ratios(median, bands[2 * k], bands[2 * k + 1], truth)
        return kept[key, level]


def observed(operator: NamedOperator, runs: Calibration, one: SensorSets) -> SensorSets:
    """Return calibration runs observed with the sensors of one set, noise included."""
    assert operator.encoded
    keep = one.mask[0]
    compact = one.each(lambda t: t[:, keep])
    n, m = len(runs), int(keep.sum())
    grid = operator.fields.input.grid
    x = sensor_locations(operator.inputs, compact.field, compact.locations, grid)[0]
    weights = None if compact.weights is None else compact.weights[0]
    read = read_at(grid, runs.inputs.double().T.contiguous(), x, weights).T
    level = compact.noise_std.nan_to_num(nan=operator.default_noise(0))[0]
    scales = torch.tensor([f.scale for f in operator.inputs], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(n, m, generator=generator, dtype=torch.float64)
    read = read + drawn * level / scales[compact.field[0]]
    values = torch.empty_like(read)
    for number, field in enumerate(operator.inputs):
        here = compact.field[0] == number
        values[:, here] = field.decode(read[:, here])
    every = compact.each(lambda t: t.expand(n, *t.shape[1:]))
    return replace(every, values=values, labels=[""] * n, single=False, kind="torch")
