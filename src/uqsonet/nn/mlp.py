"""Multilayer perceptrons: one, and H of them evaluated side by side as batched products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from uqsonet.nn.fused import fused_perceptron, usable
from uqsonet.nn.sigmoid import Layers, perceptron, sigmoid_coordinates

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
        self.activation, self.hidden = ACTIVATIONS[activation], list(hidden)

    def weights(self) -> list[Tensor]:
        """Return the weight (outputs, inputs) of each layer."""
        return [layer.weight for layer in self.layers if isinstance(layer, nn.Linear)]

    def prepared(self, first: Tensor | None = None) -> Layers:
        """Return the layers as `evaluate` reads them, to be computed once a step.

        Parameters
        ----------
        first : Tensor, shape (width, inputs), optional
            To be used in place of the first layer's weight, for inputs in other coordinates.
        """
        weights: list[Tensor] = self.weights()
        if first is not None:
            weights[0] = first
        biases = [layer.bias for layer in self.layers if isinstance(layer, nn.Linear)]
        pairs = zip(weights, biases, strict=True)
        layers = [tensor for weight, bias in pairs for tensor in (weight.T, bias)]
        by_sigmoid = form(self, layers[0]) == "sigmoid"
        return sigmoid_coordinates(layers, True) if by_sigmoid else tuple(layers)

    def evaluate(self, layers: Layers, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs) with prepared layers."""
        chosen = form(self, x)
        if chosen != "plain":
            function = perceptron if chosen == "sigmoid" else fused_perceptron
            return function(x.reshape(-1, x.shape[-1]), layers).reshape(*x.shape[:-1], -1)
        *hidden, last, offset = layers
        for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
            x = self.activation(_affine(x, weight, bias))
        return _affine(x, last, offset)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return self.evaluate(self.prepared(), x)


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
        self.activation, self.hidden = ACTIVATIONS[activation], list(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map (k, inputs) to (heads, k, outputs)."""
        x = x.expand(self.weights[0].shape[0], *x.shape)
        *hidden, (last, offset) = self.pairs()
        for weight, bias in hidden:
            x = self.activation(torch.baddbmm(bias, x, weight))
        return torch.baddbmm(offset, x, last)

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each layer."""
        return list(zip(self.weights, self.biases, strict=True))


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W + b; b may be a row for each row of x."""
    if bias.ndim > 1:
        return torch.addmm(bias, x, weight)
    return nn.functional.linear(x, weight.T, bias)


def form(module: MLP | HeadsMLP, like: Tensor) -> Literal["plain", "sigmoid", "fused"]:
    """Return how layers are evaluated: for tanh on a CPU `fused`, or in `sigmoid` coordinates.

    Only a module in training mode is worth the wait for a compiler.
    """
    if module.activation is not torch.tanh or like.device.type != "cpu":
        return "plain"
    return "fused" if module.training and usable(like, module.hidden) else "sigmoid"
