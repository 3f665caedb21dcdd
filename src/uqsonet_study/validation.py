"""Skill during training, measured against reference posteriors."""

from __future__ import annotations

from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.metrics import relative_error
from uqsonet.gauss.posterior import spread
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.train import skill_columns
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.reference.files import ObservationSets, Reference

SAMPLES = 512


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
        self._observations: Sensors = sets.observations
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
