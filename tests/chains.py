"""Chains by preconditioned Crank-Nicolson moves.

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


def walk(
    z: Tensor, likelihood: Callable[[Tensor], Tensor], steps: int, generator: np.random.Generator
) -> Iterator[Tensor]:
    """Yield states (C, k) of chains after each step; in the first half steps are adapted.

    Parameters
    ----------
    z : Tensor, shape (C, k)
        White noise before any reading.
    likelihood : callable
        Maps states to log likelihoods (C,).
    """
    now, size = likelihood(z), torch.full((len(z), 1), -2.0, dtype=torch.float64)
    for number in range(steps):
        b = size.exp().clamp_max(1.0)
        fresh = torch.from_numpy(generator.standard_normal(tuple(z.shape)))
        other = (1 - b**2).sqrt() * z + b * fresh
        then = likelihood(other)
        chance = (then - now).exp().clamp_max(1.0).nan_to_num(0.0)
        taken = torch.from_numpy(generator.random(len(z))) < chance
        if number < steps // 2:
            rate = 1 / math.sqrt(1 + (number + 1) / 10)
            size = size + rate * (chance - ACCEPTED)[:, None]
        z, now = torch.where(taken[:, None], other, z), torch.where(taken, then, now)
        yield z
