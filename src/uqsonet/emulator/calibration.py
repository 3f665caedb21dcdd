"""Conformal bands: factors that make a band hold what it promises, from runs kept for this alone.

The calibration runs are observed with the very sensors that a user asks about, so nothing has to be
assumed about layouts, numbers of sensors or the law that the model uses. What has to hold is that
the new function and the calibration runs are exchangeable (for example, all drawn from one law),
and that sensor places were not chosen by looking at the function.

- For single points, the factor is the smallest for which the expected share of points outside is
  at most ``1 - level`` (conformal risk control: Angelopoulos et al., ICLR 2024, theorem 1).
- For whole functions, it is the split-conformal quantile of the largest ratio (Vovk et al. 2005;
  Diquigiovanni et al., J. Multivariate Anal. 189, 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.seeds import numpy_generator

MAX_POINTS = 400
"""Maximum number of output points at which calibration runs are kept."""

MAX_VALUES = 1 << 24
"""Maximum number of values of all calibration inputs: fewer runs are kept where each has many."""


@dataclass(frozen=True)
class Calibration:
    """Runs that nothing was fitted to.

    Attributes
    ----------
    inputs : Tensor, shape (n, points)
        Input functions as a model sees them, float32.
    outputs : Tensor, shape (n, k)
        Outputs at some points, as a model sees them, float32.
    columns : Tensor of int, shape (k,)
        Numbers of these points.
    """

    inputs: Tensor
    outputs: Tensor
    columns: Tensor

    @classmethod
    def of(cls, inputs: Tensor, outputs: Tensor, seed: int) -> Calibration:
        """Return what is kept of calibration runs: (n, points) of the inputs and the outputs."""
        runs = min(len(inputs), max(20, MAX_VALUES // inputs.shape[1]))
        drawn = numpy_generator(seed, "calibration", "points").permutation(outputs.shape[1])
        columns = torch.from_numpy(np.sort(drawn[:MAX_POINTS]))
        return cls(inputs[:runs].clone(), outputs[:runs, columns].clone(), columns)

    def __len__(self) -> int:
        return len(self.inputs)


def ratios(median: Tensor, lower: Tensor, upper: Tensor, truth: Tensor) -> Tensor:
    """Return by which factor a band must be widened about its median to hold the truth.

    Parameters
    ----------
    median, lower, upper, truth : Tensor, shape (n, k)

    Returns
    -------
    Tensor, shape (n, k)
        NaN where a band has no width (a boundary condition): such points do not count.
    """
    side = torch.where(truth < median, median - lower, upper - median)
    width = upper - lower
    free = width > 1e-9 * width.amax(dim=1, keepdim=True)
    factors = (truth - median).abs() / side.clamp_min(1e-12 * width.amax())
    return torch.where(free, factors, torch.nan)


def pointwise_factor(found: Tensor, level: float) -> float:
    """Return the factor for single points from `ratios` (n, k).

    Raises
    ------
    ObservationError
        If there are too few runs for the level.
    """
    n, allowed = len(found), 1 - level
    _require(n, level)
    free = ~found.isnan()
    share = free.double() / free.sum(1, keepdim=True).clamp_min(1)
    values, order = found[free].sort()
    weights = share[free][order]
    # Risk above each value: what remains outside if the factor is that value.
    outside = weights.sum() - weights.cumsum(0)
    fits = (outside + 1) / (n + 1) <= allowed + 1e-12
    return float(values[int(fits.double().argmax())])


def function_factor(found: Tensor, level: float) -> float:
    """Return the factor for whole functions from `ratios` (n, k).

    Raises
    ------
    ObservationError
        If there are too few runs for the level.
    """
    n = len(found)
    _require(n, level)
    largest = torch.nan_to_num(found, nan=0.0).amax(1).sort().values
    return float(largest[math.ceil((n + 1) * level - 1e-9) - 1])


def _require(runs: int, level: float) -> None:
    needed = math.ceil(level / (1 - level) - 1e-9)
    if runs < needed:
        raise ObservationError(
            f"a conformal band of level {level:g} needs {needed} calibration runs, this model has "
            f"{runs}; kind='plain' gives the band of the law"
        )
