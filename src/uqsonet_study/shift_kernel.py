"""Kernel regression of an operator that commutes with shifts: every pair counts as all its shifts.

The operator maps a shifted input to the output, shifted alike. Shifts of N pairs by all multiples
of 1/G of a period are G N pairs, whose kernel matrix has circulant blocks: the discrete Fourier
transform over the shifts makes it G matrices of N x N, one for each frequency of outputs modulo G
(invariant kernels: Haasdonk and Burkhardt, Mach. Learn. 68, 2007; circulant matrices: Davis, 1979).
So G N centres cost the memory of N, and G / 2 times its time.

The kernel is ``exp(<z, z'> / l)`` of weighted Fourier coefficients z of inputs, as in
`uqsonet_study.kernel_branch`. There is one weight for each frequency, so the kernel of two inputs
that are shifted alike stays the same.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from math import cos, isqrt, sin, tau

import torch
from torch import Tensor

from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet_study.kernel_branch import LENGTHS, KernelBranch

LOG = logging.getLogger("uqsonet")

SHIFTS = 16
"""Number of shifts of a pair, itself among them."""

RIDGES = (1e-8, 1e-6)
"""Ridges to try, relative to the kernel's diagonal."""

TRIED_ON = 1500
"""Maximum number of pairs that length and ridge are chosen on."""


