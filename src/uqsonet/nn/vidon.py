"""VIDON (Prasthofer et al. 2022): the same networks as UQ-SONet without z, trained to the mean."""

from __future__ import annotations

from torch import Tensor

from uqsonet.nn.attention import AttentionModel
from uqsonet.nn.base import Batch, register
from uqsonet.nn.uqsonet import scaled_squared_error
from uqsonet.posterior import PointPosterior, Posterior
from uqsonet.sensors import Observations


@register("attention")
class VIDON(AttentionModel):
    """Deterministic: `condition(...).mean` works, every spread raises."""

    method = "vidon"
    probabilistic = False

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error over batch and points, in the units of eq:loss."""
        h = self.embed(batch["locations"], batch["values"], batch["mask"])
        prediction = self.decode(self.branch(h))
        error = scaled_squared_error(prediction, batch["u"], self.config.noise_variance)
        return error, {"reconstruction": error}

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        ready = self._checked(observations, noise_std)
        mean = self.branch(self.embed(ready.locations, ready.values, ready.mask)).double()
        return PointPosterior(self.problem.grid, self.basis, single, mean, self.method)
