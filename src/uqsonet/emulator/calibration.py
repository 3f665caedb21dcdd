"""Conformal bands: factors that make a band hold what it promises, from runs kept for this alone.

The calibration runs are observed with the very sensors that a user asks about, so nothing has to be
assumed about layouts, numbers of sensors or the law that the model uses. What has to hold is that
the new function and the calibration runs are exchangeable (for example, all drawn from one law),
and that sensor places were not chosen by looking at the function.

- For single points, the factor is the smallest for which the expected share of points outside is
  at most ``1 - level`` (conformal risk control: Angelopoulos et al., ICLR 2024, theorem 1).
- For whole functions, it is the split-conformal quantile of the largest ratio (Vovk et al. 2005;
  Diquigiovanni et al., J. Multivariate Anal. 189, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.field_law import BAND_SAMPLES, FieldLaw
from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field, part_columns
from uqsonet.gauss.metrics import MIN_SPAN
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.gauss.blocks import RowBlocks

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

MAX_KEPT_POINTS = 400  # output points at which calibration runs are kept
MAX_VALUES = 1 << 24  # values of calibration runs; of large ones fewer are kept
USUAL_LEVELS = (0.5, 0.8, 0.9, 0.95)  # usual ones, calibrated together: sorting takes most time
MAX_KEPT_FACTORS = 640  # factors that are remembered: of about 80 sets


@dataclass(frozen=True)
class Calibration:
    """Runs as a model sees them, and what answers them in place of the model that they calibrate.

    Nothing of that was fitted to them. It is None where it is that model itself; of few runs it is
    one that was fitted to the others.
    """

    inputs: Tensor  # (n, points), float32
    outputs: Tensor  # (n, M), float32
    columns: Tensor  # (k,), numbers of the output's points where bands are compared with runs
    emulator: Emulator | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def gaps(self) -> bool:
        """Whether some values were not read, NaN: others are readings, with their noise."""
        return bool(self.inputs.isnan().any() or self.outputs.isnan().any())


@dataclass(frozen=True)
class CalibrationRuns:
    """The calibration runs of all splits: so many as there are runs, one split after another."""

    splits: tuple[Calibration, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.splits))

    def __iter__(self) -> Iterator[Calibration]:
        return iter(self.splits)


class ConformalFactors:
    """The conformal factors of an operator's bands, for any sensors of its inputs.

    They are worked out when they are needed, and the last ones are remembered. The operator has
    calibration runs.
    """

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        self._kept: dict[object, list[float]] = {}

    def widened(self, law: FieldLaw, plain: Tensor, level: float, whole: bool) -> Tensor:
        """Return lower end, median and upper end (B, 3, M) of a plain band, made conformal.

        It raises `ObservationError` if there are too few calibration runs for the level.
        """
        require_runs(self.runs(law), level)
        if self.gaps and (whole or law.sets.weights is not None):
            raise ObservationError(
                "runs with gaps calibrate bands of single points, given sensors at points; "
                "kind='plain' gives the band of the law"
            )
        found = (self._factors(law, one, level, whole) for one in self.together(law))
        factors = torch.tensor([*chain.from_iterable(found)], dtype=torch.float64)[:, None, None]
        # Of the transformed field, so that the band stays within the field's range.
        ends = law.field.transform.forward(plain)
        median = ends[:, 1:2]
        return law.field.transform.inverse(law.within(median + factors * (ends - median)))

    def _factors(self, law: FieldLaw, sets: Sensors, level: float, whole: bool) -> list[float]:
        """Return by how much the plain band of a field must be widened, for each set."""
        kept, key = self._kept, self.key(law, sets)
        if (key, level, whole) in kept:
            return kept[key, level, whole]
        levels = sorted(q for q in {level, *USUAL_LEVELS} if self.runs(law) >= runs_needed(q))
        found = self.ratios(law, sets, levels)
        fewest = min(len(one[0]) for one in found)
        require_runs(fewest, level)
        while len(kept) > MAX_KEPT_FACTORS:
            kept.pop(next(iter(kept)))
        of_points = seldom_factor if self.gaps else pointwise_factor
        for k, q in enumerate(levels):
            if fewest >= runs_needed(q):
                kept[key, q, False] = [of_points(one[k], q) for one in found]
                kept[key, q, True] = [function_factor(one[k], q) for one in found]
        return kept[key, level, whole]

    @property
    def gaps(self) -> bool:
        """Whether runs that calibrate have gaps."""
        return any(one.gaps for one in self._operator.calibration)

    def runs(self, law: FieldLaw) -> int:
        """Return the number of runs that calibrate a law."""
        return len(self._operator.calibration)

    def together(self, law: FieldLaw) -> list[Sensors]:
        """Return the sets of a law that are answered together: each alone."""
        return [law.sets[b : b + 1] for b in range(len(law.sets))]

    def key(self, law: FieldLaw, sets: Sensors) -> object:
        """Return what the factors of some sets depend on."""
        parts = (sets.field, sets.locations, sets.noise_std, sets.weights)
        read = b"".join(t[sets.mask].numpy().tobytes() for t in parts if t is not None)
        return law.number, tuple(sets.counts.tolist()), read

    def ratios(self, law: FieldLaw, sets: Sensors, levels: list[float]) -> list[list[Tensor]]:
        """Return `ratios` (n, k) of all runs, of each set for each level."""
        operator = self._operator
        parts = [_ratios(runs.emulator or operator, runs, sets, law.number, levels)
                 for runs in operator.calibration]  # fmt: skip
        every = torch.stack([torch.cat(one) for one in zip(*parts, strict=True)])
        return [list(every[:, ~every[0].isnan().all(1)])]  # sensors have all readings of some runs


def _ratios(
    operator: Emulator, runs: Calibration, one: Sensors, number: int, levels: list[float]
) -> list[Tensor]:
    """Return `ratios` (n, k) of a field's bands of each level, given runs read by one set."""
    field = operator.named_fields[number]
    x, encoded = _kept_values(operator, runs, number)
    truth = encoded.double() * field.scale  # transformed
    if not field.transform.linear:  # values beyond an end of the range are at it
        truth = field.transform.forward(field.transform.inverse(truth))
    ends = np.array([0.5, *((1 + sign * q) / 2 for q in levels for sign in (-1, 1))])
    sets = observed(operator, runs, one)
    sets = sets if bool(one.mask.any()) else sets[:1]  # all have one law
    law = FieldLaw(operator, sets, number)
    # All runs share random numbers, as a new function's band does by default: with them fixed,
    # runs and function are exchangeable.
    median, *bands = field.transform.forward(law.quantiles(ends, x, BAND_SAMPLES, 0)).unbind(1)
    if runs.gaps:
        truth = _without_read(operator, sets, number, x, truth)
        noise = operator.default_noise(number) * torch.special.ndtri(torch.from_numpy(ends[1:]))
        off = [end - median for end in bands]  # readings have noise of their own
        bands = [
            median + one.sign() * (one.square() + level.square()).sqrt()
            for one, level in zip(off, noise, strict=True)
        ]
    return [
        ratios(median, low, high, truth) for low, high in zip(bands[::2], bands[1::2], strict=True)
    ]


