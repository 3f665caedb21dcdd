"""UQ-SONet with a learned set embedding that works: architecture `attention_prior`.

It is the conditional variational autoencoder of section 3, and no law of the input is assumed:

- latent variable z: coefficients of the input in the basis of `uqsonet.models.karhunen_loeve`. The
  encoder reads the whole input of a training pair, which fixes z, so q(z | k) is a point;
- decoder: branch b(z) and trunk t of `uqsonet.models.karhunen_loeve`;
- prior p(z | h(O)): a Gaussian whose mean and full covariance are networks of the set embedding
  h(O), where the paper takes N(0, I) and lets the decoder read h. In the ELBO the KL term is then
  -log p(z | h(O)), up to a constant, and trains embedding and prior alone; the reconstruction
  trains branch and trunk alone.

The embedding pools heads of attention over the sensors (eq:pooling), with two changes. Sensors
see one another before they are pooled, in transformer layers (Lee et al. 2019, ICML; Nguyen and
Grover 2022, ICML) whose scores know distances: a reading tells less where another sensor stands
next to it. And the layers read locations alone, while values enter the heads linearly, so one
pass through the layers serves all functions that are read by the same sensors. Whatever is not
linear in the values is left to the networks behind h.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from uqsonet.config import AttentionPriorNetwork
from uqsonet.errors import ConfigError
from uqsonet.fields import Observations, centred
from uqsonet.laws.base import InputLaw, InputPosterior, normals
from uqsonet.models.base import Batch, register
from uqsonet.models.karhunen_loeve import KarhunenLoeveModel
from uqsonet.models.perceptrons import MLP
from uqsonet.operator_fields import OperatorFields
from uqsonet.posterior import Posterior
from uqsonet.quasi_random import even_normals

if TYPE_CHECKING:
    from uqsonet.data import Functions

SCALES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
"""Lengths of the bells by which scores see distances, in halves of the domain."""

WAVES = 8
"""Sines and cosines of a location, along each axis."""

PAIRS = 32
"""Features of a pair of sensors."""

OUTSIDE = -1e9
"""Score of padding."""


class Layer(nn.Module):
    """A transformer layer over sensors, whose scores have a part that pairs of places decide.

    Parameters
    ----------
    width, heads : int
        Features of a sensor, and attention heads that share them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.pairs = nn.Linear(PAIRS, heads)
        self.think = MLP(width, [2 * width], width, "silu")

    def forward(self, t: Tensor, pairs: Tensor, mask: Tensor | None) -> Tensor:
        """Map features (B, m, width), of pairs (B, m, m, PAIRS), to features (B, m, width)."""
        b, m, width = t.shape
        size = width // self._heads
        split = self.attend(self.before(t)).view(b, m, 3, self._heads, size)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * size**-0.5 + self.pairs(pairs).movedim(-1, 1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], OUTSIDE)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(b, m, width)
        t = t + self.join(mixed)
        return t + self.think(self.between(t))


class ConditionalPrior(nn.Module):
    """The Gaussian p(z | h(O)): set embedding, mean, and root of the precision.

    Parameters
    ----------
    dim : int
        Coordinates of a sensor.
    config : AttentionPriorNetwork
    """

    frequencies: Tensor
    scales: Tensor
    place: Tensor

    def __init__(self, dim: int, config: AttentionPriorNetwork) -> None:
        super().__init__()
        width, self._modes = config.width, config.input_modes
        kept = {"persistent": False}
        waves = torch.arange(1, WAVES + 1) * (math.pi / 2)
        self.register_buffer("frequencies", waves, **kept)
        self.register_buffer("scales", torch.tensor(SCALES), **kept)
        row, column = torch.tril_indices(self._modes, self._modes)
        place = torch.full((self._modes, self._modes), len(row))  # zero above the diagonal
        place[row, column] = torch.arange(len(row))
        self.register_buffer("place", place.flatten(), **kept)
        self.location = MLP(dim * (1 + 2 * WAVES), [width], width, "silu")
        self.pair = MLP(dim + len(SCALES), [PAIRS], PAIRS, "silu")
        self.layers = nn.ModuleList(Layer(width, config.heads) for _ in range(config.layers))
        self.reading = nn.Linear(width, config.reading_heads)
        self.score = nn.Linear(width, config.heads)
        self.projection = nn.Linear(width, config.heads * config.head_width)
        first, *hidden = config.prior
        self.of_places = nn.Linear(config.heads * config.head_width + 2, first)
        self.of_values = nn.Linear(config.reading_heads, first, bias=False)
        self.head = MLP(first, [*hidden], self._modes + len(row), "silu")
        self.straight = nn.Linear(config.reading_heads, self._modes, bias=False)

    def forward(
        self, locations: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the law of z given sensors.

        Parameters
        ----------
        locations : Tensor, shape (B, m, d)
            Within [-1, 1].
        values : Tensor, shape (B, G, m)
            Standardised readings of G functions by the sensors of a set.
        mask : Tensor of bool, shape (B, m), optional
            False on padding.

        Returns
        -------
        mean : Tensor, shape (B, G, r)
        root : Tensor, shape (B, G, r, r)
            Lower triangular: the precision is ``root^T root``.
        log_diagonal : Tensor, shape (B, G, r)
            Logarithm of the root's diagonal.
        """
        places, reading = self._embedded(locations, mask)
        read = values @ reading
        hidden = nn.functional.silu(self.of_places(places)[:, None] + self.of_values(read))
        mean, entries = self.head(hidden).tensor_split([self._modes], dim=-1)
        entries = nn.functional.pad(entries, (0, 1)).index_select(-1, self.place)
        root = entries.unflatten(-1, (self._modes, self._modes))
        log_diagonal = root.diagonal(dim1=-2, dim2=-1)
        root = root + torch.diag_embed(log_diagonal.exp() - log_diagonal)
        return mean + self.straight(read), root, log_diagonal

    def _embedded(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return h of the places (B, H q + 2), and each value's weight in each head (B, m, R)."""
        b, m, _ = x.shape
        gap = x[:, :, None] - x[:, None, :]
        far = gap.square().sum(-1, keepdim=True)
        pairs = self.pair(torch.cat([gap.abs(), torch.exp(-far / self.scales.square())], -1))
        waves = (x[..., None] * self.frequencies).flatten(2)
        t = self.location(torch.cat([x, waves.sin(), waves.cos()], -1))
        for layer in self.layers:
            t = layer(t, pairs, mask)
        score, reading = self.score(t), self.reading(t)
        count = x.new_full((b, 1), float(m))
        if mask is not None:
            score = score.masked_fill(~mask[..., None], OUTSIDE)
            reading = reading * mask[..., None]
            count = mask.sum(1, keepdim=True).to(x)
        projected = self.projection(t).view(b, m, score.shape[-1], -1)
        pooled = (score.softmax(1)[..., None] * projected).sum(1).flatten(1)
        return torch.cat([pooled, 1 / count, count / 10], 1), reading


class LearnedPosterior(InputPosterior):
    """A Gaussian law of the coefficients, from a network.

    Parameters
    ----------
    mean : Tensor, shape (B, r), float64
    root : Tensor, shape (B, r, r), float64
        Lower triangular root of the precision.
    """

    def __init__(self, mean: Tensor, root: Tensor) -> None:
        self._mean = mean
        one = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device)
        self._spread = torch.linalg.solve_triangular(root, one.expand_as(root), upper=False)

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """Mean (B, r), float64."""
        return self._mean

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (B, size, r), float32."""
        batch, r = self._mean.shape
        return self._at(normals((batch, size, r), generator))

    def even(self, size: int) -> Tensor:
        """Return coefficients from quasi-random normals, the same for every set."""
        return self._at(even_normals(size, self._mean.shape[1]))

    def _at(self, z: Tensor) -> Tensor:
        spread = self._spread.float().transpose(-1, -2)
        return self._mean.float()[:, None] + z.to(spread) @ spread

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of ``weight a``, exactly."""
        root = weight @ self._spread
        return self._mean @ weight.T, root @ root.transpose(-1, -2)