@dataclass(frozen=True)
class Frequencies:
    """Half of the low frequencies of periodic fields in the plane; the others are conjugate.

    Parameters
    ----------
    indices : Tensor, shape (F, 2)
        Waves in a period along each axis.
    turns : Tensor, shape (F,)
        What a shift by 1/SHIFTS of a period multiplies them by: ``exp(-2 pi i turn / SHIFTS)``,
        with turn from 0 to SHIFTS / 2.
    """

    indices: Tensor
    turns: Tensor

    @classmethod
    def of(cls, most: int, direction: tuple[int, int]) -> Frequencies:
        """Return frequencies of at most `most` waves along each axis.

        A whole shift is `direction`, in periods of the two axes.
        """
        one = range(-most, most + 1)
        kept = []
        for index in itertools.product(one, one):
            turn = (direction[0] * index[0] + direction[1] * index[1]) % SHIFTS
            of_conjugate = -turn % SHIFTS
            if turn < of_conjugate or (turn == of_conjugate and index >= (0, 0)):
                kept.append((*index, turn))
        columns = torch.tensor(kept)
        return cls(columns[:, :2], columns[:, 2])

    def of_fields(self, fields: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return Fourier coefficients (N, F) of fields (N, n), complex128."""
        rows, columns = (self.indices % torch.tensor(shape)).T
        return torch.cat(
            [
                torch.fft.fft2(some.double().unflatten(1, shape), norm="forward")[:, rows, columns]
                for some in fields.split(500)
            ]
        )

    def shifted(self, coefficients: Tensor, shift: int) -> Tensor:
        """Return coefficients (N, F) of fields shifted so many times by 1/SHIFTS of a period."""
        phase = -tau * shift / SHIFTS * self.turns.double()
        return coefficients * torch.polar(torch.ones_like(phase), phase)

    def to_modes(self, projection: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the map (F, p): the real part of coefficients times it are those of modes.

        `projection` (n, p) maps fields to coefficients of modes.
        """
        twice = torch.where((self.indices == 0).all(1), 1.0, 2.0).double()[:, None]
        return twice * len(projection) * self.of_fields(projection.T, shape).conj().T


def _real(coefficients: Tensor) -> Tensor:
    """Return real and imaginary parts (N, 2 F), whose products are real parts of products."""
    return torch.cat([coefficients.real, coefficients.imag], 1)


@dataclass(frozen=True)
class ShiftKernel:
    """The regression of outputs' on inputs' Fourier coefficients.

    Parameters
    ----------
    frequencies : Frequencies
    shape : tuple of int
        Of the grid of both fields.
    sizes : Tensor, shape (F,)
        How much a frequency counts in the kernel.
    modes : Tensor, shape (r, F)
        Fourier coefficients of the input's modes.
    mean : Tensor, shape (1, F)
        Fourier coefficients of the input's mean.
    to_output : Tensor, shape (F, p)
        `Frequencies.to_modes` of outputs.
    constant : Tensor, shape (p,)
        What the branch gives besides: less the mean of the outputs, in their modes.
    """

    frequencies: Frequencies
    shape: tuple[int, ...]
    sizes: Tensor
    modes: Tensor
    mean: Tensor
    to_output: Tensor
    constant: Tensor

    @classmethod
    def of(
        cls, bases: KarhunenLoeveBases, shape: tuple[int, ...], direction: tuple[int, int]
    ) -> ShiftKernel:
        """Return the regression on as many frequencies as the bases have modes, at most.

        A frequency counts by the geometric mean of its size in the input and of the size of what
        the bases' linear operator makes of it.
        """
        most = (isqrt(bases.input_factor.shape[1]) - 1) // 2
        frequencies = Frequencies.of(most, direction)
        to_input = frequencies.to_modes(bases.from_fields(), shape)
        modes = frequencies.of_fields(bases.input_factor.T, shape)
        linear = bases.linear_weight.double().to(modes.dtype)
        through = (to_input @ linear.T).abs().square().sum(1).sqrt()
        whole = (through.sqrt() * modes.abs().square().sum(0).sqrt()).norm()
        projection = bases.output_projection().double() / bases.output_scale.double()
        return cls(
            frequencies,
            shape,
            through.sqrt() / whole,
            modes,
            frequencies.of_fields(bases.input_mean[None], shape),
            frequencies.to_modes(projection, shape),
            -(bases.output_mean @ projection),
        )

    def fit(self, inputs: Tensor, outputs: Tensor, held: tuple[Tensor, Tensor]) -> KernelBranch:
        """Return the branch that is the whole operator, best on held-out pairs.

        Parameters
        ----------
        inputs, outputs : Tensor, shape (N, n)
            Fields of pairs.
        held : tuple of Tensor, shapes (M, r) and (M, p)
            Coefficients of pairs that decide upon length and ridge.
        """
        z = self.frequencies.of_fields(inputs, self.shape) * self.sizes
        u = self.frequencies.of_fields(outputs, self.shape)
        errors = {}
        for length in LENGTHS:
            for ridge, branch in self._fitted(z[:TRIED_ON], u[:TRIED_ON], length, RIDGES).items():
                off = branch(held[0].double()) - held[1].double()
                errors[length, ridge] = float(off.square().sum(1).mean())
        length, ridge = min(errors, key=lambda key: errors[key])
        LOG.info("kernel: length %g, ridge %g of %s", length, ridge, errors)
        return self._fitted(z, u, length, (ridge,))[ridge]

    def _fitted(
        self, z: Tensor, u: Tensor, length: float, ridges: tuple[float, ...]
    ) -> dict[float, KernelBranch]:
        """Return the branch of each ridge for weighted inputs (N, F) and outputs (N, F)."""
        weights = {ridge: torch.empty_like(u) for ridge in ridges}
        diagonal = float((z.abs().square().sum(1) / length).exp().mean())
        for turn in range(SHIFTS // 2 + 1):
            own = self.frequencies.turns == turn
            kernel = self._kernel(z, length, turn)
            for ridge in ridges:
                kernel.diagonal().add_(ridge * diagonal)
                weights[ridge][:, own] = torch.cholesky_solve(
                    u[:, own], torch.linalg.cholesky(kernel)
                )
                kernel.diagonal().sub_(ridge * diagonal)
        return {ridge: self._branch(z, found, length) for ridge, found in weights.items()}

    def _kernel(self, z: Tensor, length: float, turn: int) -> Tensor:
        """Return the kernel (N, N) between outputs' coefficients of one turn, complex128."""
        left = _real(z) / length
        kernel = torch.zeros(len(z), len(z), dtype=z.dtype)
        for shift in range(SHIFTS // 2 + 1):
            near = torch.exp(left @ _real(self.frequencies.shifted(z, shift)).T)
            # The opposite shift has the transposed kernel; no shift and half a turn are their own.
            share = 0.5 if shift in (0, SHIFTS // 2) else 1.0
            angle = -tau * turn * shift / SHIFTS
            kernel.real.add_(near + near.T, alpha=share * cos(angle))
            kernel.imag.add_(near - near.T, alpha=share * sin(angle))
        return kernel

    def _branch(self, z: Tensor, weights: Tensor, length: float) -> KernelBranch:
        """Return the branch with all shifts of inputs (N, F) as its centres."""
        shifts = range(SHIFTS)
        shifted = self.frequencies.shifted
        return KernelBranch(
            _real(self.modes * self.sizes),
            _real(self.mean * self.sizes)[0],
            length,
            torch.cat([_real(shifted(z, shift)) for shift in shifts]),
            torch.cat([(shifted(weights, shift) @ self.to_output).real for shift in shifts]),
            self.constant,
        )