def _without_read(
    operator: Emulator, sets: Sensors, number: int, x: Tensor, truth: Tensor
) -> Tensor:
    """Return values (n, k) of a field at points (k, d), NaN where a sensor of the run reads it."""
    fields = operator.named_fields
    same = torch.tensor([one.name == fields[number].name for one in fields])
    at = sets.locations[..., : x.shape[1]]
    read = (at[:, :, None] == x).all(3) & (sets.mask & same[sets.field])[..., None]
    return truth.masked_fill(read.any(1), torch.nan)


def _kept_values(operator: Emulator, runs: Calibration, number: int) -> tuple[Tensor, Tensor]:
    """Return the points (k, d) at which calibration runs are kept, and encoded values (n, k)."""
    points, inputs = operator.named_fields[number].domain.points(), operator.inputs
    if number < len(inputs):
        columns = part_columns(inputs, number)
        drawn = numpy_generator(0, "calibration", "inputs").permutation(len(points))[
            :MAX_KEPT_POINTS
        ]
        here = torch.from_numpy(np.sort(drawn))
        return points[here], runs.inputs[:, columns][:, here]
    columns = part_columns(operator.outputs, number - len(inputs))
    kept = runs.columns[(runs.columns >= columns.start) & (runs.columns < columns.stop)]
    return points[kept - columns.start], runs.outputs[:, kept]


def observed(operator: Emulator, runs: Calibration, one: Sensors) -> Sensors:
    """Return calibration runs observed with the sensors of one set, noise included.

    Where runs have gaps, the nearest reading stands for each sensor, as it was read.
    """
    assert operator.encoded
    keep = one.mask[0]
    compact = one.each(lambda t: t[:, keep])
    n, m = len(runs), int(keep.sum())
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(n, m, generator=generator, dtype=torch.float64)
    values = torch.empty_like(drawn)
    every = compact.each(lambda t: t.expand(n, *t.shape[1:]))
    places, mask = every.locations.clone(), every.mask.clone()
    for number, field in enumerate(operator.named_fields):
        here = compact.field[0] == number
        if not bool(here.any()):
            continue
        some = compact.each(lambda t, here=here: t[:, here])
        some = replace(some, locations=some.locations[..., : field.domain.dim])
        known = _encoded(operator, runs, number).double()
        if runs.gaps:
            at, mask[:, here] = _nearest_readings(field, some.locations[0], known)
            values[:, here] = field.decode(known.gather(1, at))
            places[:, here, : field.domain.dim] = field.domain.points().double()[at]
            continue
        read = some.read(field.domain, known.T.contiguous())
        level = some.noise_std[0].nan_to_num(nan=operator.default_noise(number)) / field.scale
        values[:, here] = field.decode(read[0].T + drawn[:, here] * level)
    values = values.masked_fill(~mask, 1.0)
    every = replace(every, values=values, mask=mask, locations=places)
    return replace(every, labels=[""] * n, single=False, kind="torch")