@register("attention_prior")
class AttentionPriorModel(KarhunenLoeveModel):
    """Law of the input's coefficients from a learned set embedding, then an operator on them."""

    method = "uqsonet"
    reads_sensors = True
    reads_functionals = False
    condition_jointly = None  # type: ignore[assignment]  # it takes no sensors of its output

    value_mean: Tensor
    value_std: Tensor

    def __init__(
        self, fields: OperatorFields, config: AttentionPriorNetwork, noise_std: float
    ) -> None:
        if fields.random_operator:
            raise ConfigError(
                "network.architecture: attention_prior is for operators that the input decides; "
                f"{fields.name} is random"
            )
        if config.width % config.heads:
            raise ConfigError(
                f"network.width: {config.heads} heads share it; found {config.width}, which they "
                "do not divide"
            )
        super().__init__(fields, config, noise_std)
        self.group = config.group
        self.prior = ConditionalPrior(fields.input.grid.dim, config)
        self.register_buffer("value_mean", torch.zeros(()))
        self.register_buffer("value_std", torch.ones(()))

    @torch.no_grad()
    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of u given sensors, at the noise of training; see `OperatorModel`."""
        observations, single = self.fields.input.observations(locations, values, mask)
        given = self.input_law_given(observations, self.level(noise_std))
        return self.output_posterior(given, None, single)

    def input_law_given(
        self, observations: Observations, noise_std: float | Tensor
    ) -> InputPosterior:
        """Return the learned law of the coefficients given checked sensors."""
        ready = observations.to(self.value_std.dtype, self.value_std.device)
        places, values = self._ready(ready.locations, ready.values)
        mean, root, _ = self.prior(places, values[:, None], ready.mask)
        return LearnedPosterior(mean[:, 0].double(), root[:, 0].double())

    def use_law(self, law: InputLaw | None) -> None:
        """Refuse: the law is what this model has learned (`OperatorModel.use_law`)."""
        raise ConfigError("the architecture attention_prior learns its law; it takes no other one")

    def fit_constants(self, functions: Functions) -> None:
        """Set both bases, the linear branch, and the scale of values (training data only)."""
        super().fit_constants(functions)
        factor = self.bases.input_factor
        self.value_mean.copy_(self.bases.input_mean.mean())
        spread = self.bases.input_mean.var(unbiased=False) + factor.square().sum(1).mean()
        self.value_std.copy_(spread.sqrt())

    def _ready(self, locations: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return locations within [-1, 1] and standardised values."""
        scaled = (self.fields.input.transform.forward(values) - self.value_mean) / self.value_std
        return centred(self.fields.input.grid, locations), scaled

    def loss(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the negative ELBO (eq:loss), up to a constant.

        Its terms: minus log p(z | h(O)), and the squared error as a fraction of the variance of u.
        No parameter is in both.
        """
        locations, values = self._ready(batch["locations"][:: self.group], batch["values"])
        mask = batch["mask"][:: self.group] if "mask" in batch else None
        mean, root, log_diagonal = self.prior(
            locations, values.unflatten(0, (-1, self.group)), mask
        )
        left = batch["a"].unflatten(0, (-1, self.group)) - mean
        left = (root @ left[..., None])[..., 0]
        surprise = (0.5 * left.square() - log_diagonal).sum(-1).mean()
        error, _ = super().loss(batch, normals)
        return surprise + error, {"kl": surprise, "reconstruction": error}
