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

from uqsonet.blocks import RowBlocks, column_moments
from uqsonet.fields import Observations
from uqsonet.metrics import relative_error
from uqsonet.models.base import OperatorModel
from uqsonet.posterior import spread
from uqsonet.reference.files import ObservationSets, Reference

SAMPLES = 512


class Validator(Protocol):
    """What training asks to see whether a model has skill."""

    def columns(self, model: OperatorModel) -> dict[str, float]:
        """Return columns of the log; those called ``skill_...`` should be well above zero."""
        ...


class TruthValidator:
    """Scores models on fixed validation sets by the functions that sensors read.

    Parameters
    ----------
    sets : ObservationSets
    truth : Tensor, shape (S, M)
        Output behind each set, on the training grid.
    u : Tensor or RowBlocks, shape (N, M)
        Training outputs on the training grid, which give the sensor-free predictor.
    """

    _std: Tensor | None = None

    def __init__(self, sets: ObservationSets, truth: Tensor, u: Tensor | RowBlocks) -> None:
        self._observations: Observations = sets.observations
        self._counts = sets.observations.counts
        self._mean = truth.double()
        self._free, self._free_spread = column_moments(RowBlocks.of(u))
        self._free_mean = self._by_count(relative_error(self._free.expand_as(truth), self._mean))
        self._free_std: dict[int, float] = {}

    def _by_count(self, errors: Tensor) -> dict[int, float]:
        counts = self._counts.unique().tolist()
        return {int(m): float(errors[self._counts == m].mean()) for m in counts}

    def columns(self, model: OperatorModel) -> dict[str, float]:
        """Return ``skill_mean_<m>`` and, where a std is known, ``skill_std_<m>``."""
        queries = model.fields.training_grid()[0].points()
        o = self._observations
        posterior = model.condition(o.locations, o.values, o.mask)
        if not model.probabilistic:
            error = self._by_count(relative_error(posterior.mean(queries), self._mean))
            return skill_columns("skill_mean", error, self._free_mean)
        mean, covariance = posterior.coefficient_moments(SAMPLES)
        offset, basis = posterior.basis(queries)
        error = self._by_count(relative_error(offset + mean @ basis.T, self._mean))
        columns = skill_columns("skill_mean", error, self._free_mean)
        if self._std is None:
            return columns
        error_std = self._by_count(relative_error(spread(basis, covariance), self._std))
        return columns | skill_columns("skill_std", error_std, self._free_std)


class ReferenceValidator(TruthValidator):
    """Scores models on fixed validation sets with reference posteriors.

    Parameters
    ----------
    reference : Reference
        Validation observation sets with posterior mean and std on the full grid.
    u : Tensor or RowBlocks, shape (N, M)
        Training outputs on the training grid, which give the sensor-free predictor.
    kept : Tensor of int
        Indices of the training grid in the full grid.
    """

    def __init__(self, reference: Reference, u: Tensor | RowBlocks, kept: Tensor) -> None:
        super().__init__(reference, reference.mean[:, kept], u)
        self._std = reference.std[:, kept]
        self._free_std = self._by_count(
            relative_error(self._free_spread.expand_as(self._std), self._std)
        )


def skill_columns(
    name: str, error: Mapping[int, float], base: Mapping[int, float]
) -> dict[str, float]:
    """Return ``1 - error / base`` by sensor count, as columns ``<name>_<m>``."""
    return {f"{name}_{m}": 1 - e / base[m] for m, e in error.items()}


def no_skill(columns: dict[str, float], threshold: float = 0.02) -> list[str]:
    """Return the names of skills that do not clear `threshold`."""
    return [k for k, v in columns.items() if k.startswith("skill_") and v < threshold]


def load_trial(model: OperatorModel, weights: dict[str, Tensor], trial: int) -> None:
    """Load one trial's slice of stacked weights into the model, in place."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name][trial])