def _nearest_readings(field: Field, places: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each run (n,) which readings (n, m) stand for sensors at places (m, d).

    They are the nearest to each in turn of those that are left of `known` (n, points), NaN in
    gaps. The second result is where there is one.
    """
    free = ~known.isnan()
    low, high = (torch.tensor(end).double() for end in (field.domain.lower, field.domain.upper))
    width = (high - low).clamp_min(1e-300)
    away = torch.cdist(places.double() / width, field.domain.points().double() / width)
    at = torch.empty(len(known), len(places), dtype=torch.long)
    there = torch.empty(at.shape, dtype=torch.bool)
    for k, one in enumerate(away):
        nearest, at[:, k] = torch.where(free, one, torch.inf).min(1)
        there[:, k] = nearest.isfinite()
        free.scatter_(1, at[:, k : k + 1], False)
    return at, there


def _encoded(operator: Emulator, runs: Calibration, number: int) -> Tensor:
    """Return encoded values (n, points) of a field."""
    count = len(operator.inputs)
    if number < count:
        return runs.inputs[:, part_columns(operator.inputs, number)]
    return runs.outputs[:, part_columns(operator.outputs, number - count)]


def calibration_runs(
    inputs: RowBlocks, outputs: RowBlocks, seed: int, emulator: Emulator | None
) -> Calibration:
    """Return what is kept of calibration runs: (n, points) of the inputs and the outputs."""
    size = inputs.shape[1] + outputs.shape[1]
    some = np.arange(min(len(inputs), max(20, MAX_VALUES // size)))
    drawn = numpy_generator(seed, "calibration", "points").permutation(outputs.shape[1])
    columns = torch.from_numpy(np.sort(drawn[:MAX_KEPT_POINTS]))
    return Calibration(inputs.take(some).whole(), outputs.take(some).whole(), columns, emulator)


def ratios(median: Tensor, lower: Tensor, upper: Tensor, truth: Tensor) -> Tensor:
    """Return by which factors (n, k) bands must be widened about their medians to hold truths.

    All are of shape (n, k). A factor is NaN where a band has hardly any width (`MIN_SPAN`): such
    points do not count.
    """
    side = torch.where(truth < median, median - lower, upper - median)
    width = upper - lower
    free = width > MIN_SPAN * width.amax(dim=1, keepdim=True)
    factors = (truth - median).abs() / side.clamp_min(1e-12 * width.amax())
    return torch.where(free, factors, torch.nan)


def pointwise_factor(found: Tensor, level: float) -> float:
    """Return the factor for single points from `ratios` (n, k) of enough runs for the level.

    Points count alike, however few of the runs know them.
    """
    n, allowed = len(found), 1 - level
    free = ~found.isnan()
    known = free.double().mean(0)
    share = free / known.clamp_min(1e-300) / (known > 0).sum().clamp_min(1)
    values, order = found[free].sort()
    weights = share[free][order]
    # Risk above each value: what remains outside if the factor is that value.
    outside = weights.sum() - weights.cumsum(0)
    fits = (outside + 1) / (n + 1) <= allowed + 1e-12
    return float(values[int(fits.double().argmax())])


def seldom_factor(found: Tensor, level: float) -> float:
    """Return the factor for single points from `ratios` (n, k) of runs with gaps.

    Points that runs know less often than chance says have a factor of their own, if it is larger;
    one at least, as readings elsewhere are no reason to narrow the band there.
    """
    every = pointwise_factor(found, level)
    known = (~found.isnan()).double().mean(0)
    usual = known[known > 0].mean()
    seldom = (known > 0) & (known < usual - 2 * (usual * (1 - usual) / len(found)).sqrt())
    some = found[:, seldom]
    some = some[~some.isnan().all(1)]
    if not bool(seldom.any()):
        return every
    enough = len(some) >= runs_needed(level)
    return max(every, 1.0, pointwise_factor(some, level) if enough else 1.0)


def function_factor(found: Tensor, level: float) -> float:
    """Return the factor for whole functions from `ratios` (n, k) of enough runs for the level."""
    n = len(found)
    largest = torch.nan_to_num(found, nan=0.0).amax(1).sort().values
    return float(largest[math.ceil((n + 1) * level - 1e-9) - 1])


def runs_needed(level: float) -> int:
    """Return how many runs calibrate a conformal band of a level; none for what is no level."""
    return 0 if not 0 < level < 1 else math.ceil(level / (1 - level) - 1e-9)


def require_runs(runs: int, level: float) -> None:
    """Refuse (`ObservationError`) a level that needs more calibration runs."""
    needed = runs_needed(level)
    if runs < needed:
        raise ObservationError(
            f"a conformal band of level {level:g} needs {needed} calibration runs, this model has "
            f"{runs}; kind='plain' gives the band of the law"
        )
