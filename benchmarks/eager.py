"""The peer of training: the paper's formulas written directly in PyTorch, as fast as that goes.

`nn.Linear`, `torch.tanh`, softmax, the plain loss on the training grid, `torch.optim.Adam` (fused).
The perceptrons of the H heads are evaluated one after another, as the paper writes them, or side by
side as batched products; gradients are those of the whole batch, or sums over blocks. Whatever is
fastest is the baseline. All sets of a batch have the same number of sensors, so nothing is masked.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from uqsonet.networks.config import AttentionNetwork


def perceptron(inputs: int, hidden: list[int], outputs: int) -> nn.Sequential:
    """Return linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise([inputs, *hidden, outputs]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Heads(nn.Module):
    """H perceptrons side by side, one batched product a layer."""

    def __init__(self, heads: int, inputs: int, hidden: list[int], outputs: int) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in pairwise([inputs, *hidden, outputs]):
            bound = a**-0.5
            self.weights.append(nn.Parameter(torch.empty(heads, a, b).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(heads, 1, b).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(len(self.weights[0]), *x.shape)
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = torch.tanh(x) if k < len(self.weights) - 1 else x
        return x


class Separate(nn.Module):
    """H perceptrons, one after another."""

    def __init__(self, heads: int, inputs: int, hidden: list[int], outputs: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([perceptron(inputs, hidden, outputs) for _ in range(heads)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.parts])


class EagerUQSONet(nn.Module):
    """Section 3, formula by formula."""

    def __init__(
        self, config: AttentionNetwork, points: Tensor, factor: Tensor, batched: bool
    ) -> None:
        super().__init__()
        self.config, self.points, self.factor = config, points, factor[:, None]
        dim, d, heads, q = points.shape[1], config.embedding_dim, config.heads, config.head_width
        kind = Heads if batched else Separate
        self.location = perceptron(dim, config.location_embedding, d)
        self.value = perceptron(1, config.value_embedding, d)
        self.score = kind(heads, d, config.attention, 1)
        self.projection = kind(heads, d, config.attention, q)
        h, z, p = heads * q, config.latent_dim, config.truncation
        self.encoder = perceptron(h + len(points), config.encoder, 2 * z)
        self.branch = perceptron(h + z, config.branch, p)
        self.trunk = perceptron(dim, config.trunk, p)

    def forward(self, locations: Tensor, values: Tensor, u: Tensor, normals: Tensor) -> Tensor:
        """Return the negative ELBO of sets without padding."""
        b, m = values.shape
        tokens = (self.location(locations) + self.value(values[..., None])).reshape(b * m, -1)
        scores = self.score(tokens).reshape(-1, b, m) / math.sqrt(self.config.embedding_dim)
        weights = torch.softmax(scores, -1)
        projected = self.projection(tokens).reshape(*weights.shape, -1)
        h = (weights[..., None] * projected).sum(2).permute(1, 0, 2).reshape(b, -1)
        mean, log_variance = self.encoder(torch.cat([h, u], -1)).chunk(2, -1)
        z = mean + normals * (0.5 * log_variance).exp()
        prediction = self.branch(torch.cat([h, z], -1)) @ (self.factor * self.trunk(self.points)).T
        kl = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(-1).mean()
        error = nn.functional.mse_loss(prediction, u)
        return kl + error / (2 * self.config.noise_variance)


class EagerTraining:
    """Steps of Adam, with gradients summed over blocks of `rows` samples (0: the whole batch)."""

    def __init__(self, model: EagerUQSONet, rate: float, rows: int = 0) -> None:
        self.model, self.rows = model, rows
        self.adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)

    def step(self, locations: Tensor, values: Tensor, u: Tensor, normals: Tensor) -> float:
        """Take one step and return the loss."""
        self.adam.zero_grad()
        rows, total = self.rows or len(u), 0.0
        for first in range(0, len(u), rows):
            part = slice(first, first + rows)
            loss = self.model(locations[part], values[part], u[part], normals[part])
            loss = loss * (len(u[part]) / len(u))
            loss.backward()
            total += float(loss.detach())
        self.adam.step()
        return total
