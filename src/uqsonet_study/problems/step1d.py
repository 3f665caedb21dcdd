"""A front whose place depends on k: how far a wave of speed k comes in a given time.

log k is that of section 4.1. u is one up to the place s with int_{-1}^s 1 / k = 1.1, and zero
beyond. Grids of `diffusion1d`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uqsonet_study.problems.base import BEYOND
from uqsonet_study.problems.diffusion1d import Diffusion1D

ARRIVAL = 1.1  # time at which the front is looked at


class Step1D(Diffusion1D):
    """A step at an uncertain place."""

    name = "step1d"
    title = "A front in one dimension"
    section = BEYOND
    zero_boundary = False
    jumps = True

    def solve(self, kappa: Tensor, unobserved: Tensor | None = None) -> Tensor:
        """Return one where the wave has been, by the trapezoidal rule."""
        (spacing,) = self.grid.spacing()
        slowness = 1 / kappa
        steps = (slowness[:, 1:] + slowness[:, :-1]) * spacing / 2
        times = torch.nn.functional.pad(steps.cumsum(1), [1, 0])
        return (times < ARRIVAL).to(kappa)
