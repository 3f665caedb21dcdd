"""Reference moments where u is affine in the observed Gaussian input: no sampling of posteriors.

Poisson (4.2): the posterior of u is Gaussian, in closed form. 2D SDE (4.4): given k it is, and the
law of k does not depend on the sensors on f. With responses ``U(x) = (G_k phi_1, G_k phi_2, ...)``
to a basis of sources, only ``E[U(x)]`` and ``E[U(x) U(x)^T]`` over the prior of k are needed: they
serve every observation set, and the symmetries of the square multiply each sampled k by eight.

Where u is affine in a Gaussian input, ``u = G (mean + sum_j xi_j phi_j)``; elliptic operators
smooth, so of a thousand phi_j a rotation leaves tens that matter (`Directions`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import Problem
from uqsonet_study.reference.moments import Moments, gaussian_moments

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


BATCH = 64  # coefficients whose responses are held together
LAWS = 32  # observation sets whose moments are taken together
FLUSH = 16  # batches summed in single precision before they join the double-precision sums
SOLVE_DTYPE = torch.float32
"""Responses are solved to 1e-5 (TOLERANCE of the solver), far below the sampling error over k."""


class ClosedForm:
    """Exact moments of u under Gaussian laws of the input of a fixed affine operator.

    Parameters
    ----------
    problem : Problem
        Affine in kappa, without an unobserved input.
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    """

    def __init__(self, problem: Problem, vectors: Tensor) -> None:
        field, self._vectors = problem.gaussian_prior, vectors
        every = torch.cat([field.mean[None], field.fluctuation(torch.eye(field.rank).double())])
        u = problem.solve_affine(None, every)[0]
        self._response = u[1:]
        self._prior = gaussian_moments(u[0], self._response.T, vectors)

    def moments(self, law: GaussianLaw) -> Moments:
        """Return the moments: those of the prior, less what the sensors take away."""
        taken = law.variance_reduction.sqrt()[:, None] * law.directions
        shift, factor = law.mean @ self._response, (taken @ self._response).T
        return self._prior - gaussian_moments(-shift, factor, self._vectors)


class OperatorMoments:
    """First and second moments of a random affine operator, over the prior of its coefficient.

    Parameters
    ----------
    problem : Problem
        Affine in kappa, with an unobserved input.
    vectors : Tensor, shape (n, k)
        Test vectors of the modes.
    size : int
        Coefficients sampled (each counts once for every symmetry of the problem).
    """

    def __init__(
        self, problem: Problem, vectors: Tensor, generator: np.random.Generator, size: int
    ) -> None:
        self._problem, self._vectors, self._size = problem, vectors, size
        self._directions = Directions(problem)
        self._sources, self._own, self._maps = _closed_sources(
            self._directions.sources, problem.symmetries()
        )
        q, (n, k) = len(self._sources), vectors.shape
        self._first = torch.zeros(n, q, dtype=torch.float64)
        self._second = torch.zeros(n, q, q, dtype=torch.float64)
        self._recent = torch.zeros(n, q, q, dtype=SOLVE_DTYPE)
        self._modes = torch.zeros(q * k, q * k, dtype=torch.float64)
        for batch, start in enumerate(range(0, size, BATCH)):
            self._add(generator, min(BATCH, size - start))
            if batch % FLUSH == FLUSH - 1 or start + BATCH >= size:
                self._second += self._recent
                self._recent.zero_()
        count = size * len(self._maps)
        for sums in (self._first, self._second, self._modes):
            sums /= count

    def _add(self, generator: np.random.Generator, size: int) -> None:
        """Take in `size` sampled coefficients."""
        problem = self._problem
        assert problem.unobserved is not None
        xi = torch.from_numpy(generator.standard_normal((size, problem.unobserved.rank)))
        other = problem.unobserved_transform.inverse(problem.unobserved.field(xi)).to(SOLVE_DTYPE)
        u = problem.solve_affine(other, self._sources.to(SOLVE_DTYPE))  # (B, q, n)
        by_point = u.permute(2, 1, 0).contiguous()  # (n, q, B)
        self._first += by_point.sum(2)
        self._recent.baddbmm_(by_point, by_point.transpose(1, 2))
        for places, mixing in self._maps:
            modes = mixing @ (u @ self._vectors[torch.argsort(places)].to(SOLVE_DTYPE))
            self._modes += modes.flatten(1).double().T @ modes.flatten(1).double()

    def moments(self, laws: list[GaussianLaw]) -> list[Moments]:
        """Return moments of u for posteriors of the observed input."""
        sources = [self._source_law(law) for law in laws]
        means = self._expectation(self._first, [b for b, _ in sources])
        squares = self._expectation(self._second, [second for _, second in sources])
        q, k = len(self._sources), self._vectors.shape[1]
        by_source = self._modes.view(q, k, q, k).permute(1, 3, 0, 2).reshape(k * k, q * q)
        found = []
        for mean, square, (_, second) in zip(means, squares, sources, strict=True):
            cross = (by_source @ second.flatten()).view(k, k)
            mode_mean = self._vectors.T @ mean
            covariance = cross - torch.outer(mode_mean, mode_mean)
            found.append(Moments(mean, square - mean**2, mode_mean, covariance))
        return found

    def _source_law(self, law: GaussianLaw) -> tuple[Tensor, Tensor]:
        """Return mean (q,) and second moment (q, q) of the source in coefficients of `sources`."""
        basis = self._directions.basis
        b = self._own[0] + (law.mean @ basis) @ self._own[1:]
        root = law.spread(basis.T.contiguous()).T @ self._own[1:]
        return b, torch.outer(b, b) + root.T @ root

    def _expectation(self, sums: Tensor, weights: list[Tensor]) -> list[Tensor]:
        """Contract sums over coefficients (n, q, ...) with weights (q, ...), for each (n,).

        The symmetries act on the weights, which are few, rather than on the sums.
        """
        found: list[Tensor] = []
        for start in range(0, len(weights), LAWS):
            some = weights[start : start + LAWS]
            total = torch.zeros(len(sums), len(some), dtype=torch.float64)
            for places, mixing in self._maps:
                turn = mixing.double().T
                turned = [turn @ w if w.ndim == 1 else turn @ w @ turn.T for w in some]
                columns = torch.stack([w.flatten() for w in turned], dim=1)
                total += (sums.flatten(1) @ columns)[places]
            found.extend(total.T.contiguous())
        return found


def _closed_sources(
    sources: Tensor, symmetries: list[Tensor]
) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
    """Return sources whose span every symmetry maps to itself, and how it acts on them.

    Parameters
    ----------
    sources : Tensor, shape (1 + J, n)
    symmetries : list of Tensor of int, each (n,)
        Permutations of grid points that leave the law of the operator as it is.

    Returns
    -------
    closed : Tensor, shape (q, n)
        A basis of the span of all images.
    own : Tensor, shape (1 + J, q)
        Coefficients of `sources` in it.
    maps : list of (Tensor (n,), Tensor (q, q))
        For each symmetry, u of the moved coefficient: ``mixing @ u[:, places]``.
    """
    images = torch.cat([sources[:, places] for places in symmetries])
    # Each source counts by its own size; images that are combinations of others fall out.
    _, values, right = torch.linalg.svd(
        images / images.norm(dim=1, keepdim=True), full_matrices=False
    )
    closed = right[values > 1e-6 * values[0]]
    maps = []
    for places in symmetries:
        back = torch.argsort(places)
        # For k moved by `places`, a source f answers as the unmoved k answers f moved back.
        maps.append((places, (closed[:, back] @ closed.T).to(SOLVE_DTYPE)))
    return closed, sources @ closed.T, maps
