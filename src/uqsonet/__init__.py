"""UQ-SONet: operators from sparse sensors, with the whole conditional distribution of the output.

>>> import uqsonet
>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")  # your own pairs
>>> model = uqsonet.fit(runs, minutes=5)
>>> posterior = model.condition(locations, values)  # (m, d), (m,); or a DataFrame, or a CSV file
>>> posterior.mean(points), posterior.std(points)  # (M,)
>>> lower, upper = posterior.band(0.9)
>>> posterior.sample(1000, points)  # (1000, M), coherent functions
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from uqsonet.version import __version__

if TYPE_CHECKING:
    from uqsonet.emulator import Emulator, load
    from uqsonet.errors import ObservationWarning, UQSONetError
    from uqsonet.field_posterior import FieldPosterior
    from uqsonet.fields import Field, Grid, Transform, WeightedPoints
    from uqsonet.fitting import fit
    from uqsonet.operator_fields import OperatorFields
    from uqsonet.reading import open_runs
    from uqsonet.runs import FieldRuns, Runs

_HOMES = {
    "Emulator": "emulator",
    "Field": "fields",
    "FieldPosterior": "field_posterior",
    "FieldRuns": "runs",
    "Grid": "fields",
    "ObservationWarning": "errors",
    "OperatorFields": "operator_fields",
    "Runs": "runs",
    "Transform": "fields",
    "UQSONetError": "errors",
    "WeightedPoints": "fields",
    "fit": "fitting",
    "load": "emulator",
    "open_runs": "reading",
}

__all__ = [
    "Emulator",
    "Field",
    "FieldPosterior",
    "FieldRuns",
    "Grid",
    "ObservationWarning",
    "OperatorFields",
    "Runs",
    "Transform",
    "UQSONetError",
    "WeightedPoints",
    "__version__",
    "fit",
    "load",
    "open_runs",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the pipeline reads this package without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"uqsonet.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return sorted(__all__)
