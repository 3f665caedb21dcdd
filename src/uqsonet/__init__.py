"""UQ-SONet: operators from sparse sensors, with the whole conditional distribution of the output.

>>> import uqsonet
>>> model = uqsonet.load("weights.safetensors")
>>> posterior = model.condition(locations, values)  # (m, d), (m,)
>>> posterior.mean(queries), posterior.std(queries)  # (M,)
>>> posterior.sample(1000, queries)  # (1000, M), coherent functions
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uqsonet.version import __version__

__all__ = ["Posterior", "__version__", "load"]

if TYPE_CHECKING:
    from uqsonet.nn.weights import load
    from uqsonet.posterior import Posterior


def __getattr__(name: str) -> Any:
    """Import the public names on first use: the workflow reads this package without torch."""
    if name == "load":
        from uqsonet.nn.weights import load

        return load
    if name == "Posterior":
        from uqsonet.posterior import Posterior

        return Posterior
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
