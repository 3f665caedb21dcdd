"""Spectral solution of the 2D Navier-Stokes equations in vorticity form, in bulk.

Equation eqn:2d-ns on the periodic unit square, with the zero-mean stream function psi:

    w_t + u . grad w = nu Lap w + f,    -Lap psi = w,    u = (psi_y, -psi_x).

**Space.** Galerkin's method with the trigonometric polynomials of degree at most K in either
variable, in the real orthonormal basis ``1, sqrt2 cos 2 pi k x, sqrt2 sin 2 pi k x``. Products are
formed on 3K + 1 points an axis, where the quadrature of a product of two of them with a third is
exact: this is the 2/3 rule, the pseudospectral scheme without aliasing. A state on n points keeps
the degrees up to ``K = (n - 1) // 3`` (33 of n = 100); what lies beyond, the Nyquist mode included,
is cut from initial state and forcing, and is zero in the result. Transforms are matrix products:
faster than the FFT below K = 20, where most steps are made, and a quarter slower at K = 33. All
coefficients are real, and K need not suit an FFT length.
The conservative form ``div(u w) = (d_xx - d_yy)(u v) + d_xy(v^2 - u^2)`` takes four transforms.

**Time.** The Runge-Kutta pair 5(4) of Dormand and Prince (1980) in the variable
``exp(-nu t Lap) w`` (an integrating factor, Lawson 1967): the diffusion is solved exactly, and a
batch shares one step, which the error estimate of its worst sample controls. For errors near 1e-6
this takes 2/3 of the evaluations that ETDRK4 takes, and no contour integrals for coefficients.

**Coarsening.** Viscosity empties the high modes. After a step, K falls to what the spectrum of the
worst sample fills, and a step that fills the last shell of a reduced K is repeated with a larger K.

**Errors** on the paper's problem, relative in L2, the worst of 256 samples at T = 10: 1.3e-4,
2.8e-6 and 2.5e-7 for tolerances 1e-4, 1e-5 and 1e-6 (3.4e-6 for 1e-5 in single precision). The
degree 33 is ample: degree 66 from the same initial polynomial differs by 1e-12. But the initial
states have cube-root kinks at the edges, which 100 points sample coarsely: the flow from 400 points
differs by 9e-4 in the median and 1.6e-3 at worst (of 8), whatever the solver.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import DataError

# Dormand and Prince's pair: stage times, stage weights (the last row is the fifth-order solution),
# and the weights of fifth minus fourth order.
_TIMES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

_PAIRS = tuple((i, j) for i in range(1, 6) for j in range(i))  # stages at different times

# Of the tolerance: what the estimate of one step may reach, and what may be cut from the spectrum.
# With these the error of w(T) is below tolerances up to 1e-5, and about the tolerance above.
_LOCAL, _CUT = 0.5, 0.3
_SPARE = 2  # shells kept empty, for the spectrum to grow into
_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 2.0  # the usual bounds on a change of the step

# Rounding leaves an error of about 2e-6 in single precision: too much for a smaller tolerance.
_SINGLE, _FINEST = 64 * torch.finfo(torch.float32).eps, 1e-12
CHUNK_CPU, CHUNK_CUDA = 8, 512


class SpectralSpace:
    """Trigonometric polynomials of degree <= K on the unit square, as (2K+1, B, 2K+1) arrays.

    Axis 0 holds the basis in x and axis 2 the basis in y, each ordered 1, cos 1, sin 1, cos 2, ...
    The batch lies between them, so that either transform is one large matrix product. The basis is
    orthonormal: the norm of the coefficients is the L2 norm of the function.

    Parameters
    ----------
    degree : int
        K; products are formed on 3K + 1 points an axis.
    dtype, device
        Of coefficients and operators; these are computed in double precision on the CPU.
    """

    def __init__(self, degree: int, dtype: torch.dtype, device: torch.device) -> None:
        self.degree = degree
        self.size = 2 * degree + 1
        self.points = 3 * degree + 1

        def put(x: Tensor) -> Tensor:
            return x.to(device, dtype).contiguous()

        values, slopes = trigonometric_basis(degree, self.points)
        self._from_x = put(torch.cat([values, -slopes]))  # rows for psi_y, then for -psi_x
        self._from_y = put(slopes.T), put(values.T)
        self._to_x = put(values.T / self.points), put(slopes.T / self.points)
        self._to_y = put(values / self.points), put(slopes / self.points)

        shells = (torch.arange(self.size) + 1) // 2  # the wavenumber of each basis function
        rings = torch.maximum(shells[:, None], shells).flatten()
        self._beyond = put(rings > torch.arange(degree)[:, None])  # (K, (2K+1)^2), of 0 and 1
        squares = (2 * math.pi * shells.double()) ** 2
        inverse = 1 / (squares[:, None] + squares)
        inverse[0, 0] = 0.0  # the stream function has zero mean
        self._inverse = put(inverse[:, None])
        self._difference = put((squares[:, None] - squares)[:, None])
        gaps = torch.tensor([_TIMES[i] - _TIMES[j] for i, j in _PAIRS], dtype=torch.float64)
        self._exponents = -gaps.outer(squares).to(device)

    def rate(self, w: Tensor, f: Tensor) -> Tensor:
        """Return ``f - u . grad w``; w has shape (2K+1, B, 2K+1), f (2K+1, 1, 2K+1)."""
        size, batch, points = self.size, w.shape[1], self.points
        half = (self._from_x @ (w * self._inverse).view(size, -1)).view(2, points * batch, size)
        u, v = half[0] @ self._from_y[0], half[1] @ self._from_y[1]
        product = u * v
        u += v
        v.mul_(2).sub_(u).mul_(u)  # (v - u)(v + u)
        mixed = (v @ self._to_y[1]).view(points, -1)
        plain = self._to_x[0] @ (product @ self._to_y[0]).view(points, -1)
        # integration by parts moves every derivative to the test functions; -d_xx becomes squares
        result = torch.addcmul(f, plain.view(size, batch, size), self._difference)
        result.view(size, -1).addmm_(self._to_x[1], mixed, alpha=-1)
        return result

    def decays(self, duration: float) -> Tensor:
        """Return ``exp(c duration Lap)``, c the time between each of `_PAIRS`: (15, 2K+1, 1, 2K+1).

        A scalar times a tensor, so that no copy makes the host wait for the device.
        """
        factors = torch.exp(self._exponents * duration).to(self._inverse)
        return (factors[:, :, None] * factors[:, None])[:, :, None]

    def tails(self, w: Tensor) -> Tensor:
        """Bound the relative L2 norm beyond each degree 0 .. K - 1 in any sample, shape (K,)."""
        power = w.square()
        total = power.sum((0, 2), keepdim=True).clamp_(min=torch.finfo(w.dtype).tiny)
        return (self._beyond @ (power / total).amax(1).flatten()).sqrt()


def trigonometric_basis(degree: int, points: int) -> tuple[Tensor, Tensor]:
    """Return the basis and its derivatives at i/points, shape (points, 2K+1) each."""
    x = torch.arange(points, dtype=torch.float64) / points
    k = 2 * math.pi * torch.arange(1, degree + 1, dtype=torch.float64)
    angle = x[:, None] * k
    values = torch.ones(points, 2 * degree + 1, dtype=torch.float64)
    slopes = torch.zeros_like(values)
    values[:, 1::2], values[:, 2::2] = math.sqrt(2) * angle.cos(), math.sqrt(2) * angle.sin()
    slopes[:, 1::2], slopes[:, 2::2] = -k * values[:, 2::2], k * values[:, 1::2]
    return values, slopes


@lru_cache(maxsize=64)
def spectral_space(degree: int, dtype: torch.dtype, device: torch.device) -> SpectralSpace:
    """Return a `SpectralSpace`, made once for each degree."""
    return SpectralSpace(degree, dtype, device)


def to_spectrum(field: Float[Tensor, "batch n n"], degree: int) -> Tensor:
    """Return the coefficients (2K+1, B, 2K+1) of fields (B, n, n) at i/n; needs n > 2K."""
    points = field.shape[-1]
    values = trigonometric_basis(degree, points)[0].to(field) / points
    return (values.T @ field @ values).transpose(0, 1).contiguous()


def to_grid(w: Tensor, points: int) -> Float[Tensor, "batch n n"]:
    """Return the values (B, n, n) at i/n of the functions with coefficients w (2K+1, B, 2K+1)."""
    values = trigonometric_basis(w.shape[0] // 2, points)[0].to(w)
    return values @ w.transpose(0, 1) @ values.T


def resize(w: Tensor, degree: int) -> Tensor:
    """Cut or pad with zeros a spectrum (..., 2J+1, B, 2J+1) to degree K: (..., 2K+1, B, 2K+1)."""
    size, old = 2 * degree + 1, w.shape[-1]
    if size > old:
        return torch.nn.functional.pad(w, (0, size - old, 0, 0, 0, size - old))
    return w[..., :size, :, :size].contiguous()


class Step(NamedTuple):
    """What one Runge-Kutta step returns."""

    w: Tensor  # (2K+1, B, 2K+1), of fifth order
    rate: Tensor  # f - u . grad w there: the first stage of the next step
    error: Tensor  # (), the largest relative L2 error estimate of a sample


def runge_kutta_step(
    space: SpectralSpace, w: Tensor, rate: Tensor, f: Tensor, viscosity: float, h: float
) -> Step:
    """Advance w (2K+1, B, 2K+1) by a time h; `rate` is ``space.rate(w, f)``.

    Stage i is ``E(c_i) w + h sum_j a_ij E(c_i - c_j) N_j`` with ``E(c) = exp(c h nu Lap)`` and the
    rate N_j at stage j.
    """
    decay = dict(zip(_PAIRS, space.decays(viscosity * h), strict=True))
    rates, stage = [rate], w
    for i, weights in enumerate(_STAGES, 1):
        at = min(i, 5)  # stages 5 and 6 are both at the end of the step
        stage = w * decay[at, 0]
        for j, weight in enumerate(weights):
            if weight:
                stage.add_(rates[j] * decay[at, j] if j < at else rates[j], alpha=h * weight)
        rates.append(space.rate(stage, f))
    error = rates[6] * _ERROR[6] + rates[5] * _ERROR[5]
    for j in (0, 2, 3, 4):
        error.addcmul_(rates[j], decay[5, j], value=_ERROR[j])
    scale = stage.norm(dim=(0, 2)).maximum(w.norm(dim=(0, 2)))
    relative = h * error.norm(dim=(0, 2)) / scale.clamp(min=torch.finfo(w.dtype).tiny)
    return Step(stage, rates[6], relative.amax())


class March(NamedTuple):
    """One accepted step of `integrate`."""

    time: float  # at its end
    step: float
    degree: int


def integrate(
    w: Tensor, f: Tensor, viscosity: float, time: float, tolerance: float, coarsen: bool
) -> tuple[Tensor, list[March]]:
    """Integrate spectra w (2K+1, B, 2K+1), f (2K+1, 1, 2K+1) with a controlled error.

    Returns
    -------
    tuple
        w(time), with the degree it ended on, and the accepted steps.
    """
    full = w.shape[0] // 2
    cut = _CUT * tolerance
    forcing, floor = f, 0
    if coarsen:
        floor = int((spectral_space(full, w.dtype, w.device).tails(f) > cut).sum())
    degree, now, march = full, 0.0, []
    space = spectral_space(full, w.dtype, w.device)
    rate = space.rate(w, f)
    # a fraction of the time in which the vorticity turns, or the forcing builds one up
    speed = float(torch.stack([w.norm(dim=(0, 2)).amax(), f.norm().sqrt()]).amax())
    h = tolerance**0.2 / speed if speed else time
    while now < time:
        # equal steps for the rest rather than a short last one
        rest = time - now
        h = rest / math.ceil(rest / h) if rest < 3 * h else h
        if h < 1e-9 * time:
            raise DataError(f"the step of the Navier-Stokes solver collapsed at t = {now:g}")
        step = runge_kutta_step(space, w, rate, f, viscosity, h)
        tails = space.tails(step.w)
        error, filled = torch.stack([step.error, (tails > cut).sum().to(tails)]).tolist()
        filled = int(filled)  # the degree that holds all but the threshold
        ratio = error / (_LOCAL * tolerance)
        factor = _SAFETY * ratio**-0.2 if ratio > 0 else _GROW
        factor = min(max(factor, _SHRINK), _GROW) if math.isfinite(ratio) else _SHRINK
        narrow = filled >= degree < full
        if ratio <= 1 and not narrow:
            now = time if h == rest else now + h
            w, rate = step.w, step.rate
            march.append(March(now, h, degree))
            wanted = max(filled, floor) + _SPARE
        else:
            wanted = degree + max(2, degree // 4) if narrow else degree
            factor = min(factor, 1.0)
        h *= factor
        wanted = min(wanted, full) if coarsen else full
        if wanted != degree:
            grown, degree = wanted > degree, wanted
            space = spectral_space(degree, w.dtype, w.device)
            w, f = resize(w, degree), resize(forcing, degree)
            rate = space.rate(w, f) if grown else resize(rate, degree)
    return w, march


@torch.no_grad()
def solve_navier_stokes(
    w0: Tensor,
    forcing: Tensor,
    viscosity: float,
    time: float,
    tolerance: float = 1e-6,
    chunk: int | None = None,
    coarsen: bool = True,
) -> Float[Tensor, "batch n n"]:
    """Solve the vorticity equation from t = 0 to `time`.

    Parameters
    ----------
    w0 : Tensor, shape (B, n, n)
        Initial vorticity at the points (i/n, j/n), axis 1 in x and axis 2 in y, in single or double
        precision. The result has its precision and device; single precision is used for the
        computation if the tolerance is at least 7.6e-6.
    forcing : Tensor, shape (n, n)
        The forcing f at the same points, constant in time.
    viscosity : float
        The viscosity nu >= 0.
    time : float
        The final time T > 0.
    tolerance : float
        The relative L2 error of w(T) that time stepping and coarsening may cause, from 1e-12; see
        the errors measured above.
    chunk : int, optional
        Samples that are solved together, with a common step: the result repeats bit for bit for the
        same w0 and chunk, and depends on the chunk within the tolerance. The default, 8 on a CPU,
        keeps them in the cache.
    coarsen : bool
        Drop the modes that the flow does not fill.

    Returns
    -------
    Tensor, shape (B, n, n)
        The vorticity at `time`.
    """
    _check(w0, forcing, viscosity, time, tolerance, chunk)
    n = w0.shape[-1]
    chunk = chunk or (CHUNK_CUDA if w0.is_cuda else CHUNK_CPU)
    single = w0.dtype == torch.float32 and tolerance >= _SINGLE
    dtype = torch.float32 if single else torch.float64
    f = to_spectrum(forcing[None].to(w0.device, dtype), (n - 1) // 3)
    out = torch.empty_like(w0)
    for first in range(0, len(w0), chunk):
        w = to_spectrum(w0[first : first + chunk].to(dtype), (n - 1) // 3)
        w, _ = integrate(w, f, viscosity, time, tolerance, coarsen)
        out[first : first + chunk] = to_grid(w, n)
    return out


def _check(
    w0: Tensor, forcing: Tensor, viscosity: float, time: float, tolerance: float, chunk: int | None
) -> None:
    n = w0.shape[-1] if w0.ndim else 0
    if w0.ndim != 3 or w0.shape[1] != n or n < 4:
        raise DataError(f"w0 has shape {tuple(w0.shape)}; it must be (B, n, n) with n >= 4")
    if w0.dtype not in (torch.float32, torch.float64):
        raise DataError(f"w0 has type {w0.dtype}; it must be float32 or float64")
    if forcing.shape != (n, n):
        raise DataError(f"forcing has shape {tuple(forcing.shape)}; it must be {(n, n)} as w0 is")
    if not (w0.isfinite().all() and forcing.isfinite().all()):
        raise DataError("w0 or forcing holds NaN or infinite values")
    if not 0 <= viscosity < math.inf:
        raise DataError(f"viscosity is {viscosity}; it must be finite and not negative")
    if not 0 < time < math.inf:
        raise DataError(f"time is {time}; it must be finite and positive")
    if not _FINEST <= tolerance < 1:
        raise DataError(f"tolerance is {tolerance}; it must be from {_FINEST} to below 1")
    if chunk is not None and chunk < 1:
        raise DataError(f"chunk is {chunk}; it must be at least 1")
