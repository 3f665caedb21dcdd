"""Runs completed: the law of each run's fields given what was read of it (`Emulator.complete`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import DataError, library
from uqsonet.gauss.incomplete import Readings
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import Runs
from uqsonet.sensors.sensors import Sensors
from uqsonet.show.export import labelled

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

TOGETHER = 64  # runs that are conditioned at a time


def completed(emulator: Emulator, runs: Runs, samples: int) -> Any:
    """Return the law of each run given its own readings: a reanalysis of runs with gaps.

    Parameters
    ----------
    emulator : Emulator
    runs : Runs
        Some fields of the model, on its points or others in its domain; NaN is no reading.
        Readings have the noise that the model was fitted for.
    samples : int
        Functions that are drawn of each run.

    Returns
    -------
    xarray.Dataset
        ``<field>_mean``, ``<field>_std`` and ``<field>_samples`` by run, at the model's points.
        What was read there without noise is the mean, with a standard deviation of zero.

    Raises
    ------
    DataError
        If runs have none of the model's fields.
    """
    fields = {one.name: k for k, one in reversed(list(enumerate(emulator.named_fields)))}
    there = {**runs.inputs, **runs.outputs}
    if not any(name in there for name in fields):
        raise DataError(
            f"{runs.name}: no field of the model, {', '.join(fields)}; there are {', '.join(there)}"
        )
    variables, coordinates = {}, {"run": np.arange(len(runs))}
    parts = [_answers(emulator, fields, there, rows, samples)
             for rows in torch.arange(len(runs)).split(TOGETHER)]  # fmt: skip
    for name, number in fields.items():
        one = emulator.named_fields[number]
        dims, own, shaped = labelled(one)
        coordinates |= own
        for kind in ("mean", "std", *(["samples"] if samples else [])):
            values = np.concatenate([part[name, kind] for part in parts])
            before = ("run", "sample") if kind == "samples" else ("run",)
            variables[f"{name}_{kind}"] = (*before, *dims), shaped(values), {"units": one.units}
    return library("xarray").Dataset(variables, coordinates)


def _answers(
    emulator: Emulator, fields: dict[str, int], there: dict[str, FieldRuns], rows: Tensor,
    samples: int,
) -> dict[tuple[str, str], np.ndarray]:  # fmt: skip
    """Return mean and std (b, M), and samples (b, n, M), by field, of runs of these numbers."""
    named = emulator.named_fields
    read = {name: torch.from_numpy(there[name].values[rows]).double()
            for name in fields if name in there}  # fmt: skip
    points = [there[name].domain.points() for name in read]
    sets = sensors_of_rows(torch.cat([*read.values()], 1), points, [fields[name] for name in read])
    answer, found = emulator.answer(sets), {}
    for name, number in fields.items():
        one = answer[name]
        found[name, "mean"], found[name, "std"] = one.mean().numpy(), one.std().numpy()
        if samples:
            found[name, "samples"] = one.sample(samples).numpy()
        same = name in read and there[name].domain == named[number].domain
        if same and emulator.default_noise(number) == 0:  # what was read exactly is known
            known = read[name].numpy()
            seen = ~np.isnan(known)
            found[name, "mean"][seen], found[name, "std"][seen] = known[seen], 0.0
            if samples:
                whole = np.broadcast_to(known[:, None], found[name, "samples"].shape)
                np.copyto(found[name, "samples"], whole, where=seen[:, None])
    return found


def sensors_of_rows(
    rows: Tensor, points: Sequence[Tensor], fields: Sequence[int], noise: Tensor | None = None
) -> Sensors:
    """Return the readings of rows (N, P) as N sets of sensors; NaN is nothing.

    Columns are points (n_k, d_k) of fields of these numbers, one field after another. Noise (K,) is
    by field; by default it is the model's.
    """
    dim, seen = max(one.shape[1] for one in points), Readings.of(rows)
    x = torch.cat([torch.nn.functional.pad(one.double(), [0, dim - one.shape[1]])
                   for one in points])  # fmt: skip
    sizes = torch.tensor([len(one) for one in points])
    of = torch.arange(len(points)).repeat_interleave(sizes)[seen.at]
    levels = torch.full((len(points),), torch.nan) if noise is None else noise
    values = seen.values.masked_fill(~seen.mask, 1.0)
    return Sensors(
        x[seen.at] * seen.mask[..., None], values, seen.mask, noise_std=levels.double()[of],
        field=torch.tensor(fields)[of], labels=[str(k) for k in range(len(rows))],
    )  # fmt: skip
