"""A branch's correction by kernel ridge regression, for operators that are smooth and not linear.

What the linear operator leaves over of training pairs is interpolated with the exponential kernel
``exp(<z, z'> / l)`` of weighted coefficients: a polynomial of every degree, high ones weighing
less (kernel methods for operators: Batlle et al., J. Comput. Phys. 496, 2024). A mode counts by the
geometric mean of its size in the input and of what the linear operator makes of it.

There is nothing to train but one system of equations, cubic in the number of pairs.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

LOG = logging.getLogger("uqsonet")

LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)  # tried for l; the mean of ``|z|^2`` is one
RIDGES = (1e-8, 1e-6, 1e-4)  # tried, relative to the kernel's mean diagonal
TRIED_ON = 3000  # pairs that the choice is fitted on, at most


class KernelBranch(nn.Module):
    """The function ``c + sum_i w_i exp(<z, z_i> / l)``, ``z = z_0 + a F``, of coefficients a.

    Parameters
    ----------
    features : Tensor, shape (r, f)
        F: how coefficients enter the kernel.
    offset : Tensor, shape (f,)
        z_0.
    length : float
    centres : Tensor, shape (N, f)
        Features of pairs.
    weights : Tensor, shape (N, p)
    constant : Tensor, shape (p,)
    """

    features: Tensor
    offset: Tensor
    centres: Tensor
    weights: Tensor
    constant: Tensor

    def __init__(
        self, features: Tensor, offset: Tensor, length: float, centres: Tensor, weights: Tensor,
        constant: Tensor,
    ) -> None:  # fmt: skip
        super().__init__()
        self.length = length
        self.register_buffer("features", features)
        self.register_buffer("offset", offset)
        self.register_buffer("centres", centres)
        self.register_buffer("weights", weights)
        self.register_buffer("constant", constant)
        self._single = centres.float(), weights.float()

    def forward(self, a: Tensor) -> Tensor:
        """Map coefficients (..., r) to the function (..., p), in the precision of `a`."""
        return (self._near(a) @ self.weights + self.constant).to(a)

    def slope(self, a: Tensor) -> Tensor:
        """Return the slope (p, r) at coefficients (r,); its sum is made in single precision."""
        centres, weights = self._single
        found = (weights * self._near(a).float()[:, None]).T @ centres
        return (found.to(self.features) @ self.features.T / self.length).to(a)

    def _near(self, a: Tensor) -> Tensor:
        """Return the kernel (..., N) of coefficients (..., r) and the centres."""
        z = (self.offset + a.to(self.features) @ self.features) / self.length
        return torch.exp(z @ self.centres.T)


def fit_kernel_branch(
    a: Tensor, left: Tensor, held: tuple[Tensor, Tensor], sizes: Tensor
) -> KernelBranch:
    """Return the correction that is best on held-out pairs.

    Parameters
    ----------
    a : Tensor, shape (N, r)
        Standardised coefficients of inputs.
    left : Tensor, shape (N, p)
        What the linear operator leaves over of the outputs'.
    held : tuple of Tensor, shapes (M, r) and (M, p)
        The same of pairs that decide upon length and ridge.
    sizes : Tensor, shape (r,)
        How much a mode counts.
    """
    scale = (sizes / sizes.norm()).double()
    z, right = a.double() * scale, left.double()
    check, wanted = held[0].double() * scale, held[1].double()
    some = slice(0, TRIED_ON)
    errors = {}
    for length in LENGTHS:
        kernel = torch.exp(z[some] @ z[some].T / length)
        for ridge in RIDGES:
            weights = _solved(kernel.clone(), right[some], ridge)
            off = torch.exp(check @ z[some].T / length) @ weights - wanted
            errors[length, ridge] = float(off.square().sum(1).mean())
    length, ridge = min(errors, key=lambda key: errors[key])
    LOG.info("kernel: length %g, ridge %g of %s", length, ridge, errors)
    kernel = (z @ z.T).div_(length).exp_()
    none = torch.zeros_like(scale), torch.zeros_like(right[0])
    weights = _solved(kernel, right, ridge)
    return KernelBranch(scale.diag(), none[0], length, z, weights, none[1])


def _solved(kernel: Tensor, right: Tensor, ridge: float) -> Tensor:
    """Return weights; the kernel (N, N) is overwritten."""
    kernel.diagonal().add_(ridge * kernel.diagonal().mean())
    return torch.cholesky_solve(right, torch.linalg.cholesky(kernel, out=kernel))
