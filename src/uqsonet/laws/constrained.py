"""Latent Gaussian fields given what sensors say of them: values, intervals, or one of several.

Latent values at the sensors come first, then the rest of the field by kriging. Values between ends
are those of a Gaussian law in a box (`uqsonet.laws.truncated`). Where a reading may come from one
of several boxes, particles draw box and values of one sensor after another, given those before, and
are resampled; Gibbs sampling then moves them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.laws.truncated import log_share, resampled, truncated_normal, truncated_samples

NUGGET = 1e-6
"""Least variance of what a reading adds to the latent field."""

MOVES = 3
"""Number of Hamiltonian trajectories of the latent values at the sensors."""

SWEEPS = 10
"""Number of sweeps of Gibbs sampling over the sensors."""


def kriged(
    xi: Tensor, rows: Tensor, values: Tensor, variance: Tensor, generator: torch.Generator
) -> Tensor:
    """Return normals xi (S, q), moved so that they agree with values (Matheron's rule).

    Parameters
    ----------
    xi : Tensor, shape (S, q)
    rows : Tensor, shape (m, q)
        What sensors see of xi.
    values : Tensor, shape (S, m) or (m,)
    variance : Tensor, shape (m,)
        Of the noise of the values.
    generator : torch.Generator
    """
    error = torch.randn(len(xi), len(rows), generator=generator, dtype=torch.float64)
    off = values - xi @ rows.T - error * variance.sqrt()
    return xi + torch.linalg.solve(rows @ rows.T + variance.diag(), off.T).T @ rows


def between(
    covariance: Tensor, lower: Tensor, upper: Tensor, size: int, generator: torch.Generator,
    law: str,
) -> Tensor:  # fmt: skip
    """Return latent values (size, m) of mean zero between ends (m,), or at them where both agree.

    Raises
    ------
    ObservationError
        Naming the law, if there are no such values.
    """
    exact = lower == upper
    seen, hidden = covariance[exact], covariance[~exact]
    weights = torch.linalg.solve(seen[:, exact], seen[:, ~exact]).T
    left = hidden[:, ~exact] - weights @ seen[:, ~exact]
    # Fields through these values are within the ends, too, though the nugget moves them.
    inset = ((upper - lower) / 4).clamp_max(3 * NUGGET**0.5)
    ends = (lower + inset)[~exact], (upper - inset)[~exact]
    values, mean = lower.repeat(size, 1), weights @ lower[exact]
    try:
        values[:, ~exact] = truncated_samples(mean, left, *ends, size, generator, MOVES)
    except ObservationError:
        raise ObservationError(
            "these readings contradict one another under the model's law of the input "
            f"({law!r}): no latent field has them; state their noise"
        ) from None
    return values


@dataclass(frozen=True)
class Choices(ABC):
    """The boxes of latent values that one reading may come from: `low` and `high` are (F, P)."""

    low: Tensor
    high: Tensor

    @abstractmethod
    def given(self, mean: Tensor, std: Tensor, which: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and std (F, S, P) given the reading, and its log density (S, P), in each box.

        Parameters
        ----------
        mean, std : Tensor, shapes (F, S, 1) and (F, 1, 1)
            Of the values before the reading.
        which : Tensor of int, shape (S, m)
            Boxes of the other readings; -1 where they are not drawn yet.
        """

    def drawn(
        self, mean: Tensor, std: Tensor, which: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return values (F, S), their boxes (S,), and the log density (S,) of the reading."""
        mean, std, density = self.given(mean[..., None], std[:, None, None], which)
        shape = len(self.low), len(which), self.low.shape[1]
        ends = [((end[:, None] - mean) / std).expand(shape) for end in (self.low, self.high)]
        weight = density + log_share(*ends).sum(0)
        total = weight.logsumexp(1, keepdim=True)
        uniform = torch.rand(1 + shape[0], shape[1], 1, generator=generator, dtype=torch.float64)
        box = ((weight - total).exp().cumsum(1) < uniform[0]).sum(1, keepdim=True)
        box = box.clamp_max(shape[2] - 1).expand(shape[0], -1, 1)
        low, high, mean, std = (t.expand(shape).gather(2, box) for t in (*ends, mean, std))
        values = mean + std * truncated_normal(low, high, uniform[1:])[0]
        return values[..., 0], box[0, :, 0], total[:, 0]


def among_choices(
    covariances: Sequence[Tensor], choices: Sequence[Choices], size: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return latent values (F, size, m) at m sensors, and the boxes (size, m) that they are in.

    Latent fields have mean zero, and the covariances (m, m) at the sensors.
    """
    covariance = torch.stack(list(covariances))
    root, precision = torch.linalg.cholesky(covariance), torch.linalg.inv(covariance)
    which = torch.full((size, len(choices)), -1)
    xi = torch.zeros(len(covariance), size, len(choices), dtype=torch.float64)
    for i, one in enumerate(choices):
        mean, std = (xi[..., :i] @ root[:, i, :i, None])[..., 0], root[:, i, i]
        value, which[:, i], weight = one.drawn(mean, std, which, generator)
        xi[..., i] = (value - mean) / std[:, None]
        kept = resampled(weight[None], generator)[0]
        xi, which = xi[:, kept], which[kept]
    values = xi @ root.transpose(1, 2)
    for _ in range(SWEEPS):
        for i, one in enumerate(choices):
            variance = precision[:, i, i].reciprocal()
            pull = (values @ precision[:, i, :, None])[..., 0]
            mean, which[:, i] = values[..., i] - variance[:, None] * pull, -1
            values[..., i], which[:, i], _ = one.drawn(mean, variance.sqrt(), which, generator)
    return values, which
