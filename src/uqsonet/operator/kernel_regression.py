"""Regression on the training pairs with a kernel: a Gaussian process on what sensors would read.

The coefficients of both fields are predicted from what the sensors of a set would have read of the
pairs, as a Gaussian process with the kernel ``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of
standardised readings: least squares at one end, the process of a squared exponential at the other.
Length l, weight w and the variance of what is no function of the readings are those with the least
leave-one-out error, known in closed form (Rasmussen and Williams, 2006, section 5.4.2). A sample is
the prediction plus the error of a pair left out, in the ratio of their standard deviations: wide
where no pair is near, and of the shape that errors have.

Noise of sensors is added to what they read of the pairs, so errors have their share of it.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from uqsonet.operator.regression import Prediction, Regression, Targets
from uqsonet.runs.functions import Functions

if TYPE_CHECKING:
    from uqsonet.laws.bases import KarhunenLoeveBases

LENGTHS = (0.5, 1.0, 2.0, 4.0, 10.0)
"""Lengths to try, in standard deviations of readings."""

WEIGHTS = (0.1, 1.0, 10.0)
"""Weights of the linear part to try."""

RIDGES = tuple(10.0**k for k in range(-8, 2))
"""Variances of the rest to try, relative to the kernel's."""

COMPARED = 200
"""Number of pairs that kernels are compared on."""

MIN_PAIRS, MAX_PAIRS = 32, 1000
"""Minimum and maximum number of pairs: a new layout of sensors takes time with their cube."""

MAX_VALUES = 1 << 25
"""Maximum number of values of all kept pairs."""

KEPT_LAYOUTS = 4
"""Number of layouts of sensors that are remembered."""


