"""Chains by preconditioned Crank-Nicolson moves, and how well they have mixed.

Cotter, Roberts, Stuart and White (Statistical Science 28, 2013): a move
``sqrt(1 - b^2) z + b xi`` leaves white noise z as it is, whatever the number of coordinates; the
likelihood decides. Each chain has a step of its own, adapted until half of the steps are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

ACCEPTED = 0.25
"""Share of moves that steps are adapted to."""

WALL = 1000.0
"""Beyond the cut the likelihood falls by a factor of e each thousandth of it, so that chains that
start outside are led in; in half of the steps they have long arrived."""


class Walk:
    """Moves of chains, each with a step of its own.

    Parameters
    ----------
    chains : int
    generator : np.random.Generator
    shape : Tensor, shape (k,), optional
        Relative steps of coordinates: those that the readings hardly see may take larger ones.
    """

    def __init__(
        self, chains: int, generator: np.random.Generator, shape: Tensor | None = None
    ) -> None:
        self._shape = torch.ones(1, dtype=torch.float64) if shape is None else shape
        self._size = torch.full((chains, 1), -2.0, dtype=torch.float64)  # logarithm of the step
        self._generator, self._moves = generator, 0

    def step(
        self, z: Tensor, now: Tensor, likelihood: Callable[[Tensor], Tensor], adapt: bool
    ) -> tuple[Tensor, Tensor]:
        """Return states (C, k) and their log likelihoods (C,) after a move from these."""
        b = (self._size.exp() * self._shape).clamp_max(1.0)
        fresh = torch.from_numpy(self._generator.standard_normal(tuple(z.shape)))
        other = (1 - b**2).sqrt() * z + b * fresh
        then = likelihood(other)
        chance = (then - now).exp().clamp_max(1.0).nan_to_num(0.0)
        taken = torch.from_numpy(self._generator.random(len(z))) < chance
        if adapt:
            self._moves += 1
            rate = 1 / math.sqrt(1 + self._moves / 10)
            self._size = self._size + rate * (chance - ACCEPTED)[:, None]
        return torch.where(taken[:, None], other, z), torch.where(taken, then, now)


def walk(
    z: Tensor,
    likelihood: Callable[[Tensor], Tensor],
    steps: int,
    generator: np.random.Generator,
    shape: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yield states (C, k) of chains after each step; in the first half steps are adapted.

    Parameters
    ----------
    z : Tensor, shape (C, k)
        White noise before any reading.
    likelihood : callable
        Maps states to log likelihoods (C,).
    steps : int
    generator : np.random.Generator
    shape : Tensor, shape (k,), optional
        As that of `Walk`.
    """
    now, moves = likelihood(z), Walk(len(z), generator, shape)
    for number in range(steps):
        z, now = moves.step(z, now, likelihood, number < steps // 2)
        yield z


def walled(misfit: Tensor, cut: float) -> Tensor:
    """Return what keeps chains within the cut for misfits (C, m) of the sensors."""
    return -WALL * (misfit.abs().mean(-1) / cut - 1).clamp_min(0)


def mixing(chains: Tensor) -> tuple[float, float]:
    """Return R-hat and the effective size of chains (S, C, q), each the median over quantities.

    R-hat compares the variance of all halves of chains with that within them (Gelman et al.,
    Bayesian Data Analysis, 2013). The effective size is the variance over the squared error of the
    mean, as means of chains tell it: quantities that chains disagree in have a small one.
    """
    half = len(chains) // 2
    parts = torch.cat([chains[:half], chains[half : 2 * half]], 1)
    within, between = parts.var(0).mean(0), parts.mean(0).var(0)
    total = (half - 1) / half * within + between
    size = chains.shape[1] * total / chains.mean(0).var(0).clamp_min(1e-300)
    return float((total / within).sqrt().median()), float(size.median())
