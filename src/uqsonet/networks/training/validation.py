"""Skill during training, because a model can learn to ignore its sensors.

A falling loss proves nothing; a conditional VAE can explain u through z and ignore the sensors.
Skill is ``1 - error / error of the sensor-free predictor``, for mean and std, per sensor count, on
validation sets whose reference posteriors were computed beforehand. Where there are none, the mean
is compared with the true functions. Posteriors are sampled from the prior of z, as in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from uqsonet.operator.base import OperatorModel


class Validator(Protocol):
    """What training asks to see whether a model has skill."""

    def columns(self, model: OperatorModel) -> dict[str, float]:
        """Return columns of the log; those called ``skill_...`` should be well above zero."""
        ...


def skill_columns(
    name: str, error: Mapping[int, float], base: Mapping[int, float]
) -> dict[str, float]:
    """Return ``1 - error / base`` by sensor count, as columns ``<name>_<m>``."""
    return {f"{name}_{m}": 1 - e / base[m] for m, e in error.items()}


def no_skill(columns: Mapping[str, float], threshold: float = 0.02) -> list[str]:
    """Return the names of skills that do not clear `threshold`."""
    return [k for k, v in columns.items() if k.startswith("skill_") and v < threshold]


def set_weights(model: OperatorModel, weights: Mapping[str, Tensor]) -> None:
    """Give a model's parameters the values of weights, in place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
