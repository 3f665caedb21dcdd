"""Regression on the training pairs themselves: no training, sensors of either side, any law.

Fields f of the training pairs are regressed on what the sensors would have read of them,
``B = Cov(f, y) (Cov(y, y) + Sigma + lambda)^-1``. A sample is the prediction for the readings plus
the residual of a training pair chosen at random (Matheron's rule with training functions): exact
for many pairs where the joint law is Gaussian, and with the shape of the pairs where it is not. The
ridge lambda is the one with the least leave-one-out error, known in closed form (Golub, Heath and
Wahba, Technometrics 21, 1979); a residual is that of the pair left out, too.

It is what every trained method has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from uqsonet.fields.grid import Domain
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.posterior import Basis, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.joint import JointPosterior, Readings, both_sides
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors, checked_sensors

_Set = tuple[Tensor, Tensor, Tensor]
"""What a set's sensors read of all pairs (N, m), their values (m,) and their noise (m,)."""

RIDGES = tuple(10.0**-k for k in range(12, 0, -1))
"""Ridges to try, relative to the largest eigenvalue of the readings' covariance."""

PROJECTIONS = 48
"""Number of random combinations of the targets that ridges are compared on."""

MIN_KEPT = 1e-4
"""Leave-one-out errors are taken from sums over pairs only if 1 - leverage is above this for all of
them; below, cancellation dominates."""

COMPARED = 48
"""Ridges times sensors in one matrix product: smaller products are slow."""

PAIRS_TOGETHER = 4096
"""Number of pairs in one batch, where all pairs would need too much memory."""


