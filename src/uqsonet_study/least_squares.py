"""Least squares on all training pairs at the sensors: the column *Regression* of the tables.

Fields f of the training pairs are regressed on what the sensors would have read of them,
``B = Cov(f, y) (Cov(y, y) + Sigma + lambda)^-1``. A sample is the prediction for the readings plus
the residual of a training pair chosen at random (Matheron's rule with training functions): exact
for many pairs where the joint law is Gaussian, and with the shape of the pairs where it is not. The
ridge lambda is the one with the least leave-one-out error, known in closed form (Golub, Heath and
Wahba, Technometrics 21, 1979); a residual is that of the pair left out, too. It is what every
trained method has to beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from uqsonet.fields.grid import Values
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.given import Given, Moments, Separate
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Conditioned
from uqsonet.operator.closed_form import INPUT_MODES, OUTPUT_MODES, fit_bases, sized_bases, targets
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors

Set = tuple[Tensor, Tensor, Tensor]
"""What a set's sensors read of all pairs (N, m), their values (m,) and their noise (m,)."""

RIDGES = tuple(10.0**-k for k in range(12, 0, -1))
"""Ridges to try, relative to the largest eigenvalue of the readings' covariance."""

COMBINATIONS = 48
"""Number of random combinations of the targets that ridges are compared on."""

PAIRS_TOGETHER = 4096
"""Number of pairs in one batch, where all pairs would need too much memory."""


class LeastSquares(Conditioned):
    """Least squares on training pairs at the sensors.

    Parameters
    ----------
    functions : Functions
        Training pairs; they are kept.
    noise_std : float
        Default noise of sensors of the input.
    input_modes, output_modes : int
        Maximum numbers of modes in which fields are answered.
    bases : KarhunenLoeveBases, optional
        Fitted bases to answer in, instead of the pairs' own.
    """

    method, reads_functionals = "regression", True

    def __init__(
        self, functions: Functions, noise_std: float, input_modes: int = INPUT_MODES,
        output_modes: int = OUTPUT_MODES, bases: KarhunenLoeveBases | None = None,
    ) -> None:  # fmt: skip
        self.fields, self.noise_std = functions.fields, noise_std
        self.bases = bases or sized_bases(functions, input_modes, output_modes)
        if bases is None:
            fit_bases(self.bases, functions, linear=False)
        coefficients = targets(self.bases, functions)
        # Ridges are compared by errors of fields: coefficients of the input are standardised.
        sizes = self.bases.input_factor.norm(dim=0).float(), torch.ones(coefficients["c"].shape[1])
        self._targets = {
            side: Targets.of(coefficients[name], size)
            for side, name, size in zip(("input", "output"), "ac", sizes, strict=True)
        }
        self._inputs, self._u_rows = _by_point(functions.transformed_inputs()), functions.u_rows

    @cached_property
    def _outputs(self) -> Values:
        """Training outputs (M, N)."""
        return _by_point(self._u_rows)

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of both sides given checked sensors of both."""
        self.require_gaussian(noise)
        sets = self._readings(seen, read)
        output, input = (self._posterior(side, sets, seen.single) for side in ("output", "input"))
        every = torch.full((len(sets),), float(len(self._u_rows)), dtype=torch.float64)
        return Joint(output, input, every, torch.ones_like(every))

    def _readings(self, seen: Sensors, read: Sensors | None) -> list[Set]:
        """Return each set's readings, and what its sensors would have read of every pair."""
        grids = self.fields.input.grid, self.fields.training_grid()[0]
        forward = self.fields.input.transform.forward
        sets = []
        for b in range(len(seen)):
            parts = [(grids[0], self._inputs, seen, self.noise_std, forward)]
            if read is not None:
                parts.append((grids[1], self._outputs, read, 0.0, lambda values: values))
            pairs, values, stds = [], [], []
            for grid, functions, sensors, default, change in parts:
                own = sensors.alone(b)
                pairs.append(own.read(grid, functions)[0])
                values.append(change(own.values[0].double()))
                stds.append(own.noise(default)[0])
            joined = torch.cat(pairs).T.double()
            sets.append((joined, torch.cat(values), torch.cat(stds)))
        return sets

    def _posterior(self, side: str, sets: list[Set], single: bool) -> Posterior:
        """Return the law of the fields of one side."""
        grid, basis = getattr(self.fields, side).grid, getattr(self.bases, f"{side}_basis")
        laws = [LeftOver(partial(_OneSet, *one, self._targets[side])) for one in sets]
        return Posterior(grid, basis, single, Separate(laws))


def _by_point(rows: RowBlocks) -> Values:
    """Return a matrix (N, n) as (n, N), float32: a sensor reads all pairs at one place.

    A large one stays where it is.
    """
    if rows.wide and rows.large:
        return lambda index: rows.columns(index).T.double()
    columns, first = torch.empty(rows.shape[1], len(rows), dtype=torch.float32), 0
    for block in rows.blocks():
        columns[:, first : first + len(block)] = block.T
        first += len(block)
    return columns


