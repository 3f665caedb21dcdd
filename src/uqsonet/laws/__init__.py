"""Laws of the input field: what the latent variable is given the sensors (docs/model.md).

- `gaussian`: a Gaussian field, the model's own closed form;
- `mixture`: clusters of Gaussian fields, each of random size;
- `thresholded`: a Gaussian field that nobody sees, cut into classes;
- `bounded`: a Gaussian field that is kept within bounds;
- `analogue`: training inputs near the sensors, moved onto them.

`uqsonet.laws.choice` fits them and chooses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from uqsonet.laws.base import InputLaw

NAMES = ("gaussian", "mixture", "thresholded", "bounded", "analogue")
"""From the simplest to the one that assumes least."""


def law_of(name: str, tensors: dict[str, Tensor]) -> InputLaw:
    """Return a law from what `InputLaw.tensors` gave.

    Raises
    ------
    TypeError, KeyError
        If tensors are missing or unknown.
    """
    # Deferred: a Gaussian law needs none of these modules.
    return getattr(import_module(f"uqsonet.laws.{name}"), f"{name.title()}Law").of(tensors)
