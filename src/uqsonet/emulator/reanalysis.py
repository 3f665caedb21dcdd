"""Runs completed: the law of each run's fields given what was read of it (`Emulator.complete`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from uqsonet.errors import DataError, library
from uqsonet.fields.field import Field
from uqsonet.gauss.incomplete import Readings
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import Runs
from uqsonet.sensors.sensors import Sensors, side_by_side
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
    emulator: Emulator, fields: dict[str, int], there: dict[str, FieldRuns], rows: torch.Tensor,
    samples: int,
) -> dict[tuple[str, str], np.ndarray]:  # fmt: skip
    """Return mean and std (b, M), and samples (b, n, M), by field, of runs of these numbers."""
    named = emulator.named_fields
    read = {name: torch.from_numpy(there[name].values[rows]).double()
            for name in fields if name in there}  # fmt: skip
    sets = side_by_side([_sensors(named[fields[n]], fields[n], there[n], one)
                         for n, one in read.items()])  # fmt: skip
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


def _sensors(field: Field, number: int, runs: FieldRuns, values: torch.Tensor) -> Sensors:
    """Return the readings (b, n) of a field as sensors, NaN where there is none."""
    seen = Readings.of(values)
    places = runs.domain.points().double()[seen.at] * seen.mask[..., None]
    read = seen.values.masked_fill(~seen.mask, 1.0)
    labels = [str(k) for k in range(len(values))]
    return Sensors(places, read, seen.mask, field=torch.full(read.shape, number), labels=labels)