def kept_pairs(functions: Functions) -> tuple[Tensor, Tensor]:
    """Return the first pairs, as many as `MAX_PAIRS` and `MAX_VALUES` allow: (N, n) and (N, M)."""
    rows = functions.kappa_rows, functions.u_rows
    most = min(MAX_PAIRS, max(MIN_PAIRS, MAX_VALUES // (rows[0].shape[1] + rows[1].shape[1])))
    index = np.arange(min(most, functions.size))
    return rows[0].take(index).whole(), rows[1].take(index).whole()


class KernelRegression(Regression):
    """A Gaussian process on what sensors would have read of the training pairs.

    Parameters
    ----------
    bases : KarhunenLoeveBases
        In which fields are answered.
    inputs, outputs : Tensor, shapes (N, n) and (N, M)
        Training pairs on the points of the fields (`kept_pairs`).
    """

    method = "kernel_regression"

    def __init__(self, bases: KarhunenLoeveBases, inputs: Tensor, outputs: Tensor) -> None:
        self.pairs = inputs, outputs
        super().__init__(Functions(bases.fields, "training", *self.pairs), 0.0, bases=bases)
        self._processes: dict[tuple[str, bytes], _Process] = {}

    def _coefficients(self, functions: Functions) -> dict[str, Tensor]:
        """Return coefficients by the modes as files have them: those of a fit are more precise."""
        bases = self.bases
        left = functions.u.double() - bases.output_mean
        c = left @ (bases.output_modes.double() / bases.output_scale.double())
        return {"a": bases.coefficients_of(functions.kappa), "c": c.float()}

    def effective_size(self) -> float:
        """Return infinity: errors are pairs', but their mean and size are in closed form."""
        return torch.inf

    def _predicted(self, side: str, pairs: Tensor, values: Tensor, noise_std: Tensor) -> Prediction:
        """Return what is predicted for one set."""
        mean, std = pairs.mean(0), (pairs.var(0) + noise_std**2).sqrt()
        std = torch.where(std > 1e-9 * pairs.abs().amax(0), std, 1.0)
        rows, values, noise_std = (pairs - mean) / std, (values - mean) / std, noise_std / std
        # Order, units and sign of sensors have no influence, not even on their noise.
        order = np.lexsort((values.abs().numpy(), *rows[:2].abs().numpy()))
        rows, values, noise_std = rows[:, order], values[order], noise_std[order]
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
        process = self._process(side, rows + noise * noise_std * rows[:1].sign())
        mean, std = process.at(values)

        def errors(size: int, generator: torch.Generator) -> Tensor:
            picked = torch.randint(len(process.errors), (size,), generator=generator)
            return std * process.errors[picked]

        return mean, lambda: std**2 * process.covariance, errors

    def _process(self, side: str, rows: Tensor) -> _Process:
        """Return the process of a layout; the last ones are remembered."""
        key = side, hashlib.sha256(rows.numpy().tobytes()).digest()
        if key not in self._processes:
            if len(self._processes) >= KEPT_LAYOUTS:
                self._processes.pop(next(iter(self._processes)))
            self._processes[key] = _Process.of(rows, self._targets[side])
        return self._processes[key]


@dataclass(frozen=True)
class _Kernel:
    """The kernel ``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of readings (m,)."""

    length: float
    weight: float

    def between(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the kernel (N, K) between readings (N, m) and (K, m)."""
        products, m = x @ y.T, max(1, x.shape[1])
        apart = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * products
        near = torch.exp(apart.clamp_min(0) / (-2 * m * self.length**2))
        return 1 + self.weight / m * products + near


def _best(rows: Tensor, targets: Tensor) -> tuple[_Kernel, float]:
    """Return the kernel and ridge with the least leave-one-out error of targets (N, q)."""
    best = None
    for kernel in itertools.starmap(_Kernel, itertools.product(LENGTHS, WEIGHTS)):
        square = kernel.between(rows, rows)
        size = float(square.diagonal().mean())
        values, vectors = torch.linalg.eigh(square)
        turned, squares = vectors.T @ targets, vectors.square()
        for ridge in RIDGES:
            inverse = 1 / (values.clamp_min(0) + ridge * size)
            left = vectors @ (inverse[:, None] * turned) / (squares @ inverse)[:, None]
            error = float(left.square().mean())
            if best is None or error < best[0]:
                best = error, kernel, ridge * size
    assert best is not None
    return best[1:]


@dataclass(frozen=True)
class _Process:
    """A Gaussian process of targets on what the sensors of one layout would read of the pairs.

    Attributes
    ----------
    kernel : _Kernel
    ridge : float
    rows : Tensor, shape (N, m)
    inverse : Tensor, shape (N, N)
        Of the covariance of the pairs.
    mean : Tensor, shape (q,)
    weights, errors : Tensor, shape (N, q)
        Weights of the pairs; their errors when left out, over their standard deviation.
    """

    kernel: _Kernel
    ridge: float
    rows: Tensor
    inverse: Tensor
    mean: Tensor
    weights: Tensor
    errors: Tensor

    @classmethod
    def of(cls, rows: Tensor, targets: Targets) -> _Process:
        """Choose kernel and ridge on some pairs, and fit the process to all."""
        kernel, ridge = _best(rows[:COMPARED], targets.combined[:COMPARED])
        square = kernel.between(rows, rows)
        square.diagonal().add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(square))
        weights = inverse @ targets.left.double()
        errors = weights / inverse.diagonal().sqrt()[:, None]
        return cls(kernel, ridge, rows, inverse, targets.mean, weights, errors)

    def at(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (q,) and the standard deviation (), relative to errors, for readings (m,)."""
        one = values[None]
        cross = self.kernel.between(one, self.rows)[0]
        own = self.kernel.between(one, one)[0, 0] + self.ridge
        # Rounding aside, what is left is at least the ridge.
        left = (own - cross @ self.inverse @ cross).clamp_min(self.ridge)
        return self.mean + cross @ self.weights, left.sqrt()

    @cached_property
    def covariance(self) -> Tensor:
        """Covariance (q, q) of the errors."""
        return self.errors.T @ self.errors / len(self.errors)
