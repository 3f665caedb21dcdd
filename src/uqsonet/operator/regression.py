"""Regression on the training pairs themselves: no training, sensors of either side, any law.

Fields f of the training pairs are regressed on what the sensors would have read of them,
``B = Cov(f, y) (Cov(y, y) + Sigma + lambda)^-1``. A sample is the prediction for the readings plus
the residual of a training pair chosen at random (Matheron's rule with training functions): exact
for many pairs where the joint law is Gaussian, and with the shape of the pairs where it is not. The
ridge lambda is the one with the least leave-one-out error, known in closed form (Golub, Heath and
Wahba, Technometrics 21, 1979); a residual is that of the pair left out, too. It is what every
trained method has to beat.

`KernelRegression` predicts them as a Gaussian process with the kernel
``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of standardised readings: least squares at one end,
the process of a squared exponential at the other. Length l, weight w and the variance of what is no
function of the readings have the least leave-one-out error, too (Rasmussen and Williams, 2006,
section 5.4.2). Errors of pairs left out are scaled by the ratio of their standard deviations: wide
where no pair is near, and of the shape that errors have. Noise of sensors is added to what they
read of the pairs, so errors have their share of it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
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

Errors = Callable[[int, torch.Generator], Tensor]
Prediction = tuple[Tensor, Callable[[], Tensor], Errors]
"""Mean (q,) of what is predicted, covariance (q, q) of its errors, and random ones, (size, q)."""

RIDGES = tuple(10.0**-k for k in range(12, 0, -1))
"""Ridges to try, relative to the largest eigenvalue of the readings' covariance."""

COMBINATIONS = 48
"""Number of random combinations of the targets that ridges are compared on."""

LENGTHS = (0.5, 1.0, 2.0, 4.0, 10.0)
"""Lengths to try, in standard deviations of readings."""

WEIGHTS = (0.1, 1.0, 10.0)
"""Weights of the linear part to try."""

KERNEL_RIDGES = tuple(10.0**k for k in range(-8, 2))
"""Variances of the rest to try, relative to the kernel's."""

DROWNED = 1e4
"""Noise, over the deviation of readings, beyond which these tell less than their rounding."""

COMPARED = 200
"""Number of pairs that kernels are compared on."""

MIN_PAIRS, MAX_PAIRS = 32, 1000
"""Minimum and maximum number of pairs: a new layout of sensors takes time with their cube."""

MAX_PAIR_VALUES = 1 << 25
"""Maximum number of values of all kept pairs."""

KEPT_LAYOUTS = 4
"""Number of layouts of sensors that are remembered."""

PAIRS_TOGETHER = 4096
"""Number of pairs in one batch, where all pairs would need too much memory."""


