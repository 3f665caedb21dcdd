"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from uqsonet.operator.base import on_cpu

Layers = tuple[Tensor, ...]
"""Weights and biases in turns: (inputs, outputs) and (outputs,), the first bias also
(rows, outputs); or of H perceptrons side by side (H, inputs, outputs) and (H, 1, outputs)."""

ACTIVATIONS = {"tanh": torch.tanh_, "silu": nn.functional.silu, "gelu": nn.functional.gelu}
"""What follows the product of a hidden layer."""


def by_sigmoid(layers: Layers) -> Layers:
    """Return the layers of a tanh perceptron for states ``s = sigmoid(2 x)``.

    On a CPU torch.tanh takes six times as long as torch.sigmoid, and in narrow layers longer than
    the matrix products. With ``tanh(x) = 2 s - 1`` the next layer, of weight W and bias b, is
    ``s (2 W) + (b - 1^T W)``. The factor 2 within the sigmoid goes into the weights as well.
    """
    found: list[Tensor] = []
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        if found:
            bias = bias - weight.sum(-2, keepdim=bias.ndim > 1)
        inner, outer = 2.0 if found else 1.0, 2.0 if len(found) < len(layers) - 2 else 1.0
        found += [inner * outer * weight, outer * bias]
    return tuple(found)


def perceptron(x: Tensor, layers: Layers, activation: str) -> Tensor:
    """Lead rows x (n, inputs), or (H, n, inputs) of H perceptrons, through all layers."""
    activate = ACTIVATIONS[activation]
    if activation == "tanh" and on_cpu(x):
        layers, activate = by_sigmoid(layers), torch.sigmoid_
    *hidden, weight, bias = layers
    product = torch.addmm if x.ndim == 2 else torch.baddbmm
    for inner, shift in zip(hidden[::2], hidden[1::2], strict=True):
        x = activate(product(shift, x, inner))
    return product(bias, x, weight)


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
        pairs = pairwise([inputs, *hidden, outputs])
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairs])
        self.activation = activation

    def tensors(self) -> Layers:
        """Return weights and biases as `perceptron` reads them."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        return tuple(tensor for layer in linear for tensor in (layer.weight.T, layer.bias))

    def slopes(self, a: Tensor, rows: Tensor, along: Tensor) -> Tensor:
        """Return derivatives (n, m, k), float64, of `rows` (m, outputs) of the answers to a (n, r).

        Directions are (k, r), float64.
        """
        n, m = len(a), len(rows)
        with torch.enable_grad():  # all at once: each a stands there for each row
            every = a.detach().repeat(m, 1).requires_grad_()
            answers = self(every).view(m, n, -1) * rows[:, None].to(a)
            slopes = torch.autograd.grad(answers.sum(), every)[0]
        return slopes.view(m, n, -1).transpose(0, 1).double() @ along.T

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        rows = perceptron(x.reshape(-1, x.shape[-1]), self.tensors(), self.activation)
        return rows.reshape(*x.shape[:-1], -1)
