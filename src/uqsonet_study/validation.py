"""Skill during training, measured against reference posteriors, or against true functions."""

from __future__ import annotations

from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks, column_moments
from uqsonet.gauss.given import spread
from uqsonet.gauss.metrics import relative_error
from uqsonet.networks.train import skill_columns
from uqsonet.operator.base import OperatorModel
from uqsonet.sensors.sensors import Sensors

SAMPLES = 512


class Validator:
    """Scores models on fixed validation sets.

    Parameters
    ----------
    observations : Sensors
        S sets.
    mean : Tensor, shape (S, M)
        What is to be predicted for each set, on the training grid: the mean of its reference
        posterior, or the function that its sensors read.
    std : Tensor, shape (S, M), or None
        Of the reference posteriors, where there are any.
    u : Tensor or RowBlocks, shape (N, M)
        Training outputs on the training grid, which give the sensor-free predictor.
    """

    def __init__(
        self, observations: Sensors, mean: Tensor, std: Tensor | None, u: Tensor | RowBlocks
    ) -> None:
        self._observations, self._counts = observations, observations.counts
        self._mean, self._std = mean.double(), std
        free_mean, free_std = column_moments(RowBlocks.of(u))
        self._free = {"skill_mean": self._by_count(free_mean.expand_as(mean), self._mean)}
        if std is not None:
            self._free["skill_std"] = self._by_count(free_std.expand_as(std), std)

    def _by_count(self, predicted: Tensor, wanted: Tensor) -> dict[int, float]:
        """Return the mean error of each sensor count."""
        errors = relative_error(predicted, wanted)
        counts = self._counts.unique().tolist()
        return {int(m): float(errors[self._counts == m].mean()) for m in counts}

    def columns(self, model: OperatorModel) -> dict[str, float]:
        """Return ``skill_mean_<m>`` and, where a std is known, ``skill_std_<m>``."""
        queries, o = model.fields.training_grid()[0].points(), self._observations
        posterior = model.condition(o.locations, o.values, o.mask)
        found: dict[str, tuple[Tensor, Tensor]] = {}
        if model.probabilistic:
            mean, covariance = posterior.law.moments(SAMPLES)
            offset, basis = posterior.basis(queries)
            found["skill_mean"] = offset + mean @ basis.T, self._mean
            if self._std is not None:
                found["skill_std"] = spread(basis, covariance), self._std
        else:
            found["skill_mean"] = posterior.mean(queries), self._mean
        columns = {}
        for name, pair in found.items():
            columns |= skill_columns(name, self._by_count(*pair), self._free[name])
        return columns