class Regression(Conditioned):
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
        self, functions: Functions, noise_std: float, input_modes: int = INPUT_MODES,
        output_modes: int = OUTPUT_MODES, bases: KarhunenLoeveBases | None = None,
    ) -> None:  # fmt: skip
        self.fields, self.noise_std = functions.fields, noise_std
        self.bases = bases or sized_bases(functions, input_modes, output_modes)
        if bases is None:
            fit_bases(self.bases, functions, linear=False)
        coefficients = self._coefficients(functions)
        # Ridges are compared by errors of fields: coefficients of the input are standardised.
        sizes = self.bases.input_factor.norm(dim=0).float(), torch.ones(coefficients["c"].shape[1])
        self._targets = {
            side: Targets.of(coefficients[name], size)
            for side, name, size in zip(("input", "output"), "ac", sizes, strict=True)
        }
        self._inputs, self._u_rows = _by_point(functions.transformed_inputs()), functions.u_rows

    def _coefficients(self, functions: Functions) -> dict[str, Tensor]:
        """Return the coefficients of the pairs: `a` (N, r) and `c` (N, p), float32."""
        return targets(self.bases, functions)

    @cached_property
    def _outputs(self) -> Values:
        """Training outputs (M, N)."""
        return _by_point(self._u_rows)

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of both sides given checked sensors of both."""
        sets = self._readings(seen, read)
        output, input = (self._posterior(side, sets, seen.single) for side in ("output", "input"))
        every = torch.full((len(sets),), self.effective_size(), dtype=torch.float64)
        return Joint(output, input, every, torch.ones_like(every))

    def effective_size(self) -> float:
        """Return the number of pairs: samples are errors of theirs."""
        return float(len(self._u_rows))

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
        law = Separate([Pairs(partial(self._predicted, side, *one)) for one in sets])
        return Posterior(grid, basis, single, law)

    def _predicted(self, side: str, pairs: Tensor, values: Tensor, noise_std: Tensor) -> Prediction:
        """Return what is predicted for one set of readings of all pairs (N, m) and of its own."""
        one = _LeastSquares(pairs, values, noise_std, self._targets[side])
        return one.mean, one.covariance, one.errors


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


class _LeastSquares:
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


class Pairs(Given):
    """The prediction for one set of sensors, plus errors of pairs that were left out."""

    def __init__(self, predict: Callable[[], Prediction]) -> None:
        self._predict = predict

    @cached_property
    def _predicted(self) -> Prediction:
        return self._predict()

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return the exact moments over all pairs; `size` and `generator` have no influence."""
        mean, covariance, _ = self._predicted
        return mean[None], covariance()[None]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return predictions with the error of a random pair."""
        mean, _, errors = self._predicted
        return (mean + errors(size, generator))[None]


def first_pairs(functions: Functions) -> tuple[Tensor, Tensor]:
    """Return as many pairs (N, n) and (N, M) as `MAX_PAIRS` and `MAX_PAIR_VALUES` allow."""
    rows = functions.kappa_rows, functions.u_rows
    most = min(MAX_PAIRS, max(MIN_PAIRS, MAX_PAIR_VALUES // (rows[0].shape[1] + rows[1].shape[1])))
    index = np.arange(min(most, functions.size))
    return rows[0].take(index).whole(), rows[1].take(index).whole()


class KernelRegression(Regression):
    """A Gaussian process on what sensors would have read of the training pairs.

    Parameters
    ----------
    bases : KarhunenLoeveBases
        In which fields are answered.
    inputs, outputs : Tensor, shapes (N, n) and (N, M)
        Training pairs on the points of the fields (`first_pairs`).
    """

    method = "kernel_regression"

    def __init__(self, bases: KarhunenLoeveBases, inputs: Tensor, outputs: Tensor) -> None:
        self.pairs = {"inputs": inputs, "outputs": outputs}
        super().__init__(Functions(bases.fields, "training", inputs, outputs), 0.0, bases=bases)
        self._processes: dict[tuple[str, bytes], Process] = {}

    def _coefficients(self, functions: Functions) -> dict[str, Tensor]:
        """Return coefficients by the modes as files have them: those of a fit are more precise."""
        c = self.bases.output_coefficients(functions.u).float()
        return {"a": self.bases.coefficients_of(functions.kappa), "c": c}

    def effective_size(self) -> float:
        """Return infinity: errors are pairs', but their mean and size are in closed form."""
        return torch.inf

    def _predicted(self, side: str, pairs: Tensor, values: Tensor, noise_std: Tensor) -> Prediction:
        """Return what is predicted for one set."""
        rows, values = standardised(pairs, values, noise_std)
        return self._process(side, rows).prediction(values)

    def _process(self, side: str, rows: Tensor) -> Process:
        """Return the process of a layout; the last ones are remembered."""
        key = side, hashlib.sha256(rows.numpy().tobytes()).digest()
        if key not in self._processes:
            if len(self._processes) >= KEPT_LAYOUTS:
                self._processes.pop(next(iter(self._processes)))
            targets = self._targets[side]
            errors = leave_one_out(rows[:COMPARED], targets.combined[:COMPARED])
            choice = KernelChoice.of(errors)
            ridge = choice.variance(rows[:COMPARED])
            left = targets.left.double()
            self._processes[key] = Process.of(rows, left, targets.mean, choice.kernel, ridge)
        return self._processes[key]


def standardised(pairs: Tensor, values: Tensor, noise_std: Tensor) -> tuple[Tensor, Tensor]:
    """Return readings of pairs (N, m), with noise, and of a set (m,), less mean over deviation.

    Sensors that are switched off by their noise are left out.
    """
    spread = pairs.std(0)
    heard = (noise_std <= DROWNED * spread) | (spread == 0)
    pairs, values, noise_std = pairs[:, heard], values[heard], noise_std[heard]
    mean, std = pairs.mean(0), (pairs.var(0) + noise_std**2).sqrt()
    std = torch.where(std > 1e-9 * pairs.abs().amax(0), std, 1.0)
    rows, values, noise_std = (pairs - mean) / std, (values - mean) / std, noise_std / std
    # Order, units and sign of sensors have no influence, not even on their noise.
    order = np.lexsort((values.abs().numpy(), *rows[:2].abs().numpy()))
    rows, values, noise_std = rows[:, order], values[order], noise_std[order]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    return rows + noise * noise_std * rows[:1].sign(), values


