"""The peer of our Navier-Stokes solver: the time-stepper published with the FNO, written anew.

Pseudospectral in vorticity form, 2/3 rule, Crank-Nicolson for the diffusion and explicit Euler for
advection and forcing, step 1e-4 (Li et al. 2021, appendix A.3.3): five FFTs a step.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

STEP = 1e-4


def euler_steps(w0: Tensor, forcing: Tensor, viscosity: float, steps: int) -> Tensor:
    """Return the vorticity (B, n, n) after so many steps."""
    n = w0.shape[-1]
    frequency = torch.fft.fftfreq(n, 1 / n).to(w0)
    kx, ky = frequency[:, None], torch.arange(n // 2 + 1).to(w0)[None]
    laplacian = 4 * pi**2 * (kx**2 + ky**2)
    inverse = torch.where(laplacian > 0, 1 / laplacian.clamp_min(1.0), 0.0)
    keep = (kx.abs() <= n / 3) & (ky <= n / 3)
    along_x, along_y = 2j * pi * kx, 2j * pi * ky
    # velocity (u, v) and the gradient of the vorticity, one batched transform
    operators = torch.stack(
        [along_y * inverse, -along_x * inverse, along_x.expand_as(inverse), along_y + 0 * inverse]
    )[:, None]
    explicit = 1 - 0.5 * STEP * viscosity * laplacian
    implicit = 1 + 0.5 * STEP * viscosity * laplacian
    w, f = torch.fft.rfft2(w0), torch.fft.rfft2(forcing)
    for _ in range(steps):
        u, v, w_x, w_y = torch.fft.irfft2(operators * w, s=(n, n))
        rate = torch.fft.rfft2(u * w_x + v * w_y) * keep
        w = (explicit * w + STEP * (f - rate)) / implicit
    return torch.fft.irfft2(w, s=(n, n))
