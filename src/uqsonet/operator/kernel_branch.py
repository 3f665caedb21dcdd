"""What a branch adds to its linear part: ridge regression with a cubic kernel on all pairs.

A perturbation series of an elliptic equation in its medium is a polynomial in the medium's modes,
which are many where classes jump, so a perceptron needs more pairs than there are. The kernel
``(1 + x'y)^3`` of the modes, each as large as it is in the inputs, is all cubic polynomials at
once. Centres are some of the pairs, weights those of least squares over all of them (subset of
regressors). All is in double precision: in single the kernel is singular.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from uqsonet.operator.closed_form import targets
from uqsonet.runs.functions import Functions

MAX_CENTRES = 2500
"""Maximum number of centres."""

KERNEL_RIDGE = 1e-6
"""Ridge relative to the kernel's diagonal: the results hardly depend on it."""

JITTER = 1e-12
"""Addition to the diagonal of the normal equations, relative to its mean."""

BLOCK_PAIRS = 1024
"""Pairs in one block of the normal equations."""


class KernelBranch(nn.Module):
    """The sum of cubic kernels about centres.

    Parameters
    ----------
    inputs, outputs, centres : int
    """

    scale: Tensor
    centres: Tensor
    weights: Tensor

    def __init__(self, inputs: int, outputs: int, centres: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(inputs, dtype=torch.float64))
        self.register_buffer("centres", torch.zeros(centres, inputs, dtype=torch.float64))
        self.register_buffer("weights", torch.zeros(centres, outputs, dtype=torch.float64))

    def near(self, a: Tensor) -> Tensor:
        """Return the kernel (n, centres) of coefficients (n, inputs) and the centres."""
        return (1 + (a.double() * self.scale) @ self.centres.T) ** 3

    def forward(self, a: Tensor) -> Tensor:
        """Map coefficients (..., inputs) to (..., outputs), in the precision of the former."""
        found = self.near(a.reshape(-1, a.shape[-1])) @ self.weights
        return found.to(a.dtype).reshape(*a.shape[:-1], -1)


@torch.no_grad()
def use_kernel(model: Any, functions: Functions) -> None:
    """Give a Karhunen-Loeve model the kernel of these pairs in place of its perceptron."""
    pairs, size = targets(model.bases, functions), model.bases.input_factor.double().square().sum(0)
    count = min(MAX_CENTRES, functions.size)
    model.config = model.config.model_copy(update={"branch": [], "kernel": count})
    network = KernelBranch(len(size), pairs["c"].shape[1], count)
    network.scale.copy_((size / size.sum()).sqrt())
    network.centres.copy_(pairs["a"][:count].double() * network.scale)
    among = network.near(pairs["a"][:count])
    normal = KERNEL_RIDGE * functions.size / count * float(among.diagonal().mean()) * among
    right = torch.zeros_like(network.weights)
    for a, c in zip(pairs["a"].split(BLOCK_PAIRS), pairs["c"].split(BLOCK_PAIRS), strict=True):
        near = network.near(a)
        normal += near.T @ near
        right += near.T @ (c.double() - model.straight_answers(a).double())
    normal.diagonal().add_(JITTER * float(normal.diagonal().mean()))
    network.weights.copy_(torch.cholesky_solve(right, torch.linalg.cholesky(normal)))
    model.network = network
