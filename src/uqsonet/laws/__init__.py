"""Laws of the input field: what the latent variable is given the sensors (docs/laws.md).

- `gaussian`: a Gaussian field, the model's own closed form;
- `family`: a Gaussian field whose kernel (length, variance, smoothness) is random;
- `mixture`: clusters of Gaussian fields, each of random size;
- `thresholded`: a latent Gaussian field, cut into classes by thresholds;
- `copula`: a Gaussian field behind values of any law, at each point a rising map;
- `analogue`: training inputs that fit the sensors, moved onto them.

`uqsonet.fitting.choose_law` fits them and chooses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from uqsonet.laws.base import InputLaw
    from uqsonet.laws.bases import KarhunenLoeveBases

NAMES = ("gaussian", "family", "mixture", "thresholded", "copula", "analogue")
"""Names of the laws, from the simplest to the one that assumes least."""

GONE = {
    "facies": "take 'analogue', or give the class of each point as an input of its own",
    "bounded": "take 'copula', whose fields stay within the ends of the inputs",
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
    law = law_class(name)
    law.require_layout(tensors, bases)
    return law.of(tensors, bases)
