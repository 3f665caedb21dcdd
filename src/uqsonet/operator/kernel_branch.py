"""An operator between coefficients in closed form: ``c = W a + kernel(a)``, by ridge regression.

It is a Gaussian process of mean zero on the modes x of the input with the kernel

    ``w x'y + k(x, y)``,    ``k(x, y) = (1 + |x - y|^2 / l^2)^-1/2``

whose first part is the linear operator W. k, the inverse multiquadric, is a mixture of squared
exponentials of all lengths (Rasmussen and Williams, Gaussian processes, 2006, equation 4.19), as
operators with fronts vary over short and long ones. A mode counts with a power of its std in the
inputs: rough modes move outputs less than their size says (whitened, all modes weigh as much, and
errors are larger).
Its parameters, w, l, the power and the ridge, have the least leave-one-out error, known in closed
form (section 5.4.2 there). With more than `MAX_CENTRES` pairs, some of these are centres and
weights are those of least squares on all pairs (subset of regressors, section 8.3.1 there).
Numbers are in double precision: in single the kernel is singular.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.closed_form import targets
from uqsonet.runs.functions import Functions

MAX_CENTRES = 2500
"""Maximum number of centres; an answer takes time in proportion."""

TUNED_PAIRS, FINAL_PAIRS, FINALISTS = 600, 1600, 4
"""Maximum numbers of pairs that the kernel's parameters are tried on, and that the best kernels are
compared on again: with more pairs smoother ones win."""

LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Lengths to try, in standard deviations of the input."""

LINEAR = (math.inf,)
"""The length of a linear operator: without the second part of the kernel."""

SLOPES = (0.1, 1.0, 10.0)
"""Weights w of the linear part to try."""

POWERS = (1.0, 1.5, 2.0)
"""Powers of the std of the modes to try; the first goes with all lengths and slopes."""

RIDGES = tuple(10.0**k for k in range(-9, 4))
"""Ridges to try, relative to the second part of the kernel."""

COMBINATIONS = 24
"""Number of random combinations of the outputs that parameters are compared on."""

CONSTANT = 100.0
"""Variance of a constant in the leave-one-out errors: means were taken with the pair left out."""

JITTER = 1e-11
"""Addition to the diagonal of a kernel among centres."""

BLOCK_ROWS = 2048
"""Rows that are worked on at a time."""


