"""Runs: pairs of input and output functions that a user brings, checked and described.

>>> runs = uqsonet.Runs(inputs={"k": K}, outputs={"u": U})  # arrays (N, n) or (N, n1, n2)
>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
>>> print(runs.describe())
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, printable
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.numbers import without_mask
from uqsonet.fields.stacked import point_weights
from uqsonet.gauss.blocks import MAX_KEPT_MATRIX, ArrayRows, RowBlocks, column_moments
from uqsonet.gauss.principal_components import spectrum
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.stored import taken

LOG = logging.getLogger("uqsonet")

FEW_RUNS = 200  # of fewer runs none is kept apart: each validates and calibrates in its turn
MIN_CALIBRATED = 20  # fewer groups of many runs are too few to keep some apart
COARSE_STD = 8192  # std from zero beyond which float32 is coarser than a thousandth of one
MAX_DISTINCT = 10  # different values of a field up to which two runs may be equal by chance
SKEWED = 0.5  # skewness of positive values above which their logarithm is proposed
HEAVY = 5.0  # kurtosis of an output above which ``asinh`` is tried; that of a normal law is 3
MAX_LOOKED_AT = 1 << 22  # number of values of a field that decide which transforms are tried
MIN_AT_END = 0.01  # share of an output's values at an end above which it does not go beyond
SHARES = (0.9, 0.99, 0.999)  # shares of the variance whose modes a description counts


class Runs:
    """N runs of a simulator or an experiment: input fields and output fields by name.

    Parameters
    ----------
    inputs, outputs : mapping of str to FieldRuns, or array, or (array, points)
        Arrays are taken by `FieldRuns.of`. Without outputs the inputs are answered from sensors of
        themselves.
    name : str
        Of the data set.
    groups : sequence of N labels, optional
        Runs of one group belong together, as snapshots of one trajectory do: they never stand on
        both sides of a split, and each group calibrates bands with one of its runs.

    Raises
    ------
    DataError
        If the numbers of runs differ, a name stands for two fields, or no run is complete.
    """

    def __init__(
        self,
        inputs: Mapping[str, object],
        outputs: Mapping[str, object] | None = None,
        name: str = "runs",
        groups: object = None,
    ) -> None:
        outputs = inputs if outputs is None else outputs
        if not (isinstance(inputs, Mapping) and isinstance(outputs, Mapping)):
            raise DataError(
                "inputs and outputs must be mappings of field names to arrays, as in "
                f"Runs({{'k': K}}, {{'u': U}}); found {type(inputs).__name__} and "
                f"{type(outputs).__name__}"
            )
        if not inputs or not outputs:
            raise DataError("runs need at least one input field and one output field")
        if odd := [key for key in (*inputs, *outputs) if not str(key).strip() or "," in str(key)]:
            raise DataError(f"a field needs a name without commas, found {odd[0]!r}")
        self.name = name
        self.inputs = {key: _field_runs(key, value) for key, value in inputs.items()}
        self.outputs = {key: _field_runs(key, value) for key, value in outputs.items()}
        if outputs is inputs:
            self.outputs = {key: replace(one, transform=None) for key, one in self.inputs.items()}
        for key in sorted(set(self.inputs) & set(self.outputs)):
            given, wanted = self.inputs[key], self.outputs[key]
            same = np.array_equal(given.values, wanted.values, equal_nan=True)
            if given.domain != wanted.domain or not same:
                raise DataError(f"{key}: an input and another output; name them differently")
        fields = {**self.inputs, **self.outputs}
        sizes = {key: len(field) for key, field in fields.items()}
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            alone = 1 in sizes.values()
            hint = "; is a first axis of length one not that of the runs? Leave it out" * alone
            raise DataError(f"fields have different numbers of runs: {found}{hint}")
        size = next(iter(sizes.values()))
        self.groups = None if groups is None else group_numbers(groups, size)
        kept = np.ones(size, dtype=bool)
        for field in fields.values():
            kept &= True if field.kept is None else field.kept
        if not kept.all():
            self._take(np.flatnonzero(kept))
        if not kept.any():
            raise DataError(f"none of {len(kept)} runs is complete")

    def _take(self, index: np.ndarray) -> None:
        known: dict[int, np.ndarray] = {}  # both sides may have the same values
        for side in (self.inputs, self.outputs):
            for key, field in side.items():
                if id(field.values) not in known:
                    known[id(field.values)] = taken(field.values, index, key)
                side[key] = replace(field, values=known[id(field.values)], kept=None)
        self.groups = None if self.groups is None else self.groups[index]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: slice | np.ndarray | Sequence[int]) -> Runs:
        """Return some of the runs."""
        if np.ndim(index) == 0 and not isinstance(index, slice):  # type: ignore[arg-type]
            raise DataError(f"runs[{index}]: a slice or a list of numbers gives runs")
        some = copy(self)
        some.inputs, some.outputs = dict(self.inputs), dict(self.outputs)
        numbers = without_mask(index, "numbers of runs", error=DataError)
        try:
            some._take(np.arange(len(self))[numbers])
        except IndexError as error:
            raise DataError(f"{len(self)} runs: {error}") from None
        return some

    def __repr__(self) -> str:
        def side(fields: Mapping[str, FieldRuns]) -> str:
            return ", ".join(
                f"{k} ({' x '.join(map(str, f.domain.shape))})" for k, f in fields.items()
            )

        return f"Runs({len(self)} runs: {side(self.inputs)} -> {side(self.outputs)})"

    @property
    def gaps(self) -> bool:
        """Whether some values of some runs were not read."""
        return any(field.gaps for field in {**self.inputs, **self.outputs}.values())

    def splits(self, seed: int) -> list[Split]:
        """Split the runs at random; groups and copies of a run stay together (`split_runs`)."""
        return split_runs(len(self), seed, self._belonging())

    def _belonging(self) -> np.ndarray | None:
        """Return the number of each run's group (N,); copies of one run are a group."""
        labels = self.groups
        if labels is None:
            fields = (*self.inputs.values(), *self.outputs.values())
            if any(distinct(field, MAX_DISTINCT) <= MAX_DISTINCT for field in fields):
                return None
            texts = (b"".join(one.values[k].tobytes() for one in fields) for k in range(len(self)))
            labels = np.array([hashlib.blake2b(text).hexdigest() for text in texts])
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        return None if len(first) == len(labels) else number

    def describe(self) -> Description:
        """Return shapes, ranges, proposed transforms, spectra and distance from Gaussian laws."""
        from uqsonet.show.terminal import never_silent

        with never_silent("describe"):
            if self.gaps:
                sides = (("input", self.inputs), ("output", self.outputs))
                found = [_with_gaps(*one, side) for side, of in sides for one in of.items()]
                return Description(f"{self.name}: {len(self)} runs", tuple(found))
            named_fields({**self.inputs, **self.outputs}, {})  # refuses what is always the same
            found = [
                _described(name, "input", one, proposed_transform(one))
                for name, one in self.inputs.items()
            ]
            found += [
                _described(name, "output", one, output_transforms(one)[-1])
                for name, one in self.outputs.items()
            ]
        return Description(f"{self.name}: {len(self)} runs", tuple(found))

    def plot(self, path: object = None) -> Any:
        """Draw the first three runs of each field, on its own axes and in its own units.

        Parameters
        ----------
        path : path, optional
            Where to save the picture: PNG, PDF or SVG.

        Returns
        -------
        matplotlib Figure
            Lines in one dimension, maps in two, and in three the middle plane.
        """
        from uqsonet.show.pictures import draw_runs

        return draw_runs(self, path)


