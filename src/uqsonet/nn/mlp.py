"""Multilayer perceptrons: one, and H of them evaluated side by side as batched products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from uqsonet.nn.tanh import tanh_layers

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

    def forward(self, x: Tensor, first: Tensor | None = None) -> Tensor:
        """Map (..., inputs) to (..., outputs).

        Parameters
        ----------
        x : Tensor
        first : Tensor, shape (width, inputs), optional
            To be used in place of the first layer's weight, for x in other coordinates.
        """
        *weights, last = [layer.weight for layer in self.layers]
        *biases, offset = [layer.bias for layer in self.layers]
        if first is not None:
            weights[0] = first
        if _fused(self.activation, x):
            columns = [weight.T for weight in weights]
            hidden = tanh_layers(x.reshape(-1, x.shape[-1]), columns, biases)
            x = hidden.reshape(*x.shape[:-1], hidden.shape[-1])
        else:
            for weight, bias in zip(weights, biases, strict=True):
                x = self.activation(nn.functional.linear(x, weight, bias))
        return nn.functional.linear(x, last, offset)


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
        return self.last(self.hidden(x))

    def hidden(self, x: Tensor, beside: HeadsMLP | None = None) -> Tensor:
        """Map (k, inputs) to the last hidden layer (heads, k, width).

        Parameters
        ----------
        x : Tensor
        beside : HeadsMLP, optional
            Further perceptrons with the same hidden widths, evaluated in the same products; theirs
            come after in the first axis.
        """
        weights, biases = list(self.weights)[:-1], list(self.biases)[:-1]
        heads = self.weights[0].shape[0]
        if beside is not None:
            heads += beside.weights[0].shape[0]
            weights = [torch.cat(pair) for pair in zip(weights, beside.weights[:-1], strict=True)]
            biases = [torch.cat(pair) for pair in zip(biases, beside.biases[:-1], strict=True)]
        if _fused(self.activation, x):
            return tanh_layers(x, weights, biases)
        x = x.expand(heads, *x.shape)
        for weight, bias in zip(weights, biases, strict=True):
            x = self.activation(torch.baddbmm(bias, x, weight))
        return x

    def last(self, hidden: Tensor) -> Tensor:
        """Map the last hidden layer (heads, k, width) to (heads, k, outputs)."""
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1])


def _fused(activation: object, x: Tensor) -> bool:
    """Whether the function for tanh on a CPU applies."""
    return activation is torch.tanh and x.device.type == "cpu"
