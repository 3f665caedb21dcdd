"""VIDON (Prasthofer et al. 2022): the same networks as UQ-SONet without z, trained to the mean."""

from __future__ import annotations

from torch import Tensor
from uqsonet.nn.base import Batch, Shared, register

from uqsonet.fields import Observations
from uqsonet.nn.attention import AttentionModel
from uqsonet.nn.uqsonet import reconstruction
from uqsonet.posterior import PointPosterior, Posterior


@register("attention")
class VIDON(AttentionModel):
    """Deterministic: `condition(...).mean` works, every spread raises."""

    method = "vidon"
    probabilistic = False

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error over batch and points, in the units of eq:loss."""
        return self.block_loss(self.shared(batch), batch, normals)

    def block_loss(
        self, shared: Shared, batch: Batch, normals: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the same for some samples of a batch."""
        b = self.branch.evaluate(shared["branch"], self.embed_batch(shared, batch))
        error = reconstruction(self, shared, b, batch["u"])
        return error, {"reconstruction": error}

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        mean = self.branch(self.embed_observations(observations)).double()
        return PointPosterior(self.problem.grid, self.basis, single, mean, self.method)
