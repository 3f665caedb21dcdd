"""Answers as ArviZ keeps them: draws before and after the measurement, and what sensors read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from uqsonet.errors import ObservationError, library
from uqsonet.sensors.sensors import no_sensors
from uqsonet.show.export import labelled

if TYPE_CHECKING:
    from uqsonet.fields.field import Field

LEAD = ("chain", "draw", "set")
"""Dimensions of draws before those of a field."""


def inference_data(posterior: Any, fields: Sequence[Field], draws: int, seed: int) -> Any:
    """Return what `FieldPosterior.to_inference_data` promises; `fields` are all of the operator."""
    arviz, xarray = library("arviz", "handover"), library("xarray")
    groups = {"posterior": _draws(posterior, fields, draws, seed)}
    with suppress(ObservationError):  # not every operator answers without sensors
        groups["prior"] = _draws(posterior.given(no_sensors(fields)), fields, draws, seed)
    groups["observed_data"] = xarray.Dataset(dict(_readings(posterior)))
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**groups)
    return xarray.DataTree.from_dict(groups)


def _draws(posterior: Any, fields: Sequence[Field], draws: int, seed: int) -> Any:
    """Return a Dataset of functions of every field that the operator has a law of."""
    xarray = library("xarray")
    lead = LEAD[: 2 if posterior.single else 3]
    arrays = []
    for name in dict.fromkeys(one.name for one in fields):
        one = posterior[name]
        try:
            drawn = np.asarray(one.sample(draws, seed=seed))
        except ObservationError:
            if any(name == known.name for known in posterior.inputs):
                continue  # not every operator has a law of its input
            raise
        dims, coordinates, shaped = labelled(one.field)
        values = shaped(drawn if posterior.single else drawn.swapaxes(0, 1))[None]
        coordinates |= {"chain": [0], "draw": np.arange(len(values[0]))}
        if not posterior.single:
            coordinates["set"] = posterior.sensors.labels
        units = {"units": one.field.units}
        arrays.append(xarray.DataArray(values, coordinates, (*lead, *dims), name, units))
    try:
        together = xarray.merge(arrays, join="exact", compat="no_conflicts", combine_attrs="drop")
    except ValueError:  # axes of one name and different points
        own = ({axis: f"{axis}_{one.name}" for axis in {*one.dims, *one.coords}.difference(LEAD)}
               for one in arrays)  # fmt: skip
        together = xarray.merge([one.rename(names) for one, names in zip(arrays, own, strict=True)])
    return together.assign_attrs(inference_library="uqsonet")


def _readings(posterior: Any) -> Iterator[tuple[str, Any]]:
    """Yield for each field that sensors read what they read, with places and noise."""
    xarray, sensors = library("xarray"), posterior.sensors
    for number, one in posterior.read.items():
        here = sensors.mask & (sensors.field == number)
        used = here.any(0)
        dims: tuple[str, ...] = ("set", f"{one.name}_sensor")
        columns = {"noise_std": sensors.noise_std}
        if sensors.weights is None:
            columns |= {axis: sensors.locations[..., k] for k, axis in enumerate(one.axes)}
        known = {
            f"{one.name}_sensor_{name}": (dims, np.asarray(column[:, used], dtype=float))
            for name, column in columns.items()
        }
        values = np.where(here[:, used], sensors.values[:, used], np.nan)
        array = xarray.DataArray(
            values, {"set": sensors.labels, **known}, dims, one.name, {"units": one.units}
        )
        yield one.name, array.isel(set=0, drop=True) if sensors.single else array
