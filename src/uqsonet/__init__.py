"""UQ-SONet: operators from sparse sensors, with the whole conditional distribution of the output.

>>> import uqsonet
>>> runs = uqsonet.open_runs("runs.nc", input="k", output="u")  # your own pairs
>>> model = uqsonet.fit(runs)
>>> posterior = model.condition(locations, values)  # (m, d), (m,); or a DataFrame, or a CSV file
>>> posterior.mean(points), posterior.std(points)  # (M,)
>>> lower, upper = posterior.band(0.9)
>>> posterior.sample(1000, points)  # (1000, M), coherent functions
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uqsonet.dynamics.dynamics import Dynamics
    from uqsonet.dynamics.fit import fit_dynamics
    from uqsonet.dynamics.trajectories import Trajectories, open_trajectories
    from uqsonet.emulator.answer import FieldPosterior
    from uqsonet.emulator.emulator import Emulator, load
    from uqsonet.errors import ObservationWarning, UQSONetError
    from uqsonet.fields.field import Field, Transform
    from uqsonet.fields.grid import Grid
    from uqsonet.fields.operator_fields import OperatorFields
    from uqsonet.fitting.fit import fit
    from uqsonet.runs.field_runs import FieldRuns
    from uqsonet.runs.files import open_runs
    from uqsonet.runs.runs import Runs
    from uqsonet.sensors.sensors import WeightedPoints

__version__ = "1.0.0"

_HOMES = {
    "Dynamics": "dynamics.dynamics",
    "Emulator": "emulator.emulator",
    "Field": "fields.field",
    "FieldPosterior": "emulator.answer",
    "FieldRuns": "runs.field_runs",
    "Grid": "fields.grid",
    "ObservationWarning": "errors",
    "OperatorFields": "fields.operator_fields",
    "Runs": "runs.runs",
    "Trajectories": "dynamics.trajectories",
    "Transform": "fields.field",
    "UQSONetError": "errors",
    "UQSONetRegressor": "fitting.regressor",
    "WeightedPoints": "sensors.sensors",
    "fit": "fitting.fit",
    "fit_dynamics": "dynamics.fit",
    "load": "emulator.emulator",
    "open_runs": "runs.files",
    "open_trajectories": "dynamics.trajectories",
}

__all__ = [
    "Dynamics",
    "Emulator",
    "Field",
    "FieldPosterior",
    "FieldRuns",
    "Grid",
    "ObservationWarning",
    "OperatorFields",
    "Runs",
    "Trajectories",
    "Transform",
    "UQSONetError",
    "WeightedPoints",
    "__version__",
    "fit",
    "fit_dynamics",
    "load",
    "open_runs",
    "open_trajectories",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the pipeline reads this package without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"uqsonet.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return sorted(__all__)
