"""The paper's attention model (architecture `attention`): UQ-SONet as in section 3, and VIDON.

UQ-SONet is a conditional variational autoencoder on h(O).

Decoder (eq:decoder): branch on (h, z), trunk, variance M sigma_u^2. Encoder: q(z | O, u) with
diagonal covariance from (h, u on the training grid). Loss (eq:loss): the negative ELBO. Inference
(Algorithm 1) samples the prior of z and never calls the encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.posterior import LatentPosterior, PointPosterior, Posterior
from uqsonet.laws.base import normals
from uqsonet.networks.attention_networks import AttentionNetworks
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import Batch, Shared, register
from uqsonet.operator.perceptrons import MLP

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
    return torch.nn.functional.mse_loss(prediction, u) / (2 * noise_variance)


def reconstruction(model: AttentionNetworks, shared: Shared, b: Tensor, u: Tensor) -> Tensor:
    """Return the scaled squared error of the expansions with coefficients b (B, p).

    Parameters
    ----------
    model : AttentionNetworks
    shared : dict of Tensor
        From `model.shared`.
    b : Tensor, shape (B, p)
    u : Tensor, shape (B, M) or (B, r)
        On the training grid, or coefficients in the basis of the outputs.
    """
    variance = model.config.noise_variance
    decoder, *outside = shared["decoder"]
    inside = scaled_squared_error(b @ decoder.T, u, variance)
    if not outside:
        return inside
    beyond = (b @ outside[0] * b).sum(-1).mean() / (2 * variance)
    return (inside * u.shape[-1] + beyond) / len(model.points)


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

    def shared_parts(self, batch: Batch) -> list[Callable[[], Shared]]:
        """Return also the encoder."""
        return [*super().shared_parts(batch), self._shared_encoder]

    def _shared_encoder(self) -> Shared:
        """Return the encoder's layers, the first one cut in what acts on h and what on u.

        On coefficients in the basis V, a weight W acts as V^T W.
        """
        weight, *rest = self.encoder.prepared()
        for_h, for_u = weight.split([self.embedding.outputs, len(self.points)])
        if self.output_basis is not None:
            for_u = self.output_basis.T @ for_u
        return {"encoder": (for_u, for_h, *rest)}

    def encode(self, shared: Shared, h: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (B, d_z) of q(z | O, u).

        Parameters
        ----------
        shared : Shared
        h : Tensor, shape (B, H q)
        u : Tensor, shape (B, M) or (B, r)
            On the training grid, or coefficients in the basis of the outputs.
        """
        for_u, for_h, bias, *rest = shared["encoder"]
        # u needs no gradient, so it enters apart from h.
        given_u = torch.addmm(bias, u, for_u)
        mean, log_variance = self.encoder.evaluate((for_h, given_u, *rest), h).chunk(2, dim=-1)
        return mean, log_variance

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO (eq:loss) with `latent_samples` draws of z per sample."""
        loss, means = self.block_loss(self.shared(batch), batch, normals)
        return loss, self.terms(means)

    def block_loss(
        self, shared: Shared, batch: Batch, normals: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO of some samples, the KL of each unit and the error."""
        h = self.embed_batch(shared, batch)
        mean, log_variance = self.encode(shared, h, batch["u"])
        normals = normals.unflatten(1, (-1, self.z_dim))
        z = mean[:, None] + normals * (0.5 * log_variance).exp()[:, None]
        draws = z.shape[1]
        pair = torch.cat([h[:, None].expand(-1, draws, -1), z], dim=-1)
        b = self.branch.evaluate(shared["branch"], pair).flatten(0, 1)
        per_unit = gaussian_kl(mean, log_variance).mean(0)
        u = batch["u"][:, None].expand(-1, draws, -1).flatten(0, 1)
        error = reconstruction(self, shared, b, u)
        return per_unit.sum() + error, {"kl": per_unit, "reconstruction": error}

    def terms(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return both terms of the loss, and how many latent units carry information."""
        per_unit = means["kl"]
        active = (per_unit > ACTIVE_NATS).sum().to(per_unit.dtype)
        return means | {"kl": per_unit.sum(), "active_units": active}

    def _posterior(self, h: Tensor, single: bool) -> Posterior:
        grid = self.fields.output.grid
        return LatentPosterior(grid, self.basis, single, partial(self._draw, h))

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
        return self.block_loss(self.shared(batch), batch, normals)

    def block_loss(
        self, shared: Shared, batch: Batch, normals: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the same for some samples of a batch."""
        b = self.branch.evaluate(shared["branch"], self.embed_batch(shared, batch))
        error = reconstruction(self, shared, b, batch["u"])
        return error, {"reconstruction": error}

    def _posterior(self, h: Tensor, single: bool) -> Posterior:
        mean, grid = self.branch(h).double(), self.fields.output.grid
        return PointPosterior(grid, self.basis, single, mean, self.method)