class KernelBranch(nn.Module):
    """The sum of kernels about centres.

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

    def forward(self, a: Tensor) -> Tensor:
        """Map coefficients (..., inputs) to (..., outputs), in the precision of the former."""
        rows = a.reshape(-1, a.shape[-1])
        found = [
            multiquadric(some.double() * self.scale, self.centres) @ self.weights
            for some in rows.split(BLOCK_ROWS)
        ]
        return torch.cat(found).to(a.dtype).reshape(*a.shape[:-1], -1)

    def slopes(self, a: Tensor, rows: Tensor, along: Tensor) -> Tensor:
        """Return derivatives (n, m, k), float64, of `rows` (m, outputs) of the answers to a (n, r).

        Directions are (k, r), float64.
        """
        weights, along = self.weights @ rows.T, along * self.scale
        # All products of a reading's weights and a direction are one column each.
        columns = (weights[:, :, None] * (self.centres @ along.T)[:, None]).flatten(1)
        found = []
        for some in a.split(BLOCK_ROWS):
            x = some.double() * self.scale
            steep = multiquadric(x, self.centres) ** 3
            here = (x @ along.T)[:, None] * (steep @ weights)[:, :, None]
            found.append((steep @ columns).view_as(here) - here)
        return torch.cat(found)


def multiquadric(x: Tensor, y: Tensor) -> Tensor:
    """Return ``(1 + |x - y|^2)^-1/2`` (n, k) of points (n, r) and (k, r)."""
    squares = x.square().sum(1)[:, None] + y.square().sum(1)
    return torch.addmm(squares, x, y.T, alpha=-2).clamp_min_(0).add_(1).rsqrt_()


class Parameters(NamedTuple):
    """Parameters of a kernel; an infinite length stands for a linear operator."""

    length: float
    slope: float
    ridge: float
    power: float


def weighed(size: Tensor, power: float) -> Tensor:
    """Return powers of the sizes (r,) of modes, with squares that sum to one."""
    found = size**power
    return found / found.square().sum().clamp_min(1e-300).sqrt()


def least_left_out(
    a: Tensor, size: Tensor, c: Tensor, lengths: Sequence[float], powers: Sequence[float] = POWERS
) -> Parameters:
    """Return the parameters with the least leave-one-out error of c (N, q) from a (N, r).

    Directions of a have sizes (r,). Each power but the first is tried with all lengths and the
    best slope.
    """
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(c.shape[1], COMBINATIONS, generator=generator, dtype=torch.float64)
    some, found = spaced(len(a), TUNED_PAIRS), list[tuple[float, Parameters]]()
    tried = a[some], size, c[some] @ mixing
    slopes: Sequence[float] = (1.0,) if lengths == LINEAR else SLOPES
    for power in powers:
        for length, slope in itertools.product(lengths, slopes):
            found.append(_left_out(*tried, length, slope, power))
        slopes = (min(found)[1].slope,)
    best = [parameters for _, parameters in sorted(found)[:FINALISTS]]
    if len(a) <= TUNED_PAIRS or len(best) == 1:
        return best[0]
    some = spaced(len(a), FINAL_PAIRS)
    known, again = c[some] @ mixing, []
    for one in best:
        x = a[some] * weighed(size, one.power)
        root = root_of(kernel_of(x, one.length, one.slope), one.ridge)
        inverse = torch.cholesky_inverse(root)
        left = inverse @ known / inverse.diagonal()[:, None]
        again.append((float(left.square().sum()), one))
    return min(again)[1]


def _left_out(
    a: Tensor, size: Tensor, c: Tensor, length: float, slope: float, power: float
) -> tuple[float, Parameters]:
    """Return the least leave-one-out error of all ridges, and the parameters with it."""
    values, vectors = torch.linalg.eigh(kernel_of(a * weighed(size, power), length, slope))
    turned, squares = vectors.T @ c, vectors.square()
    errors = []
    for ridge in RIDGES:
        inverse = 1 / (values.clamp_min(0) + ridge)
        left = vectors @ (inverse[:, None] * turned) / (squares @ inverse)[:, None]
        errors.append((float(left.square().sum()), Parameters(length, slope, ridge, power)))
    return min(errors)


def kernel_of(x: Tensor, length: float, slope: float) -> Tensor:
    """Return the kernel among inputs (n, r), with that of a constant."""
    near = 0.0 if math.isinf(length) else multiquadric(x / length, x / length)
    return slope * (x @ x.T) + near + CONSTANT


def spaced(size: int, most: int) -> Tensor:
    """Return at most so many of `size` numbers, evenly spaced."""
    return torch.arange(min(size, most)) * size // min(size, most)


def _pairs(bases: KarhunenLoeveBases, functions: Functions) -> tuple[Tensor, Tensor, Tensor]:
    """Return coefficients a (N, r), the size of their modes (r,), and c (N, p), float64."""
    pairs = targets(bases, functions)
    return pairs["a"].double(), bases.input_factor.double().norm(dim=0), pairs["c"].double()


@torch.no_grad()
def best_linear(bases: KarhunenLoeveBases, functions: Functions) -> Tensor:
    """Return the linear operator (p, r) with the least leave-one-out error of these pairs.

    That of a model with a kernel is only what the kernel leaves to it.
    """
    a, size, c = _pairs(bases, functions)
    _, slope, ridge, power = least_left_out(a, size, c, LINEAR, POWERS[:1])
    scale = weighed(size, power)
    weight, _ = solved(a * scale, a, a[:0], c, slope, ridge)
    return (scale[:, None] * weight).T


@torch.no_grad()
def use_kernel(model: Any, functions: Functions, lengths: Sequence[float] = LENGTHS) -> None:
    """Give a Karhunen-Loeve model the operator of these pairs, with one of these lengths."""
    a, size, c = _pairs(model.bases, functions)
    length, slope, ridge, power = least_left_out(a, size, c, lengths)
    scale = weighed(size, power)
    x = a * scale
    linear = math.isinf(length)
    near = (scale / length).float().double()  # pages have places in single precision
    scaled = (a * near).float().double()
    centres = scaled[spaced(len(x), 0 if linear else MAX_CENTRES)]
    weight, weights = solved(x, scaled, centres, c, slope, ridge)
    model.bases.linear_weight = (scale[:, None] * weight).T.float().contiguous()
    model.config = model.config.model_copy(update={"branch": [], "kernel": len(centres)})
    model.network = None
    if not linear:
        model.network = KernelBranch(len(size), c.shape[1], len(centres))
        model.network.scale.copy_(near)
        model.network.centres.copy_(centres)
        model.network.weights.copy_(weights)


def solved(
    x: Tensor, scaled: Tensor, centres: Tensor, c: Tensor, slope: float, ridge: float
) -> tuple[Tensor, Tensor]:
    """Return the linear weight (r, q) and those of the centres (k, q) for outputs (N, q)."""
    if len(centres) == len(x):
        kernel = multiquadric(scaled, centres).addmm_(x, x.T, alpha=slope)
        weights = torch.cholesky_solve(c, root_of(kernel, ridge))
        return slope * x.T @ weights, weights
    root, r = root_of(multiquadric(centres, centres), JITTER), x.shape[1]
    normal = torch.zeros(r + len(centres), r + len(centres), dtype=torch.float64)
    right = torch.zeros(len(normal), c.shape[1], dtype=torch.float64)
    for rows in torch.arange(len(x)).split(BLOCK_ROWS):
        near = multiquadric(centres, scaled[rows])
        near = torch.linalg.solve_triangular(root, near, upper=False)
        features = torch.cat([slope**0.5 * x[rows].T, near])
        normal.addmm_(features, features.T)
        right.addmm_(features, c[rows])
    found = torch.cholesky_solve(right, root_of(normal, ridge))
    weights = torch.linalg.solve_triangular(root.T, found[r:], upper=True)
    return slope**0.5 * found[:r], weights


def root_of(matrix: Tensor, ridge: float) -> Tensor:
    """Return the Cholesky root (k, k) of a matrix with a ridge: ten times that, until there is one.

    Pairs that are alike leave a matrix singular up to rounding.
    """
    while True:
        matrix.diagonal().add_(ridge)
        root, failed = torch.linalg.cholesky_ex(matrix)
        if not failed:
            return root
        ridge *= 10
