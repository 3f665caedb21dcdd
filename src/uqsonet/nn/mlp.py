"""Multilayer perceptrons: one, and H of them evaluated side by side as batched products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS = {"tanh": torch.tanh, "silu": nn.functional.silu, "gelu": nn.functional.gelu}


class MLP(nn.Module):
    """A perceptron with one activation after each hidden layer and a linear output.

    Parameters
    ----------
    inputs, outputs : int
    hidden : sequence of int
        Widths of the hidden layers.
    activation : {"tanh", "silu", "gelu"}
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "tanh"
    ) -> None:
        super().__init__()
        widths = [inputs, *hidden, outputs]
        pairs = pairwise(widths)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairs])
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


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

    def forward(self, x: Tensor) -> Tensor:
        """Map (k, inputs) to (heads, k, outputs)."""
        depth = len(self.weights)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.matmul(x, weight) + bias
            if i < depth - 1:
                x = self.activation(x)
        return x
