"""Runs: pairs of input and output functions that a user brings, checked and described.

>>> runs = uqsonet.Runs(inputs={"k": K}, outputs={"u": U})  # arrays (N, n) or (N, n1, n2)
>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
>>> print(runs.describe())
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.field import Field, Transform, part_columns
from uqsonet.fields.numbers import without_mask
from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.modes import empirical_modes
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns

MIN_RUNS = 20
"""Fewer runs are too few to learn an operator, choose its size and calibrate its bands."""

FAR = 8192
"""Standard deviations from zero beyond which float32 is coarser than a thousandth of one."""

MAX_DISTINCT = 10
"""Of a field with at most so many different values two runs may be equal by chance."""

SKEWED = 0.5
"""Skewness of positive values above which their logarithm is proposed."""

HEAVY = 5.0
"""Kurtosis of an output above which ``asinh`` is tried; that of a normal law is 3."""

MIN_ATOM = 0.01
"""Share of an output's values that are equal at an end above which it does not go beyond."""

SHARES = (0.9, 0.99, 0.999)
"""Shares of the variance whose modes a description counts."""


class Runs:
    """N runs of a simulator or an experiment: input fields and output fields by name.

    Parameters
    ----------
    inputs, outputs : mapping of str to FieldRuns, or array, or (array, points)
        Arrays are taken by `FieldRuns.of`.
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
        outputs: Mapping[str, object],
        name: str = "runs",
        groups: object = None,
    ) -> None:
        if not (isinstance(inputs, Mapping) and isinstance(outputs, Mapping)):
            raise DataError(
                "inputs and outputs must be mappings of field names to arrays, as in "
                f"Runs({{'k': K}}, {{'u': U}}); found {type(inputs).__name__} and "
                f"{type(outputs).__name__}"
            )
        if not inputs or not outputs:
            raise DataError("runs need at least one input field and one output field")
        if both := sorted(set(inputs) & set(outputs)):
            raise DataError(f"{', '.join(both)}: an input and an output; name them differently")
        self.name = name
        self.inputs = {key: _field_runs(key, value) for key, value in inputs.items()}
        self.outputs = {key: _field_runs(key, value) for key, value in outputs.items()}
        fields = {**self.inputs, **self.outputs}
        sizes = {key: len(field) for key, field in fields.items()}
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise DataError(f"fields have different numbers of runs: {found}")
        size = next(iter(sizes.values()))
        self.groups = None if groups is None else _labels(groups, size)
        kept = np.ones(size, dtype=bool)
        for field in fields.values():
            kept &= True if field.kept is None else field.kept
        if not kept.all():
            self._take(np.flatnonzero(kept))
        if not kept.any():
            raise DataError(f"none of {len(kept)} runs is complete")

    def _take(self, index: np.ndarray) -> None:
        for side in (self.inputs, self.outputs):
            for key, field in side.items():
                side[key] = replace(field, values=field.values[index], kept=None)
        self.groups = None if self.groups is None else self.groups[index]

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: slice | np.ndarray | Sequence[int]) -> Runs:
        """Return some of the runs."""
        found = object.__new__(Runs)
        found.name, found.inputs, found.outputs = self.name, dict(self.inputs), dict(self.outputs)
        found.groups = self.groups
        if np.ndim(index) == 0 and not isinstance(index, slice):  # type: ignore[arg-type]
            raise DataError(f"runs[{index}]: a slice or a list of numbers gives runs")
        found._take(np.arange(len(self))[without_mask(index, "numbers of runs", error=DataError)])
        return found

    def __repr__(self) -> str:
        def side(fields: Mapping[str, FieldRuns]) -> str:
            return ", ".join(
                f"{k} ({' x '.join(map(str, f.domain.shape))})" for k, f in fields.items()
            )

        return f"Runs({len(self)} runs: {side(self.inputs)} -> {side(self.outputs)})"

    def require_enough(self) -> None:
        """Refuse to learn from fewer than `MIN_RUNS` runs.

        Raises
        ------
        DataError
        """
        if len(self) < MIN_RUNS:
            raise DataError(
                f"{self.name}: {len(self)} runs; at least {MIN_RUNS} are needed to learn an "
                "operator, choose its size and calibrate its bands. uqsonet.Regression answers "
                "from so few"
            )

    def split(self, seed: int) -> Split:
        """Split the runs at random; groups and copies of a run stay together (`split_runs`)."""
        return split_runs(len(self), seed, self._belonging())

    def _belonging(self) -> np.ndarray | None:
        """Return the number of each run's group (N,); copies of one run are a group."""
        labels = self.groups
        if labels is None:
            fields = (*self.inputs.values(), *self.outputs.values())
            if any(np.unique(field.values[:50]).size <= MAX_DISTINCT for field in fields):
                return None
            labels = np.array(
                [
                    hashlib.blake2b(b"".join(one.values[k].tobytes() for one in fields)).hexdigest()
                    for k in range(len(self))
                ]
            )
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        if len(first) == len(labels):
            return None
        return number

    def describe(self) -> Description:
        """Return shapes, ranges, proposed transforms, spectra and distance from Gaussian laws."""
        return describe(self.name, self.inputs, self.outputs)


