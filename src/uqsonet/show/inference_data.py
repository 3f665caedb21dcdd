"""Answers as ArviZ keeps them (`FieldPosterior.to_inference_data`)."""

from typing import Any

import numpy as np

from uqsonet.errors import library
from uqsonet.show.export import labelled


def inference_data(laws: dict[str, Any], fields: list[Any], draws: int, seed: int) -> Any:
    """Return draws of some fields under each of some laws, the groups."""
    arviz, xarray, groups = library("arviz", "handover"), library("xarray"), {}
    for group, law in laws.items():
        arrays = []
        for one in (law[name] for name in dict.fromkeys(field.name for field in fields)):
            dims, known, shaped = labelled(one.field)
            dims = ("draw", *dims) if law.single else ("set", "draw", *dims)
            values = shaped(np.asarray(one.sample(draws, rng=seed)))
            units = {"units": one.field.units}
            array = xarray.DataArray(values, known, dims, one.field.name, units)
            arrays.append(array.expand_dims("chain").transpose("chain", "draw", ...))
        try:
            groups[group] = xarray.merge(arrays, join="exact", combine_attrs="drop")
        except ValueError:  # axes of one name and different points get the name of their field
            own = [{k: f"{k}_{one.name}" for k in one.coords} for one in arrays]
            arrays = [one.rename(names) for one, names in zip(arrays, own, strict=True)]
            groups[group] = xarray.merge(arrays, combine_attrs="drop")
    tree = xarray.DataTree.from_dict
    return arviz.InferenceData(**groups) if arviz.__version__ < "1" else tree(groups)
