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

import torch
from torch import Tensor

from uqsonet.data import Functions
from uqsonet.fields import Domain, Observations
from uqsonet.joint import JointPosterior, Readings, both_sides
from uqsonet.models.karhunen_loeve import KarhunenLoeveBases
from uqsonet.posterior import Basis, Posterior

RIDGES = tuple(10.0**-k for k in range(12, 0, -1))
"""Tried, relative to the largest eigenvalue of the readings' covariance."""

PROJECTIONS = 48
"""Random combinations of the targets that ridges are compared on."""


class Regression:
    """Least squares on training pairs at the sensors.

    Parameters
    ----------
    functions : Functions
        Training pairs; they are kept.
    noise_std : float
        Default noise of sensors of the input.
    input_modes, output_modes : int
        Modes in which fields are answered, at most.
    bases : KarhunenLoeveBases, optional
        Fitted ones to answer in, instead of the pairs' own.
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
        found = self.bases.targets(functions)
        self.bases.forget()
        self._targets = {"input": found["a"], "output": found["c"]}
        # Ridges are compared by errors of fields: coefficients of the input are standardised.
        factor, modes = self.bases.input_factor, self.bases.output_modes
        self._sizes = {"input": factor.norm(dim=0), "output": torch.ones(modes.shape[1]).float()}
        forward = functions.fields.input.transform.forward
        self._inputs = torch.cat(
            [forward(block.double()).float() for block in functions.kappa_rows.blocks()]
        ).T.contiguous()
        self._outputs = functions.u_rows.whole().T.contiguous()

    def condition(
        self, locations: object, values: object, mask: object = None, noise_std: object = None
    ) -> Posterior:
        """Return the law of the output given sensors of the input."""
        inputs = self.fields.input.observations(locations, values, mask, empty=True)
        level = self.fields.input.noise(noise_std, inputs[0], self.noise_std)
        sets = self._readings(inputs[0], level, None, 0.0)
        return self._posterior("output", sets, inputs[1])

    def condition_jointly(self, inputs: Readings, outputs: Readings) -> JointPosterior:
        """Return the law of both sides given sensors of both (`uqsonet.joint`)."""
        (seen, noise), (read, level), single = both_sides(
            self.fields, inputs, outputs, self.noise_std
        )
        sets = self._readings(seen, noise, read, level)
        input, output = (self._posterior(side, sets, single) for side in ("input", "output"))
        every = torch.full((len(sets),), float(len(self._targets["input"])), dtype=torch.float64)
        return JointPosterior(input, output, every, torch.ones_like(every))

    def _readings(
        self,
        seen: Observations,
        noise: float | Tensor,
        read: Observations | None,
        level: float | Tensor,
    ) -> list[_Set]:
        """Return each set's readings, and what its sensors would have read of every pair."""
        grids = self.fields.input.grid, self.fields.training_grid()[0]
        forward = self.fields.input.transform.forward
        sets = []
        for b in range(len(seen.values)):
            parts = [(grids[0], self._inputs, seen, noise, forward)]
            if read is not None:
                parts.append((grids[1], self._outputs, read, level, lambda values: values))
            pairs, values, stds = [], [], []
            for grid, functions, observations, std, change in parts:
                used, own = observations.mask[b], observations[b : b + 1]
                pairs.append(own.read(grid, functions)[0, used])
                values.append(change(observations.values[b, used].double()))
                every = torch.as_tensor(std, dtype=torch.float64).expand_as(observations.values)
                stds.append(every[b, used])
            joined = torch.cat(pairs).T.double()
            sets.append(_Set(joined, torch.cat(values), torch.cat(stds)))
        return sets

    def _posterior(self, side: str, sets: list[_Set], single: bool) -> Posterior:
        targets = self._targets[side]
        fitted = [_fitted(one, targets, self._sizes[side]) for one in sets]
        grid = (self.fields.input if side == "input" else self.fields.output).grid
        return RegressionPosterior(grid, self._basis(side), single, fitted)

    def _basis(self, side: str) -> Basis:
        if side == "output":
            return self.bases.output_basis
        return self.bases.input_basis


