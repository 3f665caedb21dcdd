"""The set-transformer embedding h(O), section 3.1 (eq:pooling, eq:set).

``Lambda_i = Lambda_x(x_i) + Lambda_kappa(kappa(x_i))``; head l pools values ``v_l(Lambda_i)`` with
weights softmax_i(w_l(Lambda_i) / sqrt(d_emb)); h is the concatenation over the heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.perceptrons import ACTIVATIONS, MLP, Layers, by_sigmoid, through_hidden


class HeadsMLP(nn.Module):
    """H independent perceptrons of equal shape that read the same input.

    The same functions and initial law as H separate `MLP`s, at one batched product a layer.
    """

    def __init__(
        self,
        heads: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in pairwise(widths):
            bound = a**-0.5  # nn.Linear's own initial law
            self.weights.append(nn.Parameter(torch.empty(heads, a, b).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(heads, 1, b).uniform_(-bound, bound)))
        self.activation = ACTIVATIONS[activation]

    def prepared(self) -> Layers:
        """Return the layers as `SetEmbedding` reads them."""
        pairs = zip(self.weights, self.biases, strict=True)
        layers = tuple(tensor for pair in pairs for tensor in pair)
        return by_sigmoid(layers) if self.activation is torch.sigmoid_ else layers


class SetEmbedding(nn.Module):
    """Maps any number of sensors, in any order, to a vector.

    Parameters
    ----------
    dim : int
        Coordinates of a sensor location.
    config : AttentionNetwork
    """

    def __init__(self, dim: int, config: AttentionNetwork) -> None:
        super().__init__()
        d, act = config.embedding_dim, config.activation
        self.location = MLP(dim, config.location_embedding, d, act)
        self.value = MLP(1, config.value_embedding, d, act)
        self.score = HeadsMLP(config.heads, d, config.attention, 1, act)
        self.projection = HeadsMLP(config.heads, d, config.attention, config.head_width, act)
        self.scale = d**-0.5
        self.count_feature = config.count_feature
        self.outputs = config.heads * config.head_width + int(config.count_feature)

    def forward(
        self,
        locations: Float[Tensor, "B m d"],
        values: Float[Tensor, "B m"],
        mask: Bool[Tensor, "B m"] | None = None,
    ) -> Float[Tensor, "B h"]:
        """Map locations (B, m, d), values (B, m), mask (B, m) to h (B, H q [+ 1])."""
        layers = self.prepared(values.shape[1])
        placed = self.location.evaluate(layers["location"], locations)
        return self.pool(layers, placed, values, mask)

    def prepared(self, sensors: int) -> dict[str, Layers]:
        """Return the layers that `pool` reads for sets of so many sensors."""
        *hidden, weight, bias = self.projection.prepared()
        found = {"location": self.location.prepared(), "value": self.value.prepared()}
        if sensors > 1:
            *for_scores, score, _ = self.score.prepared()
            found["score"] = (score * self.scale,)
            hidden = [torch.cat(pair) for pair in zip(for_scores, hidden, strict=True)]
        return found | {"heads": tuple(hidden), "projection": (weight, bias)}

    def pool(
        self,
        layers: Mapping[str, Layers],
        placed: Float[Tensor, "B m e"],
        values: Float[Tensor, "B m"],
        mask: Bool[Tensor, "B m"] | None = None,
    ) -> Float[Tensor, "B h"]:
        """Return h from embedded locations ``Lambda_x(x_i)`` and values.

        Weights sum to 1, so the linear last layer of v_l acts on the average of what enters it
        instead of on each sensor; a single sensor needs no weights; and the last bias of w_l
        changes none.

        Parameters
        ----------
        layers : mapping
            From `prepared`.
        placed : Tensor, shape (B, m, d_emb)
        values : Tensor, shape (B, m)
        mask : Tensor of bool, shape (B, m), optional
            False on padding; None if there is none.
        """
        b, m = values.shape
        # All first sensors, all second ones, ...: sums over sensors run along memory.
        tokens = placed.transpose(0, 1) + self.value.evaluate(layers["value"], values.T[..., None])
        by_sensor = None if mask is None else mask.T
        average = self._average(layers, tokens.reshape(m * b, -1), m, by_sensor)
        weight, bias = layers["projection"]
        h = torch.baddbmm(bias, average, weight).permute(1, 0, 2).reshape(b, -1)
        if self.count_feature:
            counts = h.new_full((b, 1), m) if mask is None else mask.sum(-1, keepdim=True).to(h)
            h = torch.cat([h, 1.0 / counts], dim=-1)
        return h

    def _average(
        self, layers: Mapping[str, Layers], tokens: Tensor, m: int, mask: Tensor | None
    ) -> Tensor:
        """Return the weighted average (H, B, width) of what enters the last layer of v_l."""
        heads = layers["heads"]
        rows = tokens.expand(len(heads[0]), *tokens.shape)
        hidden = through_hidden(rows, heads, self.projection.activation)
        if "score" not in layers:
            return hidden
        for_scores, hidden = hidden.chunk(2)
        scores = torch.bmm(for_scores, layers["score"][0]).view(len(hidden), m, -1)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        return (weights[..., None] * hidden.reshape(*weights.shape, -1)).sum(1)