def memory_text(runs: Runs) -> str:
    """Say how much memory a fit of runs will take, by sizes alone."""
    size = len(runs)
    n, m = (sum(f.domain.size for f in side.values()) for side in (runs.inputs, runs.outputs))
    r, p = min(size, 256, n), min(size // 3, 192, m)
    kept = sum(size * k * (4 if size * k <= MAX_KEPT_MATRIX else 0) for k in (n, m)) * 2
    bases = 20 * n * r + 8 * m * p + 8 * max(n * r, m * p)
    laws = 6 * size * n
    values = sum(f.values.nbytes for f in (*runs.inputs.values(), *runs.outputs.values()))
    return (
        f"{size} runs of {n} and {m} points, {values / 1e9:.2g} GB; a fit will take about "
        f"{(kept + bases + laws) / 1e9 + 0.6:.1f} GB of memory besides"
    )


def group_numbers(groups: object, size: int) -> np.ndarray:
    """Return the number of each run's group, of labels (size,) that a caller gives."""
    labels = np.asarray(groups)
    if labels.shape != (size,):
        raise DataError(f"groups: one label for each of {size} runs, found {labels.shape}")
    return np.unique(labels, return_inverse=True)[1]


def _field_runs(name: str, value: object) -> FieldRuns:
    if isinstance(value, FieldRuns):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return FieldRuns.of(value[0], value[1], name=name)
    return FieldRuns.of(value, name=name)


def named_fields(
    fields: Mapping[str, FieldRuns], transforms: Mapping[str, str | Transform]
) -> list[Field]:
    """Return what a model has to know of fields, with the transforms named or proposed.

    A field does not leave its range where values stand at an end of it.
    """
    found = []
    for name, field in fields.items():
        kind = transforms.get(name) or field.transform or "identity"
        if isinstance(kind, str):
            unit = _typical(field.values) if kind == "asinh" else 1.0
            kind = Transform(kind, unit, *_ends_of(field.values))
        mean, std = column_moments(ArrayRows([(field.values, kind.forward)], torch.float64))
        scale = float(std.square().mean().sqrt())
        if not scale > 1e-7 * float(mean.abs().max()):  # the rounding of stored values
            raise DataError(f"{name}: the same in all runs: nothing to learn")
        low, high = float(field.values.min()), float(field.values.max())
        found.append(Field(name, field.domain, kind, scale, field.units, low, high, field.layout))
    return found


def rows_of(fields: Mapping[str, FieldRuns], named: Sequence[Field]) -> RowBlocks:
    """Return the runs of several fields side by side (N, n), as a model sees them.

    Large ones are read, and encoded, when they are used. Float32, or float64 where a field is so
    far from zero that float32 would blur its variation.
    """
    ends = (one.encode(torch.tensor([one.lowest, one.highest]).double()).abs() for one in named)
    far = any(bool((end.isfinite() & (end > COARSE_STD)).any()) for end in ends)
    kind = torch.float64 if far else torch.float32
    rows = ArrayRows([(fields[one.name].values, one.encode) for one in named], kind)
    return rows if rows.large else RowBlocks.of(rows.whole())


@dataclass(frozen=True)
class Split:
    """Numbers of the runs that fit, that choose, and that calibrate what was fitted."""

    training: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray

    def of(self, kept: np.ndarray) -> Split:
        """Return the split of some of the runs, given their numbers in ascending order."""
        parts = (part[np.isin(part, kept)] for part in vars(self).values())
        return Split(*(np.searchsorted(kept, part) for part in parts))

    def uncalibrated(self) -> Split:
        """Return the same where runs that would calibrate are fitted to."""
        nothing, fitted = self.calibration[:0], [self.training, self.calibration]
        every = np.concatenate(fitted)
        return Split(every[~np.isin(every, self.validation)], self.validation, nothing)


def split_runs(size: int, seed: int, groups: np.ndarray | None = None) -> list[Split]:
    """Split runs at random: 15 % calibrate (10 to 200), a fifth of the rest validates (to 500).

    Of fewer than `FEW_RUNS` none is kept apart. There are several splits, in each of which a fifth
    of the runs, or nearly so, validates and calibrates what was fitted to the others.

    Where the number of each run's group is known (size,), groups are split in place of runs, and of
    a group that calibrates one run does, as a new run comes from a new group. Few groups of many
    runs (`MIN_CALIBRATED`) do not calibrate.
    """
    groups = np.arange(size) if groups is None else groups
    count, few = int(groups.max()) + 1, size < FEW_RUNS
    if count < 2:
        raise DataError("all runs are of one group: none is left to judge what was learned")
    order = numpy_generator(seed, "fit", "split").permutation(count)
    apart = 0 if few or count < MIN_CALIBRATED else min(max(round(0.15 * count), 10), 200)
    calibration, rest = order[:apart], order[apart:]
    held = max(1, min(max(round(0.2 * len(rest)), min(4, count // 4)), 500))
    turns = np.split(rest, range(held, len(rest) - held // 2, held)) if few else [rest[:held]]
    by_group = np.argsort(groups, kind="stable")
    members = np.split(by_group, np.cumsum(np.bincount(groups))[:-1])

    def runs_of(some: np.ndarray, most: int | None = None) -> np.ndarray:
        return np.concatenate([by_group[:0], *(members[group][:most] for group in some)])

    return [
        Split(
            runs_of(rest[~np.isin(rest, turn)]),
            runs_of(turn),
            runs_of(turn if few else calibration, 1),
        )
        for turn in turns
    ]


def may_log(field: FieldRuns) -> bool:
    """Return whether a logarithm is possible: positive values, more than two of them."""
    return float(field.values.min()) > 0 and distinct(field, 2) > 2


def distinct(field: FieldRuns, most: int) -> int:
    """Return how many different values the first runs have; one more than `most` if that many."""
    seen = np.empty(0, field.values.dtype)
    for row in field.values[:50]:
        seen = np.union1d(seen, row)
        if len(seen) > most:
            return most + 1
    return len(seen)


def first_runs(values: np.ndarray) -> np.ndarray:
    """Return the first runs of (N, n), as many as say what the values are like."""
    return values[: max(20, MAX_LOOKED_AT // values.shape[1])]


def _typical(values: np.ndarray) -> float:
    """Return the typical size of values that are not zero, the unit of ``asinh``."""
    values = first_runs(values)
    size = np.abs(values[values != 0])
    return float(np.median(size)) / 0.6745 if size.size else 1.0


def _ends_of(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the range of values (N, n), infinite where few values stand at one."""
    values = first_runs(values)  # points where all runs are equal, as at boundaries, do not count
    free = values[:, np.ptp(values, axis=0) > 0]
    if np.unique(free[:50]).size <= MAX_DISTINCT:
        return -math.inf, math.inf
    low, high = float(free.min()), float(free.max())
    at_low, at_high = (float((free == end).mean()) > MIN_AT_END for end in (low, high))
    return low if at_low else -math.inf, high if at_high else math.inf


def output_transforms(field: FieldRuns) -> list[str]:
    """Return the transforms of an output that are worth trying; the first is the plain one."""
    if field.transform is not None:
        return [field.transform]
    if proposed_transform(field) == "log":
        return ["identity", "log"]
    some = first_runs(field.values)
    values = some[:, np.ptp(some, axis=0) > 0].astype(np.float64)
    if not values.size:  # only later runs differ
        return ["identity"]
    plain, changed = (_kurtosis(x) for x in (values, np.arcsinh(values / _typical(values))))
    return ["identity", "asinh"] if changed < plain > HEAVY else ["identity"]


def _kurtosis(values: np.ndarray) -> float:
    """Return the kurtosis of values (N, n) less the mean, over the std, of their point."""
    z = (values - values.mean(0)) / values.std(0)
    return float((z**4).mean())


def _skewness(values: np.ndarray) -> float:
    """Return the skewness of values (n,)."""
    centred = values - values.mean()
    return float((centred**3).mean() / max((centred**2).mean(), 1e-300) ** 1.5)


def proposed_transform(field: FieldRuns) -> str:
    """Return ``log`` where the values are positive and skewed and their logarithm is less so.

    `uqsonet.fit` tries both and takes the one with the better scores.
    """
    if field.transform is not None or not may_log(field):
        return field.transform or "identity"
    values = first_runs(field.values).astype(np.float64).ravel()
    plain, logged = _skewness(values), _skewness(np.log(values))
    return "log" if plain > SKEWED and abs(logged) < plain else "identity"


class FieldDescription(NamedTuple):
    """What `describe` finds about one field.

    `distance` is the largest Kolmogorov distance between a leading coefficient, or the norm of ten
    of them, and what it would be under a Gaussian law, and `chance` what chance alone makes of it
    (95 %), for so many runs.
    """

    name: str
    side: str  # input or output
    distance: float
    chance: float
    text: str


@dataclass(frozen=True)
class Description:
    """What `Runs.describe` finds; printing it is the point."""

    title: str
    fields: tuple[FieldDescription, ...]

    def __str__(self) -> str:
        return printable("\n".join([self.title, *(one.text for one in self.fields)]))


def _described(name: str, side: str, field: FieldRuns, transform: str) -> FieldDescription:
    """Describe a field."""
    LOG.info("describing %s %s", side, name)
    domain, unit = field.domain, _typical(field.values) if transform == "asinh" else 1.0
    rows = ArrayRows([(field.values, Transform(transform, unit).forward)], torch.float64)
    variance, total, coefficients = spectrum(rows, point_weights(domain))
    kept = variance.cumsum(0) / total
    modes = {q: int((kept < q).sum()) + 1 for q in SHARES if float(kept[-1]) >= q - 1e-9}
    counts = ((modes.get(q, f"more than {len(kept)}"), 100 * q) for q in SHARES)
    real = variance[:10] > 1e-12 * variance[0]  # others are rounding of stored values
    distance = distance_from_gaussian(coefficients[:5000, real])
    chance = 1.73 / math.sqrt(min(len(field), 5000))
    law = "no evidence against a Gaussian law" if distance <= chance else "not Gaussian"
    labels = Field(name, domain, layout=field.layout).axis_labels
    ends = zip(labels, domain.lower, domain.upper, strict=True)
    box = ", ".join(f"{axis} {low:g} to {high:g}" for axis, low, high in ends)
    absent = f"; {field.absent} more have no value in any run" if field.absent else ""
    two = ", two values only" if distinct(field, 2) <= 2 else ""
    lines = [
        f"{side:7}{name}: {' x '.join(map(str, domain.shape))} points, {field.values.min():.4g} to "
        f"{field.values.max():.4g}{' ' * bool(field.units)}{field.units}{two}",
        f"       {box}{absent}",
        f"       transform {transform}; modes: "
        + ", ".join(f"{count} keep {share:g} %" for count, share in counts),
        f"       coefficients: {law} (Kolmogorov distance {distance:.3f}; chance {chance:.3f})",
    ]
    return FieldDescription(name, side, distance, chance, "\n".join(lines))


def _with_gaps(name: str, field: FieldRuns, side: str) -> FieldDescription:
    """Describe a field with gaps; what its law is like is not looked at."""
    from uqsonet.runs.gaps import gaps_of  # deferred: most runs are complete

    low, high = np.nanmin(field.values), np.nanmax(field.values)
    shape, units = " x ".join(map(str, field.domain.shape)), " " * bool(field.units) + field.units
    text = f"{side:7}{name}: {shape} points, {low:.4g} to {high:.4g}{units}"
    return FieldDescription(name, side, 0.0, math.inf, f"{text}\n       {gaps_of(field)}")


def distance_from_gaussian(coefficients: Tensor) -> float:
    """Return how far standardised coefficients (N, r) are from independent standard normals.

    The largest Kolmogorov distance of the first ten and of their squared norm, which under a
    Gaussian law is chi-squared: a heavy tail common to all shows there.
    """
    from scipy.special import chdtr, ndtr

    leading = coefficients[:, :10].double().numpy()
    norms = chdtr(leading.shape[1], np.square(leading).sum(1))
    return max(_from_uniform(one) for one in (*ndtr(leading).T, norms))


def _from_uniform(values: np.ndarray) -> float:
    """Return the Kolmogorov distance of values (n,) from the uniform law on [0, 1]."""
    ordered, steps = np.sort(values), np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
