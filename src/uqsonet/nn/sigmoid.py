"""tanh perceptrons in sigmoid coordinates, with hand-written gradients, made for a CPU.

torch.tanh takes about six times as long as torch.sigmoid, and at the paper's widths as long as
the matrix products. With ``tanh(x) = 2 s - 1``, ``s = sigmoid(2 x)``, the factors move into the
weights of the next layer, once a step:

    2 (y W + b) = s A + B,    A = 4 W,    B = 2 (b - 1^T W),    y = 2 s - 1.

So a layer is one product and one pass over its output, in place, forward and backward. The values
agree with those of torch.tanh to rounding (1e-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Layers = tuple[Tensor, ...]
"""Weights and biases (A_1, B_1, A_2, B_2, ...) of a perceptron: A (inputs, outputs) with B
(outputs,), B_1 also (k, outputs); or of H side by side: A (H, inputs, outputs), B (H, 1, outputs).
"""

CHUNK_VALUES = 1 << 18
"""Values of one hidden layer of all heads (1 MiB) that are worked on at a time."""


class _Coordinates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, linear_end: bool, *layers: Tensor) -> Layers:
        last = len(layers) // 2 - 1 if linear_end else -1
        ctx.factors, found = [], []
        for k, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            inner, outer = 1.0 if k == 0 else 2.0, 1.0 if k == last else 2.0
            ctx.factors.append((inner, outer))
            if k > 0:
                bias = bias - weight.sum(-2, keepdim=bias.ndim > 1)
            found += [weight * (inner * outer), bias * outer]
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None]
        pairs = zip(gradients[::2], gradients[1::2], strict=True)
        for (of_weight, of_bias), (inner, outer) in zip(pairs, ctx.factors, strict=True):
            weight, bias = of_weight * (inner * outer), of_bias * outer
            if inner == 2.0:
                weight -= bias
            found += [weight, bias]
        return tuple(found)


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *layers: Tensor) -> Tensor:
        states = _states(x, layers[:-2])
        ctx.save_for_backward(*states, *layers[::2])
        ctx.one_bias = layers[1].ndim == 1
        return torch.addmm(layers[-1], states[-1], layers[-2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        depth = len(ctx.saved_tensors) // 2
        states, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        (g,) = gradients
        found = [g.sum(0), (g.T @ states[-1]).T]
        g = g @ weights[-1].T
        to_input, one_bias = ctx.needs_input_grad[0], ctx.one_bias
        of_input, of_hidden = _backward(g, states, weights, to_input, one_bias)
        return of_input, *reversed(found + of_hidden)


class _Hidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *layers: Tensor) -> Tensor:
        states = _states(x.expand(len(layers[0]), *x.shape), layers)
        ctx.save_for_backward(*states, *layers[::2])
        return states[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        depth = (len(ctx.saved_tensors) + 1) // 2
        states, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        g, found = _backward(gradients[0].clone(), states, weights, ctx.needs_input_grad[0])
        return g, *reversed(found)


class _Attention(torch.autograd.Function):
    """H heads on m sensors a set: softmax of scores, weighted average of the last states.

    Sets come in chunks whose states of one layer fit the core's own cache: written by one
    operation, they are read by the next one from there.
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, sensors: int, mask: Tensor | None, score: Tensor, *layers: Tensor
    ) -> Tensor:
        heads, width = len(score), layers[-1].shape[-1]
        by_sensor = tokens.view(sensors, -1, tokens.shape[-1])
        average = tokens.new_empty(heads, by_sensor.shape[1], width)
        ctx.sets = max(1, CHUNK_VALUES // (2 * heads * width * sensors))
        saved: list[Tensor] = []
        for first in range(0, by_sensor.shape[1], ctx.sets):
            part = slice(first, first + ctx.sets)
            some = by_sensor[:, part].reshape(-1, tokens.shape[-1])
            states = _states(some.expand(2 * heads, *some.shape), layers)
            for_scores, for_average = states[-1][:heads], states[-1][heads:]
            scores = (score @ for_scores.transpose(1, 2)).view(heads, sensors, -1)
            if mask is not None:
                scores.masked_fill_(~mask[:, part], float("-inf"))
            weights = torch.softmax(scores, 1)
            weighted = weights[..., None] * for_average.view(*weights.shape, -1)
            torch.sum(weighted, 1, out=average[:, part])
            saved += [weights, *states]
        ctx.save_for_backward(score, *layers, *saved)
        ctx.layers = len(layers)
        return average

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        score, *rest = ctx.saved_tensors
        layers, saved = rest[: ctx.layers], rest[ctx.layers :]
        heads, depth = len(score), ctx.layers // 2
        of_score = torch.zeros_like(score)
        of_layers = [torch.zeros_like(layer) for layer in layers]
        of_tokens: list[Tensor] = []
        parts = list(enumerate(gradients[0].split(ctx.sets, 1)))
        for chunk, of_average in reversed(parts):  # what was saved last is nearest to the core
            weights, *states = saved[chunk * (depth + 2) : (chunk + 1) * (depth + 2)]
            g = of_average[:, None]
            total = torch.empty_like(states[-1])
            for_scores, for_average = states[-1][:heads], states[-1][heads:]
            torch.mul(weights[..., None], g, out=total[heads:].view(*weights.shape, -1))
            slopes = (g * for_average.view(*weights.shape, -1)).sum(-1)
            of_scores = torch.ops.aten._softmax_backward_data(slopes, weights, 1, weights.dtype)
            torch.mul(of_scores.view(heads, -1, 1), score, out=total[:heads])
            of_score.baddbmm_(of_scores.view(heads, 1, -1), for_scores)
            for k in reversed(range(depth)):
                torch.ops.aten.sigmoid_backward.grad_input(total, states[k + 1], grad_input=total)
                of_layers[2 * k + 1] += total.sum(1, keepdim=True)
                of_layers[2 * k].baddbmm_(states[k].transpose(1, 2), total)
                if k > 0:
                    total = total @ layers[2 * k].transpose(1, 2)
            # Of a product and its transpose, the one with few rows is several times faster than
            # the one with few columns.
            of_some = (layers[0] @ total.transpose(1, 2)).sum(0)
            of_tokens.append(of_some.view(len(of_some), weights.shape[1], -1))
        joined = torch.cat(of_tokens[::-1], 2).flatten(1).T
        return joined, None, None, of_score, *of_layers


def _states(x: Tensor, layers: Sequence[Tensor]) -> list[Tensor]:
    """Return x and the sigmoid states after each of the layers."""
    product = torch.addmm if layers[0].ndim == 2 else torch.baddbmm
    found = [x]
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        found.append(product(bias, found[-1], weight).sigmoid_())
    return found


def _backward(
    g: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    to_input: bool,
    one_bias: bool = True,
) -> tuple[Tensor | None, list[Tensor]]:
    """Lead the gradient g of the last states, which is overwritten, through the layers.

    Parameters
    ----------
    g : Tensor
    states : sequence of Tensor
        Input and states of each layer.
    weights : sequence of Tensor
    to_input : bool
        Whether the gradient of the input is asked for.
    one_bias : bool
        False if the first layer's bias differs from row to row.

    Returns
    -------
    Tensor or None
        Gradient of the input, if asked for, summed over perceptrons side by side.
    list of Tensor
        Those of B and A, of the last layer first.
    """
    found: list[Tensor] = []
    for k in reversed(range(len(states) - 1)):
        torch.ops.aten.sigmoid_backward.grad_input(g, states[k + 1], grad_input=g)
        found.append(g.sum(-2, keepdim=g.ndim > 2) if k > 0 or one_bias else g)
        # Of a product and its transpose, the one with few rows is several times faster than the
        # one with few columns.
        if g.ndim == 2:
            found.append((g.T @ states[k]).T)
        else:
            found.append(states[k].transpose(1, 2) @ g)
        if k == 0 and g.ndim == 3:
            g = (weights[0] @ g.transpose(1, 2)).sum(0).T if to_input else g
        elif k > 0 or to_input:
            g = g @ weights[k].transpose(-1, -2)
    return g if to_input else None, found


def sigmoid_coordinates(layers: Sequence[Tensor], linear_end: bool) -> Layers:
    """Return weights and biases as they act on sigmoid states.

    Parameters
    ----------
    layers : sequence of Tensor
        Weights and biases of the tanh perceptron, in turns.
    linear_end : bool
        Whether no activation follows the last layer.
    """
    found = _Coordinates.apply(linear_end, *layers)
    assert isinstance(found, tuple)
    return found


def linear_on_states(weight: Tensor, bias: Tensor) -> Layers:
    """Return A, B of a linear layer that reads states: ``y W + b = s A + B``."""
    return 2.0 * weight, bias - weight.sum(-2, keepdim=bias.ndim > 1)


def perceptron(x: Tensor, layers: Layers) -> Tensor:
    """Map x (k, inputs) to (k, outputs); `layers` in sigmoid coordinates, the last one linear."""
    found = _Perceptron.apply(x, *layers)
    assert isinstance(found, Tensor)
    return found


def hidden_states(x: Tensor, layers: Layers) -> Tensor:
    """Map x (k, inputs) to the last states (H, k, width) of H perceptrons."""
    found = _Hidden.apply(x, *layers)
    assert isinstance(found, Tensor)
    return found


def attention(
    tokens: Tensor, sensors: int, mask: Tensor | None, score: Tensor, layers: Layers
) -> Tensor:
    """Return each head's average state (H, B, width) over the sensors of a set.

    Parameters
    ----------
    tokens : Tensor, shape (m B, inputs)
        The first sensors of all sets, then the second ones, ...
    sensors : int
        m, sensors of a set.
    mask : Tensor of bool, shape (m, B), or None
    score : Tensor, shape (H, 1, width)
        Last layer of w_l. Its bias would change no weight.
    layers : Layers
        Hidden layers of w_1 ... w_H, v_1 ... v_H in sigmoid coordinates.
    """
    found = _Attention.apply(tokens, sensors, mask, score, *layers)
    assert isinstance(found, Tensor)
    return found
