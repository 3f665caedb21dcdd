"""Regression on the training pairs themselves: sensors of either side, any law, no operator.

Coefficients of both fields are predicted from what the sensors would read of the training pairs, by
a Gaussian process with the kernel ``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of standardised
readings: least squares at one end, the process of a squared exponential at the other. Length l,
weight w and the variance of what is no function of the readings have the least leave-one-out error
of a layout of sensors (Rasmussen and Williams, Gaussian processes, 2006, section 5.4.2).

All pairs answer where they are few; of many, those answer whose readings are nearest to the set's
own: a function that is curved everywhere is close to smooth nearby (Gramacy and Apley, J. Comput.
Graph. Stat. 24, 2015). Errors of these pairs, left out, make the band, scaled by the ratio of
standard deviations: wide where no pair is near, and of the shape that errors have. Noise of
sensors, and what the modes leave out, is added to what they read of the pairs, so errors have their
share of it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.gauss.gaussian import sensor_noise
from uqsonet.gauss.given import Given, Moments, Separate
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator.base import SAMPLES, Conditioned
from uqsonet.sensors.sensors import Sensors

MAX_KEPT, ALL_PAIRS, NEAR_PAIRS = 20_000, 1000, 300
"""Number of pairs that are kept, and up to which all of them answer; of more so many are near."""

LENGTHS = (0.5, 1.0, 2.0, 4.0, 10.0)
"""Lengths to try, in standard deviations of readings."""

WEIGHTS = (0.1, 1.0, 10.0)
"""Weights of the linear part to try."""

RIDGES = tuple(10.0**k for k in range(-8, 2))
"""Variances of the rest to try, relative to the kernel's."""

COMPARED, CENTRES = 200, 2
"""Number of pairs that kernels are compared on, and of neighbourhoods that these are from."""

COMBINATIONS = 48
"""Number of random combinations of the coefficients that kernels are compared on."""

DROWNED = 1e4
"""Noise, over the deviation of readings, beyond which these tell less than their rounding."""

KEPT = 8
"""Number of kernels and processes that are remembered."""


