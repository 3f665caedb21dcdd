"""UQ-SONet: operators from sparse sensors, with the whole conditional distribution of the output.

>>> import uqsonet
>>> model = uqsonet.load("weights.safetensors")
>>> posterior = model.condition(locations, values)  # (m, d), (m,)
>>> posterior.mean(queries), posterior.std(queries)  # (M,)
>>> posterior.sample(1000, queries)  # (1000, M), coherent functions
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from uqsonet.version import __version__

if TYPE_CHECKING:
    from uqsonet.fields import Field, Grid, Transform
    from uqsonet.models.weights import load
    from uqsonet.operator_fields import OperatorFields
    from uqsonet.posterior import Posterior

_HOMES = {
    "Field": "fields",
    "Grid": "fields",
    "OperatorFields": "operator_fields",
    "Posterior": "posterior",
    "Transform": "fields",
    "load": "models.weights",
}

__all__ = ["Field", "Grid", "OperatorFields", "Posterior", "Transform", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the pipeline reads this package without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"uqsonet.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return sorted(__all__)
