"""What a random operator leaves open (sections 4.3, 4.4): the law of u given the whole of kappa.

``u = W a + r`` with input coefficients a ~ N(0, I) and a residual r that is random given a. Its
covariance depends on kappa: where k is small, an unseen source moves u more. To first order
``C(a) = C_0 + sum_j a_j S_j``, and ``S_j = E[a_j r r^T]`` because the coefficients are orthonormal.
Given an observation set, C is linear in a, so ``E[C(a) | O] = C(E[a | O])`` needs no sampling.

The shape of r need not be Gaussian: the solution of 4.4 is skewed and has heavy tails, as its
coefficient is lognormal. So r is drawn as in a residual bootstrap (Efron, Ann. Statist. 7, 1979):
residuals of training pairs are standardised and kept, and a root of C gives one of them, picked at
random, the covariance that the observations ask for.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.gauss.blocks import RowBlocks
from uqsonet.operator.config import KEPT

ROWS = 2048
"""Pairs in one batch of outer products."""

NEGLIGIBLE = 1e-6
"""Directions with a smaller std, relative to the largest, are rounding."""


def residual_covariance(
    a: Float[Tensor, "N r"], c: Float[Tensor, "N p"], weight: Float[Tensor, "p r"]
) -> Float[Tensor, "p p"]:
    """Return the covariance C_0 of what ``weight`` does not explain of c, float64.

    Parameters
    ----------
    a, c : Tensor
        Standardised coefficients of inputs and outputs.
    weight : Tensor
    """
    covariance = torch.zeros(c.shape[1], c.shape[1], dtype=torch.float64)
    rows = RowBlocks.of(a).default_rows()
    for left, right in zip(a.split(rows), c.split(rows), strict=True):
        unexplained = right.double() - left.double() @ weight.double().T
        covariance += unexplained.T @ unexplained
    return covariance / len(c)


def residual_slopes(
    a: Float[Tensor, "N r"], c: Float[Tensor, "N p"], weight: Float[Tensor, "p r"]
) -> Float[Tensor, "r p p"]:
    """Return the slopes S_j of the residual's covariance along the input coefficients, float64.

    Each is an average over N pairs and shrunk by the share of its squared norm that is not
    sampling noise, down to zero where all of it may be.
    """
    r, p = a.shape[1], c.shape[1]
    slopes = torch.zeros(r, p * p, dtype=torch.float64)
    noise = torch.zeros(r, dtype=torch.float64)
    for left, right in zip(a.split(ROWS), c.split(ROWS), strict=True):
        inputs = left.double()
        unexplained = right.double() - inputs @ weight.double().T
        outer = unexplained[:, :, None] * unexplained[:, None, :]
        slopes += inputs.T @ outer.flatten(1)
        # The variance of one pair's a_j r r^T, summed over its entries.
        noise += inputs.square().T @ unexplained.square().sum(1).square()
    slopes, noise = slopes / len(a), noise / len(a) ** 2
    share = 1 - noise / slopes.square().sum(1).clamp_min(1e-300)
    return (slopes * share.clamp_min(0)[:, None]).view(r, p, p)


def standardised_residuals(
    a: Float[Tensor, "N r"], c: Float[Tensor, "N p"], weight: Float[Tensor, "p r"]
) -> Float[Tensor, "k p"]:
    """Return `KEPT` residuals of the first pairs, with mean zero and covariance I, float64.

    Each is multiplied by the inverse of the symmetric root of their covariance. Of all roots this
    one changes them least. So a residual that is multiplied by the root of a similar covariance
    comes out close to what it was. Directions in which nothing is left open stay zero.
    """
    rows = torch.arange(KEPT) % len(a)
    r = c[rows].double() - a[rows].double() @ weight.double().T
    r = r - r.mean(0)
    values, vectors = torch.linalg.eigh(r.T @ r / len(r))
    seen = values > NEGLIGIBLE**2 * values[-1]
    return (r @ vectors * torch.where(seen, values, torch.inf).rsqrt()) @ vectors.T
