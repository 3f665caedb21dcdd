"""The set-transformer embedding h(O), section 3.1 (eq:pooling, eq:set).

``Lambda_i = Lambda_x(x_i) + Lambda_kappa(kappa(x_i))``; head l pools values ``v_l(Lambda_i)`` with
weights softmax_i(w_l(Lambda_i) / sqrt(d_emb)); h is the concatenation over the heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import on_cpu
from uqsonet.operator.perceptrons import MLP, perceptron

MANY_ROWS, MAX_PARTS = 16_384, 64
"""From how many rows on, and into how many parts at most, a GPU cuts them."""


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
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, inputs) to (H, rows, outputs).

        On a GPU gradients of weights are sums over rows in which each head has one multiprocessor.
        Many rows are cut into parts that share the weights, so that more of them have work.
        """
        pairs = zip(self.weights, self.biases, strict=True)
        layers = tuple(tensor for pair in pairs for tensor in pair)
        heads, rows = len(layers[0]), len(x)
        parts = 1 if on_cpu(x) or rows < MANY_ROWS else math.gcd(rows, MAX_PARTS)
        if parts == 1:
            return perceptron(x.expand(heads, *x.shape), layers, self.activation)
        layers = tuple(one.repeat_interleave(parts, 0) for one in layers)
        cut = x.unflatten(0, (parts, -1)).repeat(heads, 1, 1)
        return perceptron(cut, layers, self.activation).reshape(heads, rows, -1)


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
        b, m = values.shape
        # All first sensors, all second ones, ...: sums over sensors run along memory.
        tokens = self.location(locations.transpose(0, 1)) + self.value(values.T[..., None])
        tokens = tokens.reshape(m * b, -1)
        h = self.projection(tokens).unflatten(1, (m, b))
        if m > 1:
            scores = self.score(tokens).view(-1, m, b) * self.scale
            if mask is not None:
                scores = scores.masked_fill(~mask.T, float("-inf"))
            h = scores.softmax(1)[..., None] * h
        h = h.sum(1).permute(1, 0, 2).reshape(b, -1)
        if self.count_feature:
            counts = h.new_full((b, 1), m) if mask is None else mask.sum(-1, keepdim=True).to(h)
            h = torch.cat([h, 1.0 / counts], dim=-1)
        return h