class Regression:
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

    method = "regression"
    reads_functionals = True

    def __init__(
        self,
        functions: Functions,
        noise_std: float,
        input_modes: int = 256,
        output_modes: int = 64,
        bases: KarhunenLoeveBases | None = None,
    ) -> None:
        most = functions.size - 1
        self.fields, self.noise_std = functions.fields, noise_std
        self.bases = bases or KarhunenLoeveBases(
            functions.fields,
            min(input_modes, most, functions.kappa_rows.shape[1]),
            min(output_modes, most, functions.u_rows.shape[1]),
        )
        if bases is None:
            self.bases.fit(functions, linear=False)
        coefficients = self.bases.targets(functions)
        self.bases.forget()
        # Ridges are compared by errors of fields: coefficients of the input are standardised.
        sizes = self.bases.input_factor.norm(dim=0).float(), torch.ones(coefficients["c"].shape[1])
        self._targets = {
            side: _Targets.of(coefficients[name], size)
            for side, name, size in zip(("input", "output"), "ac", sizes, strict=True)
        }
        self._inputs, self._u_rows = _transposed(functions.transformed_inputs()), functions.u_rows

    @cached_property
    def _outputs(self) -> Tensor:
        """Training outputs (M, N), float32."""
        return _transposed(self._u_rows)

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of the output given sensors of the input."""
        return self.condition_on(
            checked_sensors(self.fields.input, locations, values, mask, noise_std)
        )

    def condition_on(self, sensors: Sensors) -> Posterior:
        """Return the law of the output given checked sensors of the input."""
        return self._posterior("output", self._readings(sensors, None), sensors.single)

    def condition_jointly(self, inputs: Readings, outputs: Readings) -> JointPosterior:
        """Return the law of both sides given sensors of both (`uqsonet.operator.joint`)."""
        return self.condition_both(*both_sides(self.fields, inputs, outputs))

    def condition_both(self, seen: Sensors, read: Sensors) -> JointPosterior:
        """Return the law of both sides given checked sensors of both."""
        sets = self._readings(seen, read)
        input, output = (self._posterior(side, sets, seen.single) for side in ("input", "output"))
        every = torch.full((len(sets),), float(self._inputs.shape[1]), dtype=torch.float64)
        return JointPosterior(input, output, every, torch.ones_like(every))

    def _readings(self, seen: Sensors, read: Sensors | None) -> list[_Set]:
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

    def _posterior(self, side: str, sets: list[_Set], single: bool) -> Posterior:
        """Return the law of the fields of one side."""
        fitted = [_Ridge(*one, self._targets[side]).best() for one in sets]
        grid = getattr(self.fields, side).grid
        return RegressionPosterior(grid, getattr(self.bases, f"{side}_basis"), single, fitted)


def _transposed(rows: RowBlocks) -> Tensor:
    """Return a matrix (N, n) as (n, N), float32: a sensor reads all pairs at one place."""
    columns, first = torch.empty(rows.shape[1], len(rows), dtype=torch.float32), 0
    for block in rows.blocks():
        columns[:, first : first + len(block)] = block.T
        first += len(block)
    return columns


@dataclass(frozen=True)
class _Targets:
    """The coefficients that are predicted, and what depends on the training pairs alone.

    Attributes
    ----------
    mean : Tensor, shape (q,)
    left : Tensor, shape (N, q), float32
        Coefficients of the pairs less their mean.
    some : Tensor, shape (N, PROJECTIONS)
        Random combinations of these, in the size of fields.
    squares : Tensor, shape (N,)
        Sum of the squares of `some`.
    """

    mean: Tensor
    left: Tensor
    some: Tensor
    squares: Tensor

    @classmethod
    def of(cls, targets: Tensor, sizes: Tensor) -> _Targets:
        """Take in targets (N, q) of given sizes (q,)."""
        mean = targets.double().mean(0)
        left = targets - mean.float()
        generator = torch.Generator().manual_seed(0)
        shape = targets.shape[1], PROJECTIONS
        mixing = sizes[:, None] * torch.randn(shape, generator=generator, dtype=torch.float32)
        some = (left @ mixing).double()
        return cls(mean, left, some, some.square().sum(1))


@dataclass(frozen=True)
class _Fitted:
    """A prediction and its residuals.

    Attributes
    ----------
    mean : Tensor, shape (q,)
    noise : Tensor, shape (m, q)
        What a standard normal error of each reading adds to the prediction.
    """

    mean: Tensor
    noise: Tensor
    _left: Tensor
    _rows: Tensor
    _gain: Tensor
    _kept: Tensor

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self._left)

    def residuals(self, pairs: Tensor | slice) -> Tensor:
        """Return residuals (k, q), float32, of pairs left out, without noise of their readings."""
        left = torch.addmm(self._left[pairs], self._rows[pairs], self._gain, alpha=-1)
        return left.div_(self._kept[pairs, None])

    def covariance(self) -> Tensor:
        """Return the covariance (q, q) of residuals and noise."""
        covariance = self.noise.T @ self.noise
        for first in range(0, self.size, PAIRS_TOGETHER):
            rows = self.residuals(slice(first, first + PAIRS_TOGETHER))
            covariance += (rows.T @ rows).double() / self.size
        return covariance


class _Ridge:
    """Least squares of targets on the readings of one set of sensors, for any ridge.

    Parameters
    ----------
    pairs : Tensor, shape (N, m)
        What the sensors would have read of each training pair, without noise.
    values, noise_std : Tensor, shape (m,)
    targets : _Targets
    """

    def __init__(self, pairs: Tensor, values: Tensor, noise_std: Tensor, targets: _Targets) -> None:
        self._targets, self._noise_std, mean = targets, noise_std, pairs.mean(0)
        self._rows, self._off = pairs - mean, values - mean
        penalty = len(pairs) * noise_std.square()
        eigenvalues, self._vectors = torch.linalg.eigh(
            self._rows.T @ self._rows + torch.diag(penalty)
        )
        self._values = eigenvalues.clamp_min(0)
        self._turned = self._rows @ self._vectors
        self._squared = self._turned.square()
        self._through = self._turned.T @ targets.some

    def _shrunk(self, ridges: Tensor) -> tuple[Tensor, Tensor]:
        """Return inverse eigenvalues (k, m) with ridges (k,), and 1 - leverage (N, k) of pairs."""
        shrunk = 1 / (self._values + ridges[:, None] * self._values[-1:]).clamp_min(1e-300)
        kept = 1 - self._squared @ shrunk.T - 1 / len(self._rows)
        return shrunk, kept.clamp_min(1e-9)

    def _errors(self, ridges: Tensor) -> Tensor:
        """Return the mean squared leave-one-out errors (k,) of the random combinations."""
        targets, turned, n = self._targets, self._turned, len(self._rows)
        shrunk, kept = self._shrunk(ridges)
        slopes, weights = shrunk[:, :, None] * self._through, kept.T**-2
        noise = self._noise_std[:, None] * (self._vectors @ slopes)
        noise = noise.square().sum((1, 2))
        if float(kept.amin()) < MIN_KEPT:
            left = (torch.addmm(targets.some, turned, each, alpha=-1) for each in slopes)
            squares = torch.stack([each.square().sum(1) for each in left])
            return (weights * squares).sum(1) / n + noise
        weighted = (weights[:, None] * turned.T).flatten(0, 1)
        sums = weighted @ turned, weighted @ targets.some
        own, crossed = (part.view(*slopes.shape[:2], part.shape[1]) for part in sums)
        crossed = own @ slopes - 2 * crossed
        return (weights @ targets.squares + (slopes * crossed).sum((1, 2))) / n + noise

    def best(self) -> _Fitted:
        """Return the prediction with the ridge of least error."""
        targets, turned = self._targets, self._turned
        ridges = torch.tensor(RIDGES, dtype=torch.float64)
        together = max(1, COMPARED // max(turned.shape[1], 1))
        errors = torch.cat([self._errors(some) for some in ridges.split(together)])
        shrunk, kept = (each.ravel() for each in self._shrunk(ridges[errors.argmin(), None]))
        through = torch.zeros(turned.shape[1], len(targets.mean), dtype=torch.float64)
        parts = (rows.split(PAIRS_TOGETHER) for rows in (turned, targets.left))
        for some, left in zip(*parts, strict=True):
            through += some.T @ left.double()
        gain = self._vectors @ (shrunk[:, None] * through)
        mean = targets.mean + self._off @ gain
        noise = self._noise_std[:, None] * gain
        return _Fitted(mean, noise, targets.left, self._rows.float(), gain.float(), kept.float())


class RegressionPosterior(Posterior):
    """Predictions plus residuals of training pairs."""

    def __init__(self, grid: Domain, basis: Basis, single: bool, fitted: list[_Fitted]) -> None:
        super().__init__(grid, basis, single)
        self._fitted = fitted

    def coefficient_moments(
        self, size: int = 0, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the exact moments over all pairs; `size` and `generator` have no influence."""
        covariances = torch.stack([one.covariance() for one in self._fitted])
        return torch.stack([one.mean for one in self._fitted]), covariances

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return predictions with the residual of a random pair, and the noise of the readings."""
        samples = []
        for one in self._fitted:
            picked = torch.randint(one.size, (size,), generator=generator)
            normal = torch.randn(size, len(one.noise), generator=generator, dtype=torch.float64)
            samples.append(one.mean + one.residuals(picked).double() - normal @ one.noise)
        return torch.stack(samples)
