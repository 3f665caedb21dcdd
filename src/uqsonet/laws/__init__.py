"""Laws of the input field: what the latent variable is given the sensors (docs/laws.md).

- `gaussian`: a Gaussian field, the model's own closed form;
- `mixture`: Gaussian laws of several sources: clusters, each of random size; kernels of random
  length, variance and smoothness; a law around every run;
- `latent`: latent Gaussian fields behind a link: cut into classes by thresholds, or mapped to
  values of any law by a rising map at each point;
- `bounded`: a Gaussian field, given that it is within bounds everywhere.

`uqsonet.fitting.choose_law` fits them and chooses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from uqsonet.laws.base import InputLaw
    from uqsonet.laws.bases import KarhunenLoeveBases

NAMES = ("gaussian", "mixture", "latent", "bounded")
"""Names of the laws, from the simplest to the one that assumes least."""

GONE = {
    "family": "take 'mixture', one of whose sources are kernels of random length",
    "analogue": "take 'mixture', one of whose sources is every run",
    "facies": "take 'mixture', or give the class of each point as an input of its own",
    "copula": "take 'latent', which has margins of any kind",
    "thresholded": "take 'latent', which has classes for inputs of a few values",
}
"""Laws of earlier versions, and what describes their inputs now."""


def law_class(name: str) -> type[InputLaw]:
    """Return the law of that name; ValueError if it is the Gaussian one, or there is none."""
    if name not in NAMES[1:]:
        raise ValueError(f"law {name!r} has no tensors; there are {', '.join(NAMES[1:])}")
    # Deferred: a Gaussian law needs none of these modules.
    return getattr(import_module(f"uqsonet.laws.{name}"), f"{name.title()}Law")


def law_of(name: str, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> InputLaw:
    """Return a law from what `InputLaw.tensors` gave, for a model with these bases.

    It raises `ValueError` if there is no such law, or tensors are missing, unknown, or do not fit.
    """
    return law_class(name).of(tensors, bases)
