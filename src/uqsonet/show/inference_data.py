"""Answers as ArviZ keeps them: draws before and after the measurement, and what sensors read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.fields.field import Field
from uqsonet.sensors.sensors import no_sensors
from uqsonet.show.export import labelled

LEAD = ("chain", "draw", "set")


def inference_data(posterior: Any, fields: Sequence[Field], draws: int, seed: int) -> Any:
    """Return what `FieldPosterior.to_inference_data` promises, of some fields."""
    arviz, xarray = library("arviz", "handover"), library("xarray")
    groups = {"posterior": _draws(posterior, fields, draws, seed)}
    with suppress(ObservationError):  # not every operator answers without sensors
        groups["prior"] = _draws(posterior.given(no_sensors(fields)), fields, draws, seed)
    groups["observed_data"] = xarray.Dataset(dict(_readings(posterior)))
    early = int(arviz.__version__.partition(".")[0]) < 1
    return arviz.InferenceData(**groups) if early else xarray.DataTree.from_dict(groups)


def _draws(posterior: Any, fields: Sequence[Field], draws: int, seed: int) -> Any:
    """Return a Dataset with functions of each field."""
    xarray, single, arrays = library("xarray"), posterior.single, []
    for name in dict.fromkeys(one.name for one in fields):
        one = posterior[name]
        drawn, (dims, known, shaped) = np.asarray(one.sample(draws, seed=seed)), labelled(one.field)
        known |= {"chain": [0], "draw": np.arange(draws)}
        known |= {} if single else {"set": posterior.sensors.labels}
        values = shaped(drawn if single else drawn.swapaxes(0, 1))[None]
        dims = *LEAD[: 2 if single else 3], *dims
        arrays.append(xarray.DataArray(values, known, dims, name, {"units": one.field.units}))
    try:
        return xarray.merge(arrays, join="exact", compat="no_conflicts", combine_attrs="drop")
    except ValueError:  # axes of one name and different points get the name of their field
        own = ({axis: f"{axis}_{one.name}" for axis in {*one.dims, *one.coords}.difference(LEAD)}
               for one in arrays)  # fmt: skip
        return xarray.Dataset({one.name: one.rename(names) for one, names in zip(arrays, own)})  # noqa: B905


def _readings(posterior: Any) -> Iterator[tuple[str, Any]]:
    """Yield for each field that sensors read what they read, and where."""
    sensors = posterior.sensors
    for number, one in posterior.read.items():
        here = sensors.mask & (sensors.field == number)
        used, dims, known = here.any(0), ("set", f"{one.name}_sensor"), {"set": sensors.labels}
        for k, axis in enumerate(one.axes if sensors.weights is None else ()):
            known[f"{one.name}_sensor_{axis}"] = dims, np.asarray(sensors.locations[:, used, k])
        values = np.where(here[:, used], sensors.values[:, used], np.nan)
        array = library("xarray").DataArray(values, known, dims, one.name, {"units": one.units})
        yield one.name, array.isel(set=0, drop=True) if sensors.single else array
