"""A control variate: a quadratic map of the input's coordinates with exact posterior moments.

Whatever the map is, an estimate with it stays unbiased; the better it predicts u, the less is left
to sampling. It is ``mean + B C' f(xi)`` with output modes B and the features f: the leading
coordinates themselves, and all products of two of the few directions in which u varies most. Under
a Gaussian law of the coordinates (every posterior is one) mean and covariance of f are known in
closed form, by Isserlis' theorem.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor

from uqsonet.gauss.blocks import RunningMoments, least_squares
from uqsonet.gauss.gaussian import GaussianLaw
from uqsonet_study.reference.moments import Moments, gaussian_moments

COORDINATES = 200
"""Coordinates of the input that the map reads: the leading ones."""

DIRECTIONS = 30
"""Directions whose products are features: 465 of them."""

OUTPUT_MODES = 64
"""Principal components of u that are predicted; what they leave out is sampled."""

PER_FEATURE = 8
"""Fewer samples for each feature would fit noise: then there are fewer features."""

MODE_SAMPLES = 500
"""Samples that these components come from, or one block if that has more."""


class Features:
    """Coordinates, and products of some linear combinations of them.

    Parameters
    ----------
    index : Tensor of int, shape (c,)
        The coordinates read.
    directions : Tensor, shape (c, q)
        Orthonormal columns.
    """

    def __init__(self, index: Tensor, directions: Tensor) -> None:
        self._index, self._directions = index, directions
        self._pairs = torch.triu_indices(directions.shape[1], directions.shape[1])

    def of(self, xi: Tensor) -> Tensor:
        """Return the features (B, c + q (q + 1) / 2) of coordinates (B, r)."""
        some = xi[:, self._index]
        along = some @ self._directions
        first, second = self._pairs
        return torch.cat([some, along[:, first] * along[:, second]], dim=1)

    def moments(self, law: GaussianLaw) -> tuple[Tensor, Tensor]:
        """Return their mean (f,) and covariance (f, f) under a law of the coordinates."""
        # The covariance of some coordinates is that of all, restricted.
        seen, mean = law.directions[:, self._index], law.mean[self._index]
        taken = law.variance_reduction[:, None] * seen
        covariance = torch.eye(len(mean), dtype=mean.dtype) - seen.T @ taken
        with_along = covariance @ self._directions
        m, c = mean @ self._directions, self._directions.T @ with_along
        i, j = self._pairs
        products = m[i] * m[j] + c[i, j]
        cross = with_along[:, i] * m[j] + with_along[:, j] * m[i]
        square = m[:, None] * m
        four = sum(
            c[p][:, r] * (square[s][:, t] + 0.5 * c[s][:, t])
            for p, s in ((i, j), (j, i))
            for r, t in ((i, j), (j, i))
        )
        assert isinstance(four, Tensor)
        whole = torch.cat([torch.cat([covariance, cross], 1), torch.cat([cross.T, four], 1)])
        return torch.cat([mean, products]), whole


class Control:
    """The map, fitted to samples by least squares.

    Parameters
    ----------
    samples : iterable of (Tensor, Tensor)
        Blocks of coordinates (B, r) and functions u (B, n); the first `MODE_SAMPLES` of them give
        the output modes.
    index : Tensor of int, shape (c,)
        The coordinates read, by falling variance.
    vectors : Tensor, shape (n, k)
        Test vectors of the modes whose moments are wanted.
    """

    def __init__(
        self, samples: Iterable[tuple[Tensor, Tensor]], index: Tensor, vectors: Tensor
    ) -> None:
        blocks, first = iter(samples), []
        while sum(len(xi) for xi, _ in first) < MODE_SAMPLES and (block := next(blocks, None)):
            first.append(block)
        u = torch.cat([functions for _, functions in first])
        self._vectors, self._mean = vectors, u.mean(0)
        right = torch.linalg.svd(u - self._mean, full_matrices=False)[2]
        self._modes = right[:OUTPUT_MODES].T.contiguous()
        kept = [(xi, self._coordinates(functions)) for xi, functions in chain(first, blocks)]
        inputs, outputs = (torch.cat(parts) for parts in zip(*kept, strict=True))
        most = max(1, len(inputs) // PER_FEATURE)
        index = index[: max(1, most // 2)]
        weight = least_squares([(_with_one(inputs[:, index]), outputs)])[1:]
        # Combinations of coordinates in the order in which they move u.
        left = torch.linalg.svd(weight, full_matrices=False)[0]
        products = [q * (q + 1) // 2 for q in range(DIRECTIONS + 1)]
        count = bisect_right(products, most - len(index)) - 1
        self._features = Features(index, left[:, :count])
        features = _with_one(self._features.of(inputs))
        self._offset, *weights = least_squares([(features, outputs)])
        self._weights = torch.stack(weights)

    def _coordinates(self, u: Tensor) -> Tensor:
        return (u - self._mean) @ self._modes

    def of(self, xi: Tensor) -> Tensor:
        """Return the control (B, c) of coordinates (B, r), in coefficients of its output modes."""
        return self._offset + self._features.of(xi) @ self._weights

    def functions(self, coefficients: Tensor) -> Tensor:
        """Return functions (B, n) with these coefficients (B, c)."""
        return self._mean + coefficients @ self._modes.T

    def sampled(self, coefficients: RunningMoments) -> Moments:
        """Return moments of functions from those of their coefficients."""
        return self._moments(coefficients.mean, coefficients.covariance)

    def exact(self, law: GaussianLaw) -> Moments:
        """Return its moments under a law of the coordinates, in closed form."""
        mean, covariance = self._features.moments(law)
        return self._moments(
            self._offset + mean @ self._weights, self._weights.T @ covariance @ self._weights
        )

    def _moments(self, mean: Tensor, covariance: Tensor) -> Moments:
        """Return moments of functions whose coefficients have these."""
        values, vectors = torch.linalg.eigh(covariance)
        factor = self._modes @ (vectors * values.clamp_min(0).sqrt())
        return gaussian_moments(self._mean + self._modes @ mean, factor, self._vectors)


def _with_one(inputs: Tensor) -> Tensor:
    """Return inputs (B, c) with a leading column of ones, whose weights are the offset."""
    return torch.cat([torch.ones(len(inputs), 1, dtype=inputs.dtype), inputs], dim=1)
