"""Hidden tanh layers as one differentiable function, made for a CPU.

torch.tanh takes about six times as long as torch.sigmoid, and at the paper's widths as long as
the matrix products. With ``tanh(x) = 2 s - 1``, ``s = sigmoid(2 x)``, the factors move into the
weights of the next layer, which are small:

    2 (y W + b) = s (4 W) + 2 (b - 1^T W),    y = 2 s - 1.

So a layer is one product and one pass over its output, in place; backward, likewise. The values
agree with torch.tanh to rounding (1e-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _TanhLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, depth: int, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[:depth], parameters[depth:]
        product = torch.addmm if weights[0].ndim == 2 else torch.baddbmm
        ctx.shared_input = x.ndim < weights[0].ndim
        if ctx.shared_input:
            x = x.expand(len(weights[0]), *x.shape)
        scaled, layers = [2 * weights[0]], [x]
        s = product(2 * biases[0], x, scaled[0]).sigmoid_()
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            layers.append(s)
            scaled.append(4 * weight)
            s = product(2 * (bias - weight.sum(-2, bias.ndim > 1)), s, scaled[-1]).sigmoid_()
        y = s.mul_(2).sub_(1)
        ctx.save_for_backward(y, *layers, *scaled)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        y, *rest = ctx.saved_tensors
        depth = len(rest) // 2
        layers, scaled = rest[:depth], rest[depth:]
        of_weights: list[Tensor] = []
        of_biases: list[Tensor] = []
        # g: with respect to twice what enters the activation
        g = torch.ops.aten.tanh_backward(gradients[0], y).mul_(0.5)
        for k in reversed(range(depth)):
            total = g.sum(-2, keepdim=g.ndim > 2)
            product = layers[k].transpose(-1, -2) @ g
            of_biases.append(2 * total)
            if k == 0:
                of_weights.append(2 * product)
                break
            row = total if g.ndim > 2 else total[None]
            of_weights.append(4 * product - 2 * row)
            g = g @ scaled[k].transpose(-1, -2)
            torch.ops.aten.sigmoid_backward.grad_input(g, layers[k], grad_input=g)
        of_input = None
        if ctx.needs_input_grad[0]:
            of_input = g @ scaled[0].transpose(-1, -2)
            if ctx.shared_input:
                of_input = of_input.sum(0)
        return of_input, None, *reversed(of_weights), *reversed(of_biases)


def tanh_layers(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Return the output of the last hidden layer, ``tanh(... tanh(x W_1 + b_1) ...)``.

    Parameters
    ----------
    x : Tensor, shape (k, inputs)
    weights : sequence of Tensor, each (inputs, outputs) or (H, inputs, outputs)
        Of one perceptron, or of H that read the same x.
    biases : sequence of Tensor, each (outputs,) or (H, 1, outputs)

    Returns
    -------
    Tensor, shape (k, outputs) or (H, k, outputs)
    """
    found = _TanhLayers.apply(x, len(weights), *weights, *biases)
    assert isinstance(found, Tensor)
    return found
