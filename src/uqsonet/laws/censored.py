"""Correlations of Gaussian fields of which only values between two cuts are seen."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from uqsonet.laws.class_rules import bivariate_normal

CUT_LEVELS = 32  # cuts are rounded to this number of shares
NO_CUT = 9.0  # a cut where there is none, in standard deviations: no value is beyond it
TABLE = 1001  # angles of a table of correlations


class ClippedNormals:
    """Correlations of standard normals, of those of their values clipped at cuts.

    The covariance of two clipped values rises with the correlation r of the normals at a rate that
    is the probability of both between their cuts (Price, IRE Trans. Inf. Theory 4, 1958). Cuts
    (n, 2) are rounded, so that a few tables of this covariance do for all points.
    """

    def __init__(self, cuts: Tensor) -> None:
        shares = (CUT_LEVELS * torch.special.ndtr(cuts)).round() / CUT_LEVELS
        levels, self.level = shares.unique(dim=0, return_inverse=True)
        self._ends = torch.special.ndtri(levels).clamp(-NO_CUT, NO_CUT)
        self._angle = torch.linspace(-math.pi / 2, math.pi / 2, TABLE, dtype=torch.float64)
        self._tables: dict[tuple[int, int], Tensor] = {}

    def correlation(self, seen: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return correlations for those of clipped values at points of these levels."""
        found, (first, second) = torch.empty_like(seen), torch.broadcast_tensors(first, second)
        pairs = first * len(self._ends) + second
        for pair in pairs.unique().tolist():
            here = pairs == pair
            of_clipped = self._table(*divmod(pair, len(self._ends)))
            normals = np.interp(seen[here].numpy(), of_clipped.numpy(), self._angle.sin().numpy())
            found[here] = torch.from_numpy(normals)
        return found

    def _table(self, i: int, j: int) -> Tensor:
        """Return correlations of clipped values at two levels by the angle: the sine is r."""
        if (i, j) not in self._tables:
            variances = [self._covariances(k, k)[-1] for k in (i, j)]
            self._tables[i, j] = self._covariances(i, j) / (variances[0] * variances[1]).sqrt()
        return self._tables[i, j]

    def _covariances(self, i: int, j: int) -> Tensor:
        r, rate = self._angle.sin(), torch.zeros_like(self._angle)
        signs = -1.0, 1.0  # of the lower and the upper cut
        for first, h in zip(signs, self._ends[i], strict=True):
            for second, k in zip(signs, self._ends[j], strict=True):
                rate += first * second * bivariate_normal(h, k, r)
        rate *= self._angle.cos()
        steps = (rate[1:] + rate[:-1]) / 2 * (self._angle[1] - self._angle[0])
        total = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])
        return total - total[TABLE // 2]
