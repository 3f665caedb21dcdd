"""The law of functions given sensors, to be asked anywhere.

Every method's posterior lives in the span of a basis, ``u(y) = offset(y) + sum_n c_n t_n(y)``, so
moments need only those of the coefficients and a sample is a coherent function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.numbers import real_numbers
from uqsonet.fields.stacked import Domain
from uqsonet.gauss.given import Given, Separate, count_of, fixed, spread

Basis = Callable[[Tensor], tuple[Tensor, Tensor]]  # (M, d) to offset (M,) and basis (M, p)


class Posterior:
    """The conditional distribution of functions for one set of sensors or a batch of B sets.

    Results for a single set have no batch dimension: `mean` and `std` are (M,) or (B, M), `sample`
    is (n, M) or (B, n, M). Units are those of the operator's output.

    Parameters
    ----------
    grid : Domain
        Of the functions, and where they are asked by default.
    basis : callable
        Maps queries (M, d) to offset (M,) and basis (M, p) there.
    single : bool
    law : Given
        Of the coefficients.
    """

    def __init__(self, grid: Domain, basis: Basis, single: bool, law: Given) -> None:
        self._grid, self._basis, self.single, self.law = grid, basis, single, law

    def of(self, law: Given) -> Posterior:
        """Return the same functions under another law of the coefficients."""
        return Posterior(self._grid, self._basis, self.single, law)

    def basis(self, queries: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return offset (M,) and basis (M, p) of the expansion at queries (M, d)."""
        if queries is None:
            points = self._grid.points()
        else:
            points = real_numbers(queries, "queries", None)
            points = points[:, None] if points.ndim == 1 else points
            if points.ndim != 2 or points.shape[1] != self._grid.dim:
                raise ObservationError(
                    f"queries must have shape (M, {self._grid.dim}), found {tuple(points.shape)}"
                )
            if not bool(points.isfinite().all()):
                raise ObservationError("queries must be finite (found NaN or inf)")
            self._grid.require_inside(points, "query")
        return self._basis(points)

    def _strip(self, batch: Tensor) -> Tensor:
        return batch[0] if self.single else batch

    def mean(self, queries: Tensor | None = None) -> Tensor:
        """Return the posterior mean at queries (M, d); by default on the problem's grid."""
        offset, basis = self.basis(queries)
        return self._strip(offset + self.law.mean @ basis.T)

    def std(self, queries: Tensor | None = None) -> Tensor:
        """Return the posterior standard deviation of u (no decoder noise is added)."""
        _, basis = self.basis(queries)
        return self._strip(spread(basis, self.law.moments()[1]))

    def sample(
        self, size: int, queries: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw `size` functions from the posterior (Algorithm 1, inference).

        Parameters
        ----------
        size : int
        queries : Tensor, shape (M, d), optional
        generator : torch.Generator, optional
            Without one, a fixed seed is used and repeated calls agree.
        """
        size = count_of(size)
        offset, basis = self.basis(queries)
        return self._strip(offset + self.law.sample(size, generator or fixed()).double() @ basis.T)


@dataclass(frozen=True)
class Joint:
    """The law of input and output given sensors of both.

    Samples of both by generators of the same state, and of the same size, belong together.
    """

    output: Posterior
    input: Posterior | None
    """Of the transformed input; None where an operator knows no law of it."""
    effective_size: Tensor
    """Independent samples (B,) that the answer is worth; infinite where nothing was sampled."""
    tail: Tensor
    """Probability (B,) of readings of the output as far from their mean as these, given those of
    the input, by the normal law of their mean and covariance."""

    @classmethod
    def exact(cls, output: Posterior, input: Posterior | None, batch: int) -> Joint:
        """Return laws that need no samples, of so many sets."""
        ones = torch.ones(batch, dtype=torch.float64)
        return cls(output, input, ones * math.inf, ones)

    @classmethod
    def together(cls, alone: Sequence[Joint]) -> Joint:
        """Return the laws of sets that were conditioned one by one."""
        output, input = (
            sides[0].of(Separate([side.law for side in sides]))
            for sides in ([one.output for one in alone], [one.input for one in alone if one.input])
        )
        sizes = torch.cat([one.effective_size for one in alone])
        return cls(output, input, sizes, torch.cat([one.tail for one in alone]))


def levels_of(levels: object) -> np.ndarray:
    """Return levels of quantiles that a caller asks for, checked."""
    q = real_numbers(levels, "levels").numpy()
    if q.ndim > 1 or not q.size or not bool(((q >= 0) & (q <= 1)).all()):
        raise ObservationError(f"levels must be numbers in [0, 1], found {levels!r}")
    return q
