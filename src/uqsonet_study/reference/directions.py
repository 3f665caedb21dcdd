"""Sources that matter: the few directions of a Gaussian source that carry the variance of u.

Where u is affine in a Gaussian input, ``u = G (mean + sum_j xi_j phi_j)``; elliptic operators
smooth, so of a thousand phi_j a rotation leaves tens that matter. Their responses, for one value of
the other input, are all that closed-form moments need.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import Problem

NEGLECTED = 1e-4
"""Largest share of the variance of u (at the mean of the other input) that is left out: an error
of 5e-5 of the standard deviation."""


class Directions:
    """Leading directions of the affine input of a problem.

    Attributes
    ----------
    field : GaussianField
        The law of the affine input.
    basis : Tensor, shape (r, J)
        Orthonormal directions in its coordinates, by falling variance of u.
    sources : Tensor, shape (1 + J, n)
        Its mean, and the fields along the directions.
    typical : Tensor, shape (1, n), or None
        The other input at its prior mean, where the directions are found.
    """

    def __init__(self, problem: Problem, neglected: float = NEGLECTED) -> None:
        self._problem = problem
        field, other = problem.gaussian_prior, problem.unobserved
        transform = problem.unobserved_transform
        if problem.affine == "unobserved":
            field, other, transform = other, field, problem.transform
        assert field is not None
        self.field: GaussianField = field
        every = field.fluctuation(torch.eye(field.rank, dtype=torch.float64))
        self.typical = None if other is None else transform.inverse(other.mean)[None]
        u = problem.solve_affine(self.typical, every)[0]
        values, vectors = torch.linalg.eigh(u @ u.T)
        values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
        left_out = 1 - values.cumsum(0) / values.sum()
        count = int((left_out > neglected).sum()) + 1
        self.basis = vectors[:, :count].contiguous()
        self.sources = torch.cat([field.mean[None], self.basis.T @ every])

    @property
    def size(self) -> int:
        """Number of sources."""
        return len(self.sources)

    def responses(self, other: Tensor | None) -> Tensor:
        """Return u for every source, (B, 1 + J, n), given B values of the other input (B, n)."""
        return self._problem.solve_affine(other, self.sources)