@dataclass(frozen=True)
class Targets:
    """Coefficients (N, q) that are predicted: their mean, and what is left without it (float32).

    `combined` (N, COMBINATIONS) are random combinations of the latter, in the size of fields.
    """

    mean: Tensor
    left: Tensor
    combined: Tensor

    @classmethod
    def of(cls, coefficients: Tensor, sizes: Tensor) -> Targets:
        """Take in coefficients (N, q) whose fields have sizes (q,)."""
        mean = coefficients.double().mean(0)
        left = coefficients - mean.float()
        generator = torch.Generator().manual_seed(0)
        mixing = torch.randn(len(sizes), COMBINATIONS, generator=generator, dtype=torch.float32)
        return cls(mean, left, (left @ (sizes[:, None] * mixing)).double())


class _OneSet:
    """Least squares of targets on what the sensors of one set read of all training pairs (N, m).

    The prediction is `mean` (q,); `noise` (m, q) is what a standard normal error of each reading
    adds to it.
    """

    def __init__(self, pairs: Tensor, values: Tensor, noise_std: Tensor, targets: Targets) -> None:
        self.size = len(pairs)
        rows, values = pairs - pairs.mean(0), values - pairs.mean(0)
        # Ridges are relative to the largest reading. A sensor that its noise switches off must not
        # be that: it is read in a larger unit.
        power, variance = rows.square().mean(0), noise_std.square()
        largest = power.sort().values[-1:] + variance.sort().values[:1]
        unit = ((power + variance) / largest.clamp_min(1e-300)).sqrt().clamp_min(1)
        rows, values, noise_std = rows / unit, values / unit, noise_std / unit
        penalty = torch.diag(self.size * noise_std.square())
        eigenvalues, vectors = torch.linalg.eigh(rows.T @ rows + penalty)
        turned, eigenvalues = rows @ vectors, eigenvalues.clamp_min(0)
        through, squares, errors = turned.T @ targets.combined, turned.square(), []

        def shrunk(ridge: float) -> tuple[Tensor, Tensor]:
            """Return the inverse eigenvalues (m,) with a ridge, and 1 - leverage (N,) of pairs."""
            inverse = 1 / (eigenvalues + ridge * eigenvalues[-1:]).clamp_min(1e-300)
            return inverse, (1 - squares @ inverse - 1 / self.size).clamp_min(1e-9)

        for ridge in RIDGES:
            inverse, kept = shrunk(ridge)
            slopes = inverse[:, None] * through
            left = torch.addmm(targets.combined, turned, slopes, alpha=-1)
            noise = noise_std[:, None] * (vectors @ slopes)
            square = kept**-2 @ left.square_().sum(1) / self.size
            errors.append(square + noise.square().sum())
        inverse, kept = shrunk(RIDGES[int(torch.stack(errors).argmin())])
        through = torch.zeros(turned.shape[1], len(targets.mean), dtype=torch.float64)
        parts = (every.split(PAIRS_TOGETHER) for every in (turned, targets.left))
        for some, left in zip(*parts, strict=True):
            through += some.T @ left.double()
        gain = vectors @ (inverse[:, None] * through)
        self.mean = targets.mean + values @ gain
        self.noise = noise_std[:, None] * gain
        self._left, self._rows = targets.left, rows.float()
        self._gain, self._kept = gain.float(), kept.float()

    def residuals(self, pairs: Tensor | slice) -> Tensor:
        """Return residuals (k, q), float32, of pairs left out, without noise of their readings."""
        left = torch.addmm(self._left[pairs], self._rows[pairs], self._gain, alpha=-1)
        return left.div_(self._kept[pairs, None])

    def errors(self, size: int, generator: torch.Generator) -> Tensor:
        """Return residuals (size, q) of random pairs, less what noise of the readings adds."""
        picked = torch.randint(self.size, (size,), generator=generator)
        normal = torch.randn(size, len(self.noise), generator=generator, dtype=torch.float64)
        return self.residuals(picked).double() - normal @ self.noise

    def covariance(self) -> Tensor:
        """Return the covariance (q, q) of residuals and noise."""
        covariance = self.noise.T @ self.noise
        for first in range(0, self.size, PAIRS_TOGETHER):
            rows = self.residuals(slice(first, first + PAIRS_TOGETHER))
            covariance += (rows.T @ rows).double() / self.size
        return covariance


class LeftOver(Given):
    """The prediction for one set of sensors, plus errors of pairs that were left out."""

    def __init__(self, fitted: Callable[[], _OneSet]) -> None:
        self._fitted = fitted

    @cached_property
    def one(self) -> _OneSet:
        """The fit, made when it is asked for."""
        return self._fitted()

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the exact moments over all pairs; `size` and `generator` have no influence."""
        return self.one.mean[None], self.one.covariance()[None]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return predictions with the error of a random pair."""
        return (self.one.mean + self.one.errors(size, generator))[None]
