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
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    "Emulator": "emulator.emulator",
    "Field": "fields.field",
    "FieldPosterior": "emulator.answer",
    "FieldRuns": "runs.field_runs",
    "Grid": "fields.grid",
    "ObservationWarning": "errors",
    "OperatorFields": "fields.operator_fields",
    "Runs": "runs.runs",
    "Transform": "fields.field",
    "UQSONetError": "errors",
    "UQSONetRegressor": "fitting.regressor",
    "WeightedPoints": "sensors.sensors",
    "fit": "fitting.fit",
    "load": "emulator.emulator",
    "open_runs": "runs.files",
}

_MOVED = {
    "uqsonet.config": "uqsonet.operator.config and uqsonet.networks.config",
    "uqsonet.data": "uqsonet.runs.functions",
    "uqsonet.domains": "uqsonet.fields.cloud",
    "uqsonet.field_posterior": "uqsonet.emulator.answer",
    "uqsonet.fitting.scores": "uqsonet.fitting.validate",
    "uqsonet.functionals": "uqsonet.sensors.sensors",
    "uqsonet.gaussian": "uqsonet.gauss.gaussian",
    "uqsonet.gaussian_process": "uqsonet_study.priors.gaussian_process",
    "uqsonet.joint": "uqsonet.operator.joint",
    "uqsonet.metrics": "uqsonet.gauss.metrics",
    "uqsonet.models": "uqsonet.operator and uqsonet.networks",
    "uqsonet.networks.ensemble": "uqsonet_study.ensemble",
    "uqsonet.networks.training": "uqsonet_study.trainer and uqsonet_study.gradients",
    "uqsonet.operator_fields": "uqsonet.fields.operator_fields",
    "uqsonet.placement": "uqsonet.emulator.place",
    "uqsonet.posterior": "uqsonet.gauss.posterior",
    "uqsonet.priors": "uqsonet_study.beyond.priors",
    "uqsonet.problems": "uqsonet_study.problems",
    "uqsonet.reading": "uqsonet.runs.files",
    "uqsonet.reference": "uqsonet_study.reference",
    "uqsonet.regression": "uqsonet.operator.regression",
    "uqsonet.scores": "uqsonet.fitting.validate",
    "uqsonet.seeds": "uqsonet.gauss.seeds",
    "uqsonet.solvers": "uqsonet_study.solvers",
    "uqsonet.storage": "uqsonet.files and uqsonet_study.storage",
    "uqsonet.training": "uqsonet.operator.train",
    "uqsonet.truncated_gaussian": "uqsonet.laws.truncated",
}
"""Import paths of earlier versions, and where their contents are now."""

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


class _Moved(MetaPathFinder):
    """Answers an import path of an earlier version with the new one."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in _MOVED:
            raise ModuleNotFoundError(f"{name} has moved: import {_MOVED[name]}", name=name)


sys.meta_path.append(_Moved())  # after all others: asked only for what is not there


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the pipeline reads this package without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"uqsonet.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return sorted(__all__)
