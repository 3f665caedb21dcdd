"""What the study asks of a method: the law of u given sensors."""

from __future__ import annotations

from typing import Protocol

from uqsonet.gauss.posterior import Posterior


class Predictor(Protocol):
    """A model, an ensemble or a baseline: whatever can be conditioned on sensors."""

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of u given a batch of observations with noise of that level."""
        ...
