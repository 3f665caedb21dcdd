"""Runs: pairs of input and output functions that a user brings, checked and described.

>>> runs = uqsonet.Runs(inputs={"k": K}, outputs={"u": U})  # arrays (N, n) or (N, n1, n2)
>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")
>>> print(runs.describe())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.field import Field, Transform, part_columns
from uqsonet.fields.numbers import without_mask
from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.description import Description, describe
from uqsonet.runs.field_runs import FieldRuns

MIN_RUNS = 20
"""Fewer runs are too few to learn an operator, choose its size and calibrate its bands."""

FAR = 8192
"""Standard deviations from zero beyond which float32 is coarser than a thousandth of one."""


class Runs:
    """N runs of a simulator or an experiment: input fields and output fields by name.

    Parameters
    ----------
    inputs, outputs : mapping of str to FieldRuns, or array, or (array, points)
        Arrays are taken by `FieldRuns.of`.
    name : str
        Of the data set.

    Raises
    ------
    DataError
        If the numbers of runs differ, a name stands for two fields, or no run is complete.
    """

    def __init__(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object], name: str = "runs"
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
        for key, field in self.outputs.items():
            if field.transform == "log":
                raise DataError(f"{key}: outputs are not transformed; give their logarithm instead")
        sizes = {key: len(field) for key, field in fields.items()}
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise DataError(f"fields have different numbers of runs: {found}")
        kept = np.ones(next(iter(sizes.values())), dtype=bool)
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

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: slice | np.ndarray | Sequence[int]) -> Runs:
        """Return some of the runs."""
        found = object.__new__(Runs)
        found.name, found.inputs, found.outputs = self.name, dict(self.inputs), dict(self.outputs)
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
                "operator, choose its size and calibrate its bands"
            )

    def describe(self) -> Description:
        """Return shapes, ranges, proposed transforms, spectra and distance from Gaussian laws."""
        return describe(self.name, self.inputs, self.outputs)


def _field_runs(name: str, value: object) -> FieldRuns:
    if isinstance(value, FieldRuns):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return FieldRuns.of(value[0], value[1], name=name)
    return FieldRuns.of(value, name=name)


def named_fields(
    fields: Mapping[str, FieldRuns], transforms: Mapping[str, str] | None = None
) -> list[Field]:
    """Return what a model has to know of fields, with the transforms named or proposed."""
    found = []
    for name, field in fields.items():
        transform = Transform((transforms or {}).get(name) or field.transform or "identity")
        rows = RowBlocks.of(torch.from_numpy(field.values))
        mean, std = column_moments(rows.map(lambda v, t=transform: t.forward(v.double())))
        scale = float(std.square().mean().sqrt())
        if not scale > 1e-7 * float(mean.abs().max()):  # the rounding of stored values
            raise DataError(f"{name}: the same in all runs: nothing to learn")
        low, high = float(field.values.min()), float(field.values.max())
        found.append(Field(name, field.domain, transform, scale, field.units, low, high))
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


def split_runs(size: int, seed: int) -> Split:
    """Split runs at random: 15 % calibrate (10 to 200), a fifth of the rest validates (to 500).

    Parameters
    ----------
    size : int
        Number of runs, at least 20.
    seed : int
    """
    order = numpy_generator(seed, "fit", "split").permutation(size)
    calibration = min(max(round(0.15 * size), min(10, size // 4)), 200)
    validation = min(max(round(0.2 * (size - calibration)), 4), 500)
    ends = calibration, calibration + validation
    return Split(order[ends[1] :], order[ends[0] : ends[1]], order[: ends[0]])
