"""UQ-SONet with a learned set embedding that works: architecture `attention_prior`.

It is the conditional variational autoencoder of section 3, and no law of the input is given:

- latent variable z: coefficients of the input in the basis of `uqsonet.operator.model`. The
  encoder reads the whole input of a training pair, which fixes z, so q(z | k) is a point;
- decoder: branch b(z) and trunk t of `uqsonet.operator.model`;
- prior p(z | h(O)), where the paper takes N(0, I) and lets the decoder read h. In the ELBO the KL
  term is then -log p(z | h(O)), up to a constant, and trains embedding and prior alone; the
  reconstruction trains branch and trunk alone.

The embedding is a deep set: each sensor is embedded by itself, and the set is pooled. What is
pooled are natural parameters of a Gaussian (Volpp et al. 2021, ICLR). A sensor at x that reads v
contributes a factor N(v; g(x) z, 1 / w(x)) with networks g and w, so

    p(z | h(O)) = N(z; 0, I) prod_i N(v_i; g(x_i) z, 1 / w(x_i)),  normalised.

The weights are those of eq:pooling without its denominator, because a softmax average cannot see
how many sensors there are. What values change of this law beyond it, a perceptron adds: a shift
and a stretch along each of its axes, from heads of attention over the sensors.

The law without the correction is linear in the values. So the mean of its KL term over all
training pairs is known for any layout from second moments of the pairs, and that mean is what
trains it; a batch shows each layout to a few functions only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from uqsonet.errors import ConfigError
from uqsonet.fields.field import centred
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.given import Gaussian, Given
from uqsonet.gauss.posterior import Posterior
from uqsonet.gauss.principal_components import empirical_modes
from uqsonet.laws.base import InputLaw
from uqsonet.networks.config import AttentionPriorNetwork
from uqsonet.operator.base import Batch, Conditioned, register
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.perceptrons import MLP
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.runs.functions import Functions

OUTSIDE = -1e9
"""Score of padding."""

MOMENT_MODES = 512
"""Modes of the input, at most, that second moments of readings are taken from."""

LEFT_OUT = 1e-8
"""Share of the input's variance that these modes may leave out: it counts as noise."""


@dataclass(frozen=True)
class LinearLaw:
    """The part of p(z | h(O)) that is linear in the values.

    Attributes
    ----------
    response : Tensor, shape (B, m, r)
        Of a sensor, w(x) g(x): sums over sensors of it times values are precision times mean. 0 on
        padding.
    root : Tensor, shape (B, r, r)
        Lower triangular: the precision is ``root root^T``.
    pooled : Tensor, shape (B, H q + 2)
        What heads of attention say of the places, and how many they are.
    reading : Tensor, shape (B, m, R)
        Weight of a value in each head that the correction reads; 0 on padding.
    """

    response: Tensor
    root: Tensor
    pooled: Tensor
    reading: Tensor

    @property
    def log_diagonal(self) -> Tensor:
        """Logarithm of the root's diagonal, shape (B, r)."""
        return self.root.diagonal(dim1=-2, dim2=-1).log()