class Regression(Conditioned):
    """A Gaussian process on what sensors read of the training pairs.

    Parameters
    ----------
    bases : KarhunenLoeveBases
        In which fields are read and answered.
    a, c : Tensor, shapes (N, r) and (N, p)
        Coefficients of the training pairs (`uqsonet.operator.closed_form.targets`).
    beyond : float
        Root mean square of what the output's modes leave out: noise of its readings.
    """

    method, reads_functionals = "regression", True

    def __init__(
        self, bases: KarhunenLoeveBases, a: Tensor, c: Tensor, beyond: float = 0.0
    ) -> None:
        self.fields, self.bases, self._beyond = bases.fields, bases, beyond
        self.pairs = {"a": a[:MAX_KEPT], "c": c[:MAX_KEPT]}
        self._number = NEAR_PAIRS if len(a) > ALL_PAIRS else len(a)
        # Kernels are compared by errors of fields: coefficients of the input are standardised.
        self._targets = {
            "input": (self.pairs["a"], bases.input_factor.norm(dim=0).float()),
            "output": (self.pairs["c"], torch.ones(c.shape[1])),
        }
        self._layout: tuple[bytes, Tensor] | None = None
        self._kept: dict[object, Any] = {}

    def condition_on(
        self, seen: Sensors, read: Sensors | None = None, noise: object = None, size: int = SAMPLES
    ) -> Joint:
        """Return the law of both sides given checked sensors of both."""
        self.require_gaussian(noise)
        sets = [
            self._readings(seen.alone(b), None if read is None else read.alone(b))
            for b in range(len(seen))
        ]
        output, input = (
            Posterior(
                getattr(self.fields, side).grid,
                getattr(self.bases, f"{side}_basis"),
                seen.single,
                Separate([Predicted(partial(self._predicted, side, *one)) for one in sets]),
            )
            for side in ("output", "input")
        )
        return Joint.exact(output, input, len(seen))

    def _readings(self, seen: Sensors, read: Sensors | None) -> tuple[Tensor, Tensor]:
        """Return standardised readings of one set: of all pairs (N, m), with noise, and its own."""
        bases, a, c = self.bases, self.pairs["a"], self.pairs["c"]
        rows, values = bases.at_sensors(seen)
        noise = sensor_noise(seen.noise(0.0), bases.input_remainder, norm=seen.norm(2))
        parts = [(*ordered(rows[0], values[0], noise[0]), a)]
        if read is not None:
            offset, rows = bases.output_at(read)
            noise = sensor_noise(read.noise(), self._beyond, norm=read.norm(1))
            parts.append((*ordered(rows[0], (read.values - offset)[0], noise[0]), c))
        key = digest(torch.cat([one.flatten() for part in parts for one in (part[0], part[2])]))
        if self._layout is None or self._layout[0] != key:
            pairs = torch.cat([one.double() @ rows.T for rows, _, _, one in parts], 1)
            self._layout = key, pairs
        values, noise = (torch.cat([part[k] for part in parts]) for k in (1, 2))
        return standardised(self._layout[1], values, noise)

    def _predicted(self, side: str, pairs: Tensor, values: Tensor) -> Prediction:
        """Return what the pairs near one set's readings predict."""
        near = nearest(pairs, values, self._number)
        rows, values = scaled(pairs[near], values)

        def process() -> Process:
            return Process.of(rows, self._targets[side][0][near].double(), kernel)

        kernel = self._remembered((side, digest(pairs[:CENTRES])), lambda: self._best(side, pairs))
        return self._remembered((side, digest(rows), "process"), process).prediction(values)

    def _best(self, side: str, pairs: Tensor) -> Kernel:
        """Return the kernel of a layout: the best around the first pairs, left out one by one."""
        (targets, sizes), errors = self._targets[side], []
        generator = torch.Generator().manual_seed(0)
        shape = len(sizes), COMBINATIONS
        mixing = sizes[:, None] * torch.randn(shape, generator=generator, dtype=torch.float32)
        for centre in pairs[: CENTRES if self._number < len(pairs) else 1]:
            near = nearest(pairs, centre, self._number)
            rows = scaled(pairs[near], centre)[0][:COMPARED]
            some = (targets[near] @ mixing).double()
            some = (some - some.mean(0))[:COMPARED]
            errors.append(leave_one_out(rows, some) / some.square().mean())
        return KERNELS[int(torch.stack(errors).sum(0).argmin())]

    def _remembered(self, key: object, make: Callable[[], Any]) -> Any:
        """Return what was made for a key; the oldest of `KEPT` is forgotten."""
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = make()
        return self._kept[key]


