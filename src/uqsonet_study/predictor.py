"""What the study asks of a method: the law of u given sensors."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from uqsonet.gauss.posterior import Posterior
from uqsonet.operator.joint import JointPosterior


class Predictor(Protocol):
    """A model, an ensemble or a baseline: whatever can be conditioned on sensors."""

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of u given a batch of observations with noise of that level."""
        ...


Sensors = tuple[Tensor, Tensor, Tensor, float]
"""Locations (B, m, d), values (B, m), mask (B, m) and noise of one side."""


@runtime_checkable
class JointPredictor(Protocol):
    """A model that can be conditioned on sensors of the input and of u."""

    def condition_jointly(self, inputs: Sensors, outputs: Sensors) -> JointPosterior:
        """Return the joint law of input and output."""
        ...