def _labels(groups: object, size: int) -> np.ndarray:
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
    fields: Mapping[str, FieldRuns],
    transforms: Mapping[str, str] | None = None,
    ends: bool = False,
) -> list[Field]:
    """Return what a model has to know of fields, with the transforms named or proposed.

    With `ends` a field does not leave its range where values stand at an end of it.
    """
    found = []
    for name, field in fields.items():
        kind = (transforms or {}).get(name) or field.transform or "identity"
        unit = _typical(field.values) if kind == "asinh" else 1.0
        transform = Transform(kind, unit, *(_ends_of(field.values) if ends else ()))
        rows = RowBlocks.of(torch.from_numpy(field.values))
        mean, std = column_moments(rows.map(lambda v, t=transform: t.forward(v.double())))
        scale = float(std.square().mean().sqrt())
        if not scale > 1e-7 * float(mean.abs().max()):  # the rounding of stored values
            raise DataError(f"{name}: the same in all runs: nothing to learn")
        low, high = float(field.values.min()), float(field.values.max())
        found.append(
            Field(name, field.domain, transform, scale, field.units, low, high, field.layout)
        )
    return found


def rows_of(fields: Mapping[str, FieldRuns], named: Sequence[Field]) -> Tensor:
    """Return the runs of several fields side by side (N, n), as a model sees them.

    Float32, or float64 where a field is so far from zero that float32 would blur its variation.
    """
    size = len(next(iter(fields.values())))
    ends = [
        one.encode(torch.tensor([one.lowest, one.highest], dtype=torch.float64)).abs()
        for one in named
    ]
    far = any(bool((end.isfinite() & (end > FAR)).any()) for end in ends)
    kind = torch.float64 if far else torch.float32
    found = torch.empty(size, sum(one.domain.size for one in named), dtype=kind)
    for number, one in enumerate(named):
        rows, first = RowBlocks.of(torch.from_numpy(fields[one.name].values)), 0
        for block in rows.blocks():
            part = slice(first, first + len(block))
            found[part, part_columns(named, number)] = one.encode(block.double())
            first += len(block)
    return found