def ordered(rows: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Return sensors in an order of their rows (m, r): that of a caller changes no bit."""
    order = np.lexsort(rows[:, :2].T.numpy()) if rows.numel() else slice(None)
    return rows[order], *(one[order] for one in others)


def digest(values: Tensor) -> bytes:
    """Return what tells values from others."""
    return hashlib.sha256(values.numpy().tobytes()).digest()


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


def nearest(pairs: Tensor, values: Tensor, number: int) -> Tensor:
    """Return the numbers, ascending, of the pairs (N, m) nearest to readings (m,)."""
    return (pairs - values).square().sum(1).topk(number, largest=False).indices.sort().values


def scaled(near: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return near pairs (K, m) and readings (m,) less the pairs' mean, over their deviation."""
    centre = near.mean(0)
    deviation = (near - centre).square().mean().sqrt().clamp_min(1e-300)
    return (near - centre) / deviation, (values - centre) / deviation


@dataclass(frozen=True)
class Kernel:
    """The kernel ``1 + w y'y / m + exp(-|y - y'|^2 / (2 m l^2))`` of readings (m,).

    `ridge` is the variance of what is no function of them, relative to the kernel's.
    """

    length: float
    weight: float
    ridge: float

    def between(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the kernel (N, K) between readings (N, m) and (K, m)."""
        products, m = x @ y.T, max(1, x.shape[1])
        apart = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * products
        near = torch.exp(apart.clamp_min(0) / (-2 * m * self.length**2))
        return 1 + self.weight / m * products + near


KERNELS = tuple(itertools.starmap(Kernel, itertools.product(LENGTHS, WEIGHTS, RIDGES)))


def leave_one_out(rows: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of targets (N, q) of pairs left out, for each of `KERNELS`.

    Parameters
    ----------
    rows : Tensor, shape (N, m)
        Readings of the pairs.
    targets : Tensor, shape (N, q)
    """
    errors = []
    for _, same in itertools.groupby(KERNELS, lambda one: (one.length, one.weight)):
        kernels = list(same)
        square = kernels[0].between(rows, rows)
        size = float(square.diagonal().mean())
        values, vectors = torch.linalg.eigh(square)
        turned, squares = vectors.T @ targets, vectors.square()
        ridges = torch.tensor([one.ridge for one in kernels], dtype=torch.float64)
        inverse = 1 / (values.clamp_min(0) + size * ridges[:, None])
        left = vectors @ (inverse[:, :, None] * turned) / (inverse @ squares.T)[:, :, None]
        errors.append(left.square().mean((1, 2)))
    return torch.cat(errors)


@dataclass(frozen=True)
class Process:
    """A Gaussian process of targets on readings (N, m) of pairs.

    It has the inverse (N, N) of their covariance, the targets' mean (q,), and weights and errors
    (N, q) of the pairs: these when left out, over their standard deviation. Errors have the
    covariance (q, q).
    """

    kernel: Kernel
    ridge: float
    rows: Tensor
    inverse: Tensor
    mean: Tensor
    weights: Tensor
    errors: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, rows: Tensor, targets: Tensor, kernel: Kernel) -> Process:
        """Fit the process to readings (N, m) and targets (N, q)."""
        square, mean = kernel.between(rows, rows), targets.mean(0)
        ridge = kernel.ridge * float(square.diagonal().mean())
        square.diagonal().add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(square))
        weights = inverse @ (targets - mean)
        errors = weights / inverse.diagonal().sqrt()[:, None]
        covariance = errors.T @ errors / len(errors)
        return cls(kernel, ridge, rows, inverse, mean, weights, errors, covariance)

    def prediction(self, values: Tensor) -> Prediction:
        """Return what is predicted for readings (m,)."""
        one = values[None]
        cross = self.kernel.between(one, self.rows)[0]
        own = self.kernel.between(one, one)[0, 0] + self.ridge
        # Rounding aside, what is left is at least the ridge.
        left = (own - cross @ self.inverse @ cross).clamp_min(self.ridge)
        return Prediction(self, self.mean + cross @ self.weights, left.sqrt())


class Prediction(NamedTuple):
    """The mean (q,) for one set of sensors, and how large errors of pairs are beside it."""

    process: Process
    mean: Tensor
    std: Tensor


class Predicted(Given):
    """A prediction with the errors of pairs, worked out when it is asked for."""

    def __init__(self, predict: Callable[[], Prediction]) -> None:
        self._predict = predict

    @cached_property
    def _found(self) -> Prediction:
        return self._predict()

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return means with the error of a random pair, (1, size, q)."""
        process, mean, std = self._found
        picked = torch.randint(len(process.errors), (size,), generator=generator)
        return (mean + std * process.errors[picked])[None]

    def estimate(self, size: int, generator: torch.Generator | None) -> Moments:
        """Return mean and covariance over all pairs, whatever the arguments."""
        process, mean, std = self._found
        return mean[None], (std**2 * process.covariance)[None]
