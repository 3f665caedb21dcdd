"""Multilayer perceptrons: one, and H of them evaluated side by side as batched products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Layers = tuple[Tensor, ...]
"""Weights and biases in turns: (inputs, outputs) and (outputs,), the first bias also
(rows, outputs); or of H perceptrons side by side (H, inputs, outputs) and (H, 1, outputs)."""


class _Tanh(torch.autograd.Function):
    """``tanh(x) = 1 - 2 sigmoid(-2 x)``, in three passes; one leads back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.rsub((-2.0 * x).sigmoid_(), 1.0, alpha=2.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(*gradients, *ctx.saved_tensors)


def fast_tanh(x: Tensor) -> Tensor:
    """Return tanh(x), to rounding (1e-7).

    On a CPU torch.tanh takes six times as long as torch.sigmoid, and in narrow layers longer than
    the matrix products.
    """
    if x.device.type != "cpu":
        return torch.tanh(x)
    found = _Tanh.apply(x)
    assert isinstance(found, Tensor)
    return found


ACTIVATIONS = {"tanh": fast_tanh, "silu": nn.functional.silu, "gelu": nn.functional.gelu}


def through_hidden(x: Tensor, layers: Sequence[Tensor], activation: Callable[[Tensor], Tensor]) -> Tensor:
    """Lead rows x through hidden layers, each with the activation after it."""
    product = torch.addmm if x.ndim == 2 else torch.baddbmm
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        x = activation(product(bias, x, weight))
    return x


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
        self.activation = ACTIVATIONS[activation]

    def prepared(self) -> Layers:
        """Return the layers as `evaluate` reads them."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        return tuple(tensor for layer in linear for tensor in (layer.weight.T, layer.bias))

    def evaluate(self, layers: Layers, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs) with layers in place of the module's own ones."""
        *hidden, weight, bias = layers
        rows = through_hidden(x.reshape(-1, x.shape[-1]), hidden, self.activation)
        return torch.addmm(bias, rows, weight).reshape(*x.shape[:-1], -1)

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
        self.activation = ACTIVATIONS[activation]

    def prepared(self) -> Layers:
        """Return weights and biases in turns."""
        pairs = zip(self.weights, self.biases, strict=True)
        return tuple(tensor for pair in pairs for tensor in pair)

    def forward(self, x: Tensor) -> Tensor:
        """Map (k, inputs) to (heads, k, outputs)."""
        *hidden, weight, bias = self.prepared()
        rows = x.expand(len(weight), *x.shape)
        return torch.baddbmm(bias, through_hidden(rows, hidden, self.activation), weight)