class ConditionalPrior(nn.Module):
    """The prior p(z | h(O)): set embedding, Gaussian law, and what values change of it.

    Parameters
    ----------
    dim : int
        Coordinates of a sensor.
    config : AttentionPriorNetwork
    """

    frequencies: Tensor

    def __init__(self, dim: int, config: AttentionPriorNetwork) -> None:
        super().__init__()
        self.config, width, heads = config, config.width, config.heads
        waves = torch.arange(1, config.waves + 1) * (math.pi / 2)
        self.register_buffer("frequencies", waves, persistent=False)
        self.location = MLP(dim * (1 + 2 * config.waves), [width], width, "silu")
        self.factor = MLP(width, [2 * width], config.input_modes + 1, "silu")
        self.score = nn.Linear(width, heads)
        self.projection = nn.Linear(width, heads * config.head_width)
        self.reading = nn.Linear(width, config.reading_heads)
        inputs = heads * config.head_width + 2 + config.reading_heads
        self.correction = MLP(inputs, config.correction, 2 * config.input_modes, "silu")
        with torch.no_grad():
            for last in list(self.correction.parameters())[-2:]:
                last.zero_()

    def forward(self, x: Tensor, mask: Tensor | None) -> LinearLaw:
        """Return what sensors at x say.

        Parameters
        ----------
        x : Tensor, shape (B, m, d)
            Within [-1, 1].
        mask : Tensor of bool, shape (B, m), optional
            False on padding.
        """
        b, m, _ = x.shape
        waves = (x[..., None] * self.frequencies).flatten(2)
        t = self.location(torch.cat([x, waves.sin(), waves.cos()], -1))
        gain, weight = self.factor(t).split([self.config.input_modes, 1], -1)
        if self.config.averages:
            t = t.detach()
        score, reading, count = self.score(t), self.reading(t), x.new_full((b, 1), float(m))
        if mask is not None:
            outside = ~mask[..., None]
            score, weight = (one.masked_fill(outside, OUTSIDE) for one in (score, weight))
            reading, count = reading.masked_fill(outside, 0.0), mask.sum(1, keepdim=True).to(x)
        weight = weight.softmax(1) if self.config.pooling == "softmax" else weight.exp()
        response = weight * gain
        one = torch.eye(gain.shape[-1], dtype=x.dtype, device=x.device)
        root, failed = torch.linalg.cholesky_ex(one + response.mT @ gain)
        # A step too far ends in a loss that is not finite, which training answers in plain words.
        root = root.masked_fill((failed != 0)[:, None, None], math.nan)
        projected = self.projection(t).view(b, m, score.shape[-1], -1)
        pooled = (score.softmax(1)[..., None] * projected).sum(1).flatten(1)
        pooled = torch.cat([pooled, 1 / count, count / 10], 1)
        return LinearLaw(response, root, pooled, reading)

    def corrected(self, law: LinearLaw, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return what values (B, G, m) change of the law: shift and stretch, each (B, G, r).

        Under the linear part ``root^T (z - mean)`` is N(0, I), with the correction
        N(shift, exp(-2 stretch)).
        """
        pooled = law.pooled[:, None].expand(-1, values.shape[1], -1)
        found = self.correction(torch.cat([pooled, values @ law.reading], -1))
        shift, stretch = found.chunk(2, dim=-1)
        return shift, stretch


@register("attention_prior")
class AttentionPriorModel(KarhunenLoeveModel):
    """Law of the input's coefficients from a learned set embedding, then an operator on them."""

    method = "uqsonet"
    config_type = AttentionPriorNetwork
    reads_sensors = True
    reads_functionals = False

    value_std: Tensor
    readings: Tensor
    shared_modes: Tensor
    noise: Tensor

    def __init__(
        self, fields: OperatorFields, config: AttentionPriorNetwork, noise_std: float
    ) -> None:
        if fields.random_operator:
            raise ConfigError(
                "network.architecture: attention_prior is for operators that the input decides; "
                f"{fields.name} is random"
            )
        super().__init__(fields, config, noise_std)
        self.group, self.averages = config.group, config.averages
        self.prior = ConditionalPrior(fields.input.grid.dim, config)
        self.register_buffer("value_std", torch.ones(()))
        n, r = fields.input.grid.size, config.input_modes
        for name, shape in (("readings", (n, 1)), ("shared_modes", (r, 1)), ("noise", ())):
            self.register_buffer(name, torch.zeros(shape), persistent=False)

    condition_on = Conditioned.condition_on  # it takes no sensors of its output

    @torch.no_grad()
    def answer(self, sensors: Sensors) -> Posterior:
        """Return the law of u given sensors, at the noise of training; see `OperatorModel`."""
        self.require_trained_noise(sensors)
        law = self.output_given(self.input_law_given(sensors), None)
        return self.output_posterior(law, sensors.single)

    def input_law_given(self, sensors: Sensors) -> Given:
        """Return the learned law of the coefficients given checked sensors."""
        grid, mean = self.fields.input.grid, self.bases.input_mean
        ready = sensors.to(torch.float64, mean.device)
        values = self._standardised(ready.values, ready.read(grid, mean[:, None])[..., 0]).float()
        law = self.prior(centred(grid, ready.locations).float(), ready.mask)
        shift, stretch = self.prior.corrected(law, values[:, None])
        root, (shift, stretch) = law.root.double(), (t[:, 0].double() for t in (shift, stretch))
        pull = (values[:, None].double() @ law.response.double()).mT
        at = torch.linalg.solve_triangular(root, pull, upper=False)[..., 0] + shift
        one = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device).expand_as(root)
        back = torch.linalg.solve_triangular(root.mT, one, upper=True)
        return Gaussian((back @ at[..., None])[..., 0], back * (-stretch[:, None]).exp())

    def use_law(self, law: InputLaw | None) -> None:
        """Refuse: the law is what this model has learned (`OperatorModel.use_law`)."""
        raise ConfigError("the architecture attention_prior learns its law; it takes no other one")

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, the linear branch, and second moments of readings (training data only).

        A reading less the input's mean there, over its typical size, is a row of `readings` times
        independent coefficients of variance 1, plus noise of variance `noise`.
        """
        super().fit_constants(functions)
        inputs = functions.transformed_inputs()
        count = min(MOMENT_MODES, len(inputs) - 1, inputs.shape[1])
        modes = empirical_modes(inputs, count, "input_modes")
        points, variance = inputs.shape[1], modes.std.square()
        whole = variance.sum() + points * modes.remainder**2
        left = (whole - variance.cumsum(0)).clamp_min(0) / whole
        kept = min(int((left > LEFT_OUT).sum()) + 1, count)
        factor = (modes.vectors * modes.std)[:, :kept]
        scale = (whole / points).sqrt()
        self.value_std.copy_(scale)
        found = {
            "readings": factor / scale,
            "shared_modes": self.bases.to_coefficients.T @ factor,
            "noise": left[kept - 1] + self.noise_std**2 / scale.square(),
        }
        for name, value in found.items():
            self.register_buffer(name, value.to(self.value_std), persistent=False)

    def _standardised(self, values: Tensor, mean: Tensor) -> Tensor:
        """Return what values say beyond the mean of the transformed input at their sensors."""
        return (self.fields.input.transform.forward(values) - mean) / self.value_std

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO (eq:loss), up to a constant.

        Its terms: minus log p(z | h(O)), once of the whole law on the batch and once of its linear
        part on all pairs, and the squared error as a fraction of the variance of u. No parameter is
        in two of them.
        """
        first = slice(None, None, self.group)
        mask = batch["mask"][first] if "mask" in batch else None
        law = self.prior(centred(self.fields.input.grid, batch["locations"][first]), mask)
        mean = self.bases.input_mean.to(batch["values"])[batch["index"]]
        values = self._standardised(batch["values"], mean).unflatten(0, (-1, self.group))
        pull = torch.linalg.solve_triangular(law.root, (values @ law.response).mT, upper=False)
        left = batch["a"].unflatten(0, (-1, self.group)) @ law.root - pull.mT
        size = law.log_diagonal.sum(-1)
        if self.averages:
            left, size = left.detach(), size.detach()
        shift, stretch = self.prior.corrected(law, values)
        surprise = 0.5 * ((left - shift) * stretch.exp()).square() - stretch
        surprise = (surprise.sum(-1) - size[:, None]).mean()
        error, _ = super().loss(batch, normals)
        terms = {"prior_nll": surprise, "reconstruction": error}
        if self.averages:
            terms["linear_prior_nll"] = self.averaged(law, batch["index"][first])
        return torch.stack(list(terms.values())).sum(), terms

    def averaged(self, law: LinearLaw, index: Tensor) -> Tensor:
        """Return the mean of -log p(z | h(O)) of the linear part over all training pairs.

        Parameters
        ----------
        law : LinearLaw
        index : Tensor of int, shape (B, m)
            Grid points of the sensors.
        """
        gain = torch.linalg.solve_triangular(law.root, law.response.mT, upper=False)
        left = law.root.mT @ self.shared_modes - gain @ self.readings[index]
        squares = left.square().sum((-2, -1)) + self.noise * gain.square().sum((-2, -1))
        return (0.5 * squares - law.log_diagonal.sum(-1)).mean()