@dataclass(frozen=True)
class _Set:
    """One set of sensors.

    Attributes
    ----------
    pairs : Tensor, shape (N, m)
        What the sensors would have read of each training pair, without noise.
    values, noise_std : Tensor, shape (m,)
    """

    pairs: Tensor
    values: Tensor
    noise_std: Tensor


@dataclass(frozen=True)
class _Fitted:
    """A prediction and what it leaves over.

    Attributes
    ----------
    mean : Tensor, shape (q,)
    residuals : Tensor, shape (N, q), float32
        Of each pair, left out, without the noise of its readings.
    noise : Tensor, shape (m, q)
        What a standard normal error of each reading adds.
    """

    mean: Tensor
    residuals: Tensor
    noise: Tensor


def _fitted(one: _Set, targets: Tensor, sizes: Tensor) -> _Fitted:
    """Regress targets (N, q) of given sizes (q,) on readings, by the ridge of least error."""
    n = len(targets)
    at, mean = one.pairs.mean(0), targets.double().mean(0)
    left = targets - mean.float()
    if not len(one.values):
        return _Fitted(mean, left * (n / (n - 1)), torch.zeros(0, targets.shape[1]).double())
    rows = one.pairs - at
    penalty = n * one.noise_std.square()
    values, vectors = torch.linalg.eigh(rows.T @ rows + torch.diag(penalty))
    values = values.clamp_min(0)
    turned = rows @ vectors
    generator = torch.Generator().manual_seed(0)
    mixing = sizes[:, None] * torch.randn(
        targets.shape[1], PROJECTIONS, generator=generator, dtype=torch.float32
    )
    some = (left @ mixing).double()
    through = turned.T @ some
    best: tuple[float, float] | None = None
    for ridge in RIDGES:
        shrunk = 1 / (values + ridge * values[-1])
        kept = 1 - turned.square() @ shrunk - 1 / n
        errors = (some - turned @ (shrunk[:, None] * through)) / kept.clamp_min(1e-9)[:, None]
        noise = one.noise_std[:, None] * (vectors @ (shrunk[:, None] * through))
        score = float(errors.square().mean(0).sum() + noise.square().sum())
        if best is None or score < best[0]:
            best = score, ridge
    assert best is not None
    shrunk = 1 / (values + best[1] * values[-1])
    gain = vectors @ (shrunk[:, None] * (turned.T @ left.double()))  # (m, q)
    kept = (1 - turned.square() @ shrunk - 1 / n).clamp_min(1e-9)
    residuals = (left - rows.float() @ gain.float()) / kept[:, None].float()
    return _Fitted(mean + (one.values - at) @ gain, residuals, one.noise_std[:, None] * gain)


class RegressionPosterior(Posterior):
    """Predictions plus residuals of training pairs."""

    def __init__(self, grid: Domain, basis: Basis, single: bool, fitted: list[_Fitted]) -> None:
        super().__init__(grid, basis, single)
        self._fitted = fitted

    def coefficient_moments(
        self, size: int = 0, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the exact moments over all pairs; `size` and `generator` have no influence."""
        means, covariances = [], []
        for one in self._fitted:
            residuals = one.residuals.double()
            covariances.append(residuals.T @ residuals / len(residuals) + one.noise.T @ one.noise)
            means.append(one.mean)
        return torch.stack(means), torch.stack(covariances)

    def coefficient_samples(self, size: int, generator: torch.Generator) -> Tensor:
        """Return predictions with the residual of a random pair, and the noise of the readings."""
        found = []
        for one in self._fitted:
            picked = torch.randint(len(one.residuals), (size,), generator=generator)
            normal = torch.randn(size, len(one.noise), generator=generator, dtype=torch.float64)
            found.append(one.mean + one.residuals[picked].double() - normal @ one.noise)
        return torch.stack(found)