@dataclass(frozen=True)
class Split:
    """Numbers of the runs in each part."""

    training: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def split_runs(size: int, seed: int, groups: np.ndarray | None = None) -> Split:
    """Split runs at random: 15 % calibrate (10 to 200), a fifth of the rest validates (to 500).

    Parameters
    ----------
    size : int
        Number of runs, at least 20.
    seed : int
    groups : ndarray of int, shape (size,), optional
        Number of each run's group. Groups are split in place of runs, and of a group that
        calibrates one run does, as a new run comes from a new group.
    """
    count = size if groups is None else int(groups.max()) + 1
    order = numpy_generator(seed, "fit", "split").permutation(count)
    calibration = min(max(round(0.15 * count), min(10, count // 4)), 200)
    validation = min(max(round(0.2 * (count - calibration)), min(4, count // 4)), 500)
    ends = calibration, calibration + validation
    parts = order[ends[1] :], order[ends[0] : ends[1]], order[: ends[0]]
    if groups is None:
        return Split(*parts)
    by_group = np.argsort(groups, kind="stable")
    members = np.split(by_group, np.cumsum(np.bincount(groups))[:-1])
    training, held = (np.concatenate([members[g] for g in part]) for part in parts[:2])
    return Split(training, held, np.array([members[g][0] for g in parts[2]]))


def may_log(field: FieldRuns) -> bool:
    """Return whether a logarithm is possible: positive values, more than two of them."""
    return float(field.values.min()) > 0 and np.unique(field.values[:50]).size > 2


def _typical(values: np.ndarray) -> float:
    """Return the typical size of values that are not zero, the unit of ``asinh``."""
    size = np.abs(values[values != 0])
    return float(np.median(size)) / 0.6745 if size.size else 1.0


def _ends_of(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the range of values (N, n), infinite where few values stand at one.

    Points where all runs are equal do not count, boundaries for example.
    """
    free = values[:, np.ptp(values, axis=0) > 0]
    if np.unique(free[:50]).size <= MAX_DISTINCT:
        return -math.inf, math.inf
    low, high = float(free.min()), float(free.max())
    at_low, at_high = (float((free == end).mean()) > MIN_ATOM for end in (low, high))
    return low if at_low else -math.inf, high if at_high else math.inf


def output_transforms(field: FieldRuns) -> list[str]:
    """Return the transforms of an output that are worth trying; the first is the plain one."""
    if field.transform is not None:
        return [field.transform]
    if proposed_transform(field) == "log":
        return ["identity", "log"]
    values = field.values[:, np.ptp(field.values, axis=0) > 0].astype(np.float64)
    plain, changed = (_kurtosis(x) for x in (values, np.arcsinh(values / _typical(values))))
    return ["identity", "asinh"] if changed < plain > HEAVY else ["identity"]


def _kurtosis(values: np.ndarray) -> float:
    """Return the kurtosis of values (N, n) less the mean, over the std, of their point."""
    z = (values - values.mean(0)) / values.std(0)
    return float((z**4).mean())


def proposed_transform(field: FieldRuns) -> str:
    """Return ``log`` where the values are positive and skewed and their logarithm is less so.

    `uqsonet.fit` tries both and takes the one with the better scores.
    """
    if field.transform is not None or not may_log(field):
        return field.transform or "identity"
    values = field.values.astype(np.float64)
    plain, logged = _skewness(values), _skewness(np.log(values))
    return "log" if plain > SKEWED and abs(logged) < plain else "identity"


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred**3).mean() / (centred**2).mean() ** 1.5)


@dataclass(frozen=True)
class FieldDescription:
    """What `describe` finds about one field.

    Attributes
    ----------
    name, side, units, transform : str
        `side` is ``input`` or ``output``; `transform` is the one proposed.
    points : tuple of int
    lowest, highest : float
    distinct : int
        Different values among the first runs, at most 3.
    modes : dict of float to int
        Modes that keep a share of the variance.
    distance : float
        Largest Kolmogorov distance between a leading coefficient, or the norm of ten of them, and
        what it would be under a Gaussian law.
    chance : float
        What chance alone makes of it (95 %), for so many runs.
    interpolation_error : float
    """

    name: str
    side: str
    units: str
    transform: str
    points: tuple[int, ...]
    lowest: float
    highest: float
    distinct: int
    modes: dict[float, int]
    distance: float
    chance: float
    interpolation_error: float

    def __str__(self) -> str:
        units = f" {self.units}" if self.units else ""
        kept = ", ".join(f"{count} keep {100 * share:g} %" for share, count in self.modes.items())
        two = ", two values only" if self.distinct <= 2 else ""
        law = "no evidence against a Gaussian law"
        if self.distance > self.chance:
            law = "not Gaussian"
        lines = [
            f"{self.side:7}{self.name}: {' x '.join(map(str, self.points))} points, "
            f"{self.lowest:.4g} to {self.highest:.4g}{units}{two}",
            f"       transform {self.transform}; modes: {kept}",
            f"       coefficients: {law} (Kolmogorov distance {self.distance:.3f}; "
            f"chance {self.chance:.3f})",
        ]
        if self.interpolation_error:
            lines.append(
                f"       interpolated to common points, with an error of about "
                f"{100 * self.interpolation_error:.2g} % of its standard deviation"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Description:
    """What `Runs.describe` finds; printing it is the point."""

    name: str
    runs: int
    fields: tuple[FieldDescription, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.runs} runs", *map(str, self.fields)])


def describe(
    name: str, inputs: Mapping[str, FieldRuns], outputs: Mapping[str, FieldRuns]
) -> Description:
    """Describe the fields of a data set of this name (`Runs.describe`)."""
    described = [
        _described(key, "input", one, proposed_transform(one)) for key, one in inputs.items()
    ]
    described += [
        _described(key, "output", one, output_transforms(one)[-1]) for key, one in outputs.items()
    ]
    return Description(name, len(next(iter(inputs.values()))), tuple(described))


def _described(name: str, side: str, field: FieldRuns, transform: str) -> FieldDescription:
    """Describe a field."""
    unit = _typical(field.values) if transform == "asinh" else 1.0
    forward = Transform(transform, unit).forward
    values = torch.from_numpy(field.values)
    rows = RowBlocks.of(values).map(lambda block: forward(block.double()))
    modes = empirical_modes(rows, min(len(field) - 1, rows.shape[1], 400), "modes")
    total = modes.std.square().sum() + rows.shape[1] * modes.remainder**2
    kept = (modes.std.square().cumsum(0) / total).clamp_max(1)
    real = modes.std > 1e-6 * modes.std[0]  # others are the rounding of stored values
    some = modes.coefficients(forward(values[:5000].double()))[:, real]
    return FieldDescription(
        name=name,
        side=side,
        units=field.units,
        transform=transform,
        points=field.domain.shape,
        lowest=float(field.values.min()),
        highest=float(field.values.max()),
        distinct=min(3, np.unique(field.values[:50]).size),
        modes={share: int((kept < share).sum()) + 1 for share in SHARES},
        distance=distance_from_gaussian(some / modes.std[real]),
        chance=1.73 / math.sqrt(len(some)),
        interpolation_error=field.interpolation_error,
    )


def distance_from_gaussian(coefficients: Tensor) -> float:
    """Return how far standardised coefficients (N, r) are from independent standard normals.

    The largest Kolmogorov distance of the first ten and of their squared norm, which under a
    Gaussian law is chi-squared: a heavy tail common to all shows there.
    """
    leading = coefficients[:, :10]
    cuts = [torch.special.ndtr(column) for column in leading.T]
    half = torch.tensor(leading.shape[1] / 2, dtype=torch.float64)
    cuts.append(torch.special.gammainc(half, leading.square().sum(1) / 2))
    size = len(coefficients)
    steps = torch.arange(size + 1, dtype=torch.float64) / size
    worst = 0.0
    for cut in cuts:
        ordered = cut.double().sort().values
        gap = torch.maximum((ordered - steps[:-1]).abs(), (ordered - steps[1:]).abs())
        worst = max(worst, float(gap.max()))
    return worst
