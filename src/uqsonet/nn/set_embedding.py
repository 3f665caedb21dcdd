"""The set-transformer embedding h(O), section 3.1 (eq:pooling, eq:set).

``Lambda_i = Lambda_x(x_i) + Lambda_kappa(kappa(x_i))``; head l pools values ``v_l(Lambda_i)`` with
weights softmax_i(w_l(Lambda_i) / sqrt(d_emb)); h is the concatenation over the heads.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from uqsonet.config import AttentionNetwork
from uqsonet.nn.mlp import MLP, HeadsMLP


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
        return self.pool(self.location(locations), values, mask)

    def pool(
        self,
        placed: Float[Tensor, "B m e"],
        values: Float[Tensor, "B m"],
        mask: Bool[Tensor, "B m"] | None = None,
    ) -> Float[Tensor, "B h"]:
        """Return h from embedded locations ``Lambda_x(x_i)`` and values.

        Weights sum to 1, so the linear last layer of v_l may act on the average of what enters it
        instead of on each sensor, and a single sensor needs no weights.

        Parameters
        ----------
        placed : Tensor, shape (B, m, d_emb)
        values : Tensor, shape (B, m)
        mask : Tensor of bool, shape (B, m), optional
            False on padding; None if there is none.
        """
        b, m = values.shape
        tokens = (placed + self.value(values[..., None])).reshape(b * m, -1)
        if m == 1:
            average = self.projection.hidden(tokens)
        else:
            for_scores, hidden = self.score.hidden(tokens, self.projection).chunk(2)
            scores = self.score.last(for_scores).reshape(-1, b, m) * self.scale
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            weights = torch.softmax(scores, dim=-1)
            average = (weights[..., None] * hidden.reshape(*weights.shape, -1)).sum(2)
        h = self.projection.last(average).permute(1, 0, 2).reshape(b, -1)
        if self.count_feature:
            counts = h.new_full((b, 1), m) if mask is None else mask.sum(-1, keepdim=True).to(h)
            h = torch.cat([h, 1.0 / counts], dim=-1)
        return h