@dataclass(frozen=True)
class Kernel:
    """The kernel ``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of readings (m,)."""

    length: float
    weight: float

    def between(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the kernel (N, K) between readings (N, m) and (K, m)."""
        products, m = x @ y.T, max(1, x.shape[1])
        apart = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * products
        near = torch.exp(apart.clamp_min(0) / (-2 * m * self.length**2))
        return 1 + self.weight / m * products + near


KERNELS = tuple(itertools.starmap(Kernel, itertools.product(LENGTHS, WEIGHTS)))


@dataclass(frozen=True)
class KernelChoice:
    """A kernel, and the variance of what is no function of readings, relative to the kernel's."""

    kernel: Kernel
    ridge: float

    @classmethod
    def of(cls, errors: Tensor) -> KernelChoice:
        """Take the least of the errors (`KERNELS`, `KERNEL_RIDGES`)."""
        kernel, ridge = divmod(int(errors.argmin()), len(KERNEL_RIDGES))
        return cls(KERNELS[kernel], KERNEL_RIDGES[ridge])

    def variance(self, rows: Tensor) -> float:
        """Return that variance, for the kernel of readings (N, m)."""
        return self.ridge * float(self.kernel.between(rows, rows).diagonal().mean())


def leave_one_out(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of targets (N, q) of pairs left out, for each kernel and ridge.

    Parameters
    ----------
    rows : Tensor, shape (N, m)
        Readings of the pairs.
    targets : Tensor, shape (N, q)

    Returns
    -------
    Tensor, shape (`KERNELS`, `KERNEL_RIDGES`)
    """
    errors = torch.empty(len(KERNELS), len(KERNEL_RIDGES), dtype=torch.float64)
    for k, kernel in enumerate(KERNELS):
        square = kernel.between(rows, rows)
        size = float(square.diagonal().mean())
        values, vectors = torch.linalg.eigh(square)
        turned, squares = vectors.T @ targets, vectors.square()
        for r, ridge in enumerate(KERNEL_RIDGES):
            inverse = 1 / (values.clamp_min(0) + ridge * size)
            left = vectors @ (inverse[:, None] * turned) / (squares @ inverse)[:, None]
            errors[k, r] = left.square().mean()
    return errors


@dataclass(frozen=True)
class Process:
    """A Gaussian process of targets on what the sensors of one layout would read (N, m) of pairs.

    It has the inverse (N, N) of their covariance, the targets' mean (q,), and weights and errors
    (N, q) of the pairs: these when left out, over their standard deviation.
    """

    kernel: Kernel
    ridge: float
    rows: Tensor
    inverse: Tensor
    mean: Tensor
    weights: Tensor
    errors: Tensor

    @classmethod
    def of(cls, rows: Tensor, left: Tensor, mean: Tensor, kernel: Kernel, ridge: float) -> Process:
        """Fit the process to readings (N, m) and to targets (N, q) less their mean (q,)."""
        square = kernel.between(rows, rows)
        square.diagonal().add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(square))
        weights = inverse @ left
        errors = weights / inverse.diagonal().sqrt()[:, None]
        return cls(kernel, ridge, rows, inverse, mean, weights, errors)

    def prediction(self, values: Tensor) -> Prediction:
        """Return what is predicted for readings (m,)."""
        mean, std = self._at(values)

        def errors(size: int, generator: torch.Generator) -> Tensor:
            picked = torch.randint(len(self.errors), (size,), generator=generator)
            return std * self.errors[picked]

        return mean, lambda: std**2 * self._covariance, errors

    def _at(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (q,) and the standard deviation (), relative to errors, for readings (m,)."""
        one = values[None]
        cross = self.kernel.between(one, self.rows)[0]
        own = self.kernel.between(one, one)[0, 0] + self.ridge
        # Rounding aside, what is left is at least the ridge.
        left = (own - cross @ self.inverse @ cross).clamp_min(self.ridge)
        return self.mean + cross @ self.weights, left.sqrt()

    @cached_property
    def _covariance(self) -> Tensor:
        """Covariance (q, q) of the errors."""
        return self.errors.T @ self.errors / len(self.errors)
