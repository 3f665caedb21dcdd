"""What a law of a problem's input is: fields that can be drawn, and conditioned on sensors."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from jaxtyping import Float
from torch import Tensor


class Law(Protocol):
    """A law of fields that can be sampled."""

    def draw(self, generator: np.random.Generator, size: int) -> Float[Tensor, "{size} n"]:
        """Draw `size` fields."""
        ...


class Prior(Law, Protocol):
    """The law of a problem's input."""

    def posterior(
        self, locations: Float[Tensor, "m d"], values: Float[Tensor, " m"], noise_std: float
    ) -> Law | None:
        """Return the law given values (m,) at locations (m, d); None where nobody knows it."""
        ...
