"""Every run is a component: what mixtures of laws that nobody foresaw are made of.

Around each run stands a Gaussian law: with a share of the covariance of all runs, or with that of
the nearest runs, which are tangents of whatever the runs lie on. With the smallest of them the
law is one of analogues, with the largest it is Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.laws.components import Components

SHARES = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)  # of the std of all runs, around each of them
REACHES = (0.6, 1.0, 1.5, 2.0)  # factors on the spread of the neighbours
NEIGHBOURS = 40  # runs whose spread a component has, at most a quarter of all
LEADING = 20  # coefficients that say which runs are near
FLOOR = 1e-2  # std in directions without neighbours, as a share of that of all runs
MIN_RUNS, MAX_RUNS = 40, 2000  # runs that are components, at least and at most


@dataclass(frozen=True)
class Around(Components):
    """Components around some of N runs, with the spread of those near to each of them.

    Roots are made when they are asked for; sensors see the spread without them.
    """

    runs: Tensor  # (N, r), standardised coefficients
    near: Tensor  # (C, K), numbers of the runs near to each

    def __post_init__(self) -> None:
        """Leave the roots out of the checks: there are none."""

    def dense(self) -> Tensor:
        """Return the roots (C, r, r), float64."""
        off = (self.runs[self.near] - self.means[:, None]) / math.sqrt(2 * self.near.shape[1])
        eye = torch.eye(off.shape[2], dtype=torch.float64)
        return torch.linalg.cholesky(off.transpose(1, 2) @ off + FLOOR**2 * eye)

    def seen(self, rows: Tensor) -> Tensor:
        """Return a root (C, m, K + k) of what sensors with rows (m, r) see of each covariance."""
        own, read = self.means @ rows.T, self.runs @ rows.T
        off = (read[self.near] - own[:, None]) / math.sqrt(2 * self.near.shape[1])
        floor = FLOOR * torch.linalg.qr(rows.T).R.T
        return torch.cat([off.transpose(1, 2), floor.expand(len(own), -1, -1)], 2)


def blocks(a: Tensor, left: Tensor, spread: Tensor, weights: Sequence[float]) -> list[Components]:
    """Return components around runs, a block for each of `SHARES` and one for all `REACHES`.

    Parameters
    ----------
    a : Tensor, shape (N, r)
        Standardised coefficients of the runs.
    left : Tensor, shape (N,)
        What the modes leave out of each.
    spread : Tensor, shape (r,)
        Size of each mode: distances are those of fields.
    weights : sequence of float
        Of each share and reach. Where it is zero, there are no components.
    """
    size, r = a.shape
    a, even = a.double(), torch.full((size, 1), 1 / size, dtype=torch.float64)
    eye, overall = torch.eye(r, dtype=torch.float64), left.double().square().mean().sqrt()[None]
    one, found = torch.ones(1, dtype=torch.float64), []
    for share, weight in zip(SHARES, weights, strict=False):
        if weight:
            mean, log_weights = math.sqrt(1 - share**2) * a, (weight * even).log()
            found.append(Components(log_weights, one, mean, share * eye[None], overall))
    of_reach = torch.tensor(weights[len(SHARES) :], dtype=torch.float64)
    if bool((used := of_reach > 0).any()):
        scaled, count = (a * spread)[:, :LEADING], min(NEIGHBOURS, size // 4)
        near = torch.cdist(scaled, scaled).topk(count + 1, largest=False).indices
        local = left.double().square()[near].mean(1).sqrt()
        reaches, none = torch.tensor(REACHES, dtype=torch.float64)[used], torch.empty(0)
        log_weights = (even * of_reach[used]).log()
        found.append(Around(log_weights, reaches, a, none, local, a, near[:, 1:]))
    return found


def each(a: Tensor, left: Tensor, spread: Tensor) -> list[Components]:
    """Return the same components, a block for each of the shares and reaches."""
    count = len(SHARES) + len(REACHES)
    return [
        block
        for number in range(count)
        for block in blocks(a, left, spread, [float(k == number) for k in range(count)])
    ]
