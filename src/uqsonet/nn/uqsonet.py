"""UQ-SONet, section 3: a conditional variational autoencoder on h(O).

Decoder (eq:decoder): branch on (h, z), trunk, variance M sigma_u^2. Encoder: q(z | O, u) with
diagonal covariance from (h, u on the training grid). Loss (eq:loss): the negative ELBO. Inference
(Algorithm 1) samples the prior of z and never calls the encoder.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.config import AttentionNetwork
from uqsonet.nn.attention import AttentionModel
from uqsonet.nn.base import Batch, register
from uqsonet.nn.mlp import MLP
from uqsonet.posterior import LatentPosterior, Posterior
from uqsonet.sensors import Observations

ACTIVE_NATS = 0.01
"""A latent unit counts as active above this mean KL (in nats)."""


def gaussian_kl(
    mean: Float[Tensor, "*batch d"], log_variance: Float[Tensor, "*batch d"]
) -> Float[Tensor, "*batch d"]:
    """Return KL(N(mean, exp(log_variance)) || N(0, I)) per dimension, shape of `mean`."""
    return 0.5 * (log_variance.exp() + mean**2 - 1.0 - log_variance)


def scaled_squared_error(
    prediction: Float[Tensor, "B M"], u: Float[Tensor, "B M"], noise_variance: float
) -> Float[Tensor, ""]:
    """Return ``sum_i (prediction_i - u_i)^2 / (2 M sigma_u^2)`` averaged over the batch.

    The sum over M points is divided by M (eq:loss), so on a uniform grid it converges to
    ``|prediction - u|^2_{L2} / (2 |Omega| sigma_u^2)`` as M grows (appendix A.3).
    """
    return ((prediction - u) ** 2).mean(-1).mean() / (2 * noise_variance)


@register("attention")
class UQSONet(AttentionModel):
    """The paper's model, with the sizes of tab:NN from the configuration."""

    method = "uqsonet"

    def __init__(self, problem: str, config: AttentionNetwork, noise_std: float) -> None:
        self.latent_dim = config.latent_dim
        super().__init__(problem, config, noise_std)
        inputs = self.embedding.outputs + len(self.points)
        self.encoder = MLP(inputs, config.encoder, 2 * config.latent_dim, config.activation)

    def encode(self, h: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (B, d_z) of q(z | O, u)."""
        mean, log_variance = self.encoder(torch.cat([h, u], dim=-1)).chunk(2, dim=-1)
        return mean, log_variance

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO (eq:loss) with one draw of z per sample."""
        h = self.embed(batch["locations"], batch["values"], batch["mask"])
        mean, log_variance = self.encode(h, batch["u"])
        z = mean + normals * (0.5 * log_variance).exp()
        prediction = self.decode(self.branch(torch.cat([h, z], dim=-1)))
        per_unit = gaussian_kl(mean, log_variance).mean(0)
        divergence = per_unit.sum()
        reconstruction = scaled_squared_error(prediction, batch["u"], self.config.noise_variance)
        loss = divergence + reconstruction
        active = (per_unit > ACTIVE_NATS).sum().to(loss.dtype)
        terms = {"kl": divergence, "reconstruction": reconstruction, "active_units": active}
        return loss, terms

    def _posterior(self, observations: Observations, noise_std: float, single: bool) -> Posterior:
        ready = self._checked(observations, noise_std)
        h = self.embed(ready.locations, ready.values, ready.mask)

        def draw(size: int, generator: torch.Generator) -> Tensor:
            shape = (len(h), size, self.latent_dim)
            z = torch.randn(shape, generator=generator, device=generator.device).to(h)
            with torch.no_grad():
                pair = torch.cat([h[:, None, :].expand(-1, size, -1), z], dim=-1)
                return self.branch(pair).double()

        return LatentPosterior(self.problem.grid, self.basis, single, draw)
