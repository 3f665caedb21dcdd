"""The paper's attention model (architecture `attention`): UQ-SONet as in section 3, and VIDON.

UQ-SONet is a conditional variational autoencoder on h(O).

Decoder (eq:decoder): branch on (h, z), trunk, variance M sigma_u^2. Encoder: q(z | O, u) with
diagonal covariance from (h, u on the training grid). Loss (eq:loss): the negative ELBO. Inference
(Algorithm 1) samples the prior of z and never calls the encoder.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.given import Drawn, Given, Point, normals
from uqsonet.networks.attention_networks import AttentionNetworks
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import Batch, register
from uqsonet.operator.perceptrons import MLP, perceptron

ACTIVE_NATS = 0.01
"""A latent unit counts as active above this mean KL (in nats)."""


def gaussian_kl(
    mean: Float[Tensor, "*batch d"], log_variance: Float[Tensor, "*batch d"]
) -> Float[Tensor, "*batch d"]:
    """Return KL(N(mean, exp(log_variance)) || N(0, I)) per dimension, shape of `mean`."""
    return 0.5 * (log_variance.exp() + mean**2 - 1.0 - log_variance)


@register("attention")
class AttentionModel(AttentionNetworks):
    """The paper's model, with the sizes of tab:NN from the configuration."""

    method = "uqsonet"
    config_type = AttentionNetwork

    def __init__(self, fields: OperatorFields, config: AttentionNetwork, noise_std: float) -> None:
        self.z_dim = config.latent_dim
        self.latent_dim = config.latent_dim * config.latent_samples
        super().__init__(fields, config, noise_std)
        inputs = self.embedding.outputs + len(self.points)
        self.encoder = MLP(inputs, config.encoder, 2 * config.latent_dim, config.activation)
        self._initialise(self.encoder)

    def encode(self, h: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (B, d_z) of q(z | O, u).

        Parameters
        ----------
        h : Tensor, shape (B, H q)
        u : Tensor, shape (B, M) or (B, r)
            On the training grid, or coefficients in the basis V of the outputs: a weight W acts on
            those as V^T W.
        """
        weight, bias, *rest = self.encoder.tensors()
        for_h, for_u = weight.split([self.embedding.outputs, len(self.points)])
        if self.output_basis is not None:
            for_u = self.output_basis.T @ for_u
        # u needs no gradient, so it enters apart from h: as a bias of each row.
        layers = for_h, torch.addmm(bias, u, for_u), *rest
        mean, log_variance = perceptron(h, layers, self.encoder.activation).chunk(2, dim=-1)
        return mean, log_variance

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO (eq:loss) with `latent_samples` draws of z per sample.

        Its terms are also told apart, with the number of latent units that carry information.
        """
        h = self.embed_batch(batch)
        mean, log_variance = self.encode(h, batch["u"])
        normals = normals.unflatten(1, (-1, self.z_dim))
        z = mean[:, None] + normals * (0.5 * log_variance).exp()[:, None]
        draws = z.shape[1]
        pair = torch.cat([h[:, None].expand(-1, draws, -1), z], dim=-1)
        u = batch["u"][:, None].expand(-1, draws, -1).flatten(0, 1)
        error = self.reconstruction(self.branch(pair).flatten(0, 1), u)
        per_unit = gaussian_kl(mean, log_variance).mean(0)
        active = (per_unit > ACTIVE_NATS).sum().to(per_unit.dtype)
        terms = {"kl": per_unit.sum(), "reconstruction": error, "active_units": active}
        return terms["kl"] + error, terms

    def given(self, h: Tensor) -> Given:
        """Return the law of ``b(h, z)`` with z ~ N(0, I)."""
        return Drawn(partial(self._draw, h))

    @torch.no_grad()
    def _draw(self, h: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Draw coefficients (B, size, p) of the output given h(O) (B, H q)."""
        z = normals((1, size, self.z_dim), generator).to(h).expand(len(h), -1, -1)
        pair = torch.cat([h[:, None, :].expand(-1, size, -1), z], dim=-1)
        return self.branch(pair).double()


@register("attention")
class AttentionVIDON(AttentionNetworks):
    """VIDON (Prasthofer et al. 2022): the same networks without z, trained to the mean.

    Deterministic: `condition(...).mean` works, every spread raises.
    """

    method = "vidon"
    config_type = AttentionNetwork
    probabilistic = False

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error over batch and points, in the units of eq:loss."""
        error = self.reconstruction(self.branch(self.embed_batch(batch)), batch["u"])
        return error, {"reconstruction": error}

    def given(self, h: Tensor) -> Given:
        """Return the prediction."""
        return Point(self.branch(h).double(), self.method)
