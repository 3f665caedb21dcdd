"""Exact posteriors of input and output where u depends affinely on a Gaussian input.

Sensors may stand on either side. Both fields are affine in the coordinates xi of the prior, so the
sensors are rows of a matrix on xi, whoever they read, and xi has a Gaussian law in closed form
(appendix A.2). One draw of xi gives kappa and, through the solver, the u that belongs to it.

Nothing of the size of the grid squared is formed: rows are pulled back through solver and prior by
their adjoints (reverse differentiation of a linear map is its adjoint), and an orthonormal basis of
the m rows carries the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from uqsonet.errors import ConfigError
from uqsonet.gauss.gaussian import condition
from uqsonet_study.problems import Problem

Side = Literal["input", "output"]

BATCH = 64  # functionals, or functions, that are handled together
Map = Callable[[Tensor], Tensor]  # an affine map, row by row


class GridSensors(NamedTuple):
    """Sensors of one field on its grid of n points."""

    place: Tensor  # flat indices of grid points, int, (m,)
    values: Tensor  # (m,)
    # (m,), of independent Gaussian noise; zero for exact values. Values that went through single
    # precision are not exact: their rounding is noise, about 1e-7 of the field.
    noise_std: float | Tensor = 0.0

    @property
    def noise(self) -> Tensor:
        """Noise of each sensor, shape (m,), float64."""
        return torch.as_tensor(self.noise_std, dtype=torch.float64).expand(len(self.values))


class LinearPosterior:
    """The joint law of kappa and u given sensors; see `linear_posterior`.

    Attributes
    ----------
    problem : Problem
    """

    def __init__(
        self, problem: Problem, rows: Tensor, residuals: Tensor, noise_std: Tensor
    ) -> None:
        self.problem = problem
        noise: float | Tensor = noise_std
        if not bool((noise_std > 0).any()):  # then rows count alike whatever their units
            size = rows.norm(dim=1)
            size = torch.where(size > 0, size, torch.ones_like(size))
            rows, residuals, noise = rows / size[:, None], residuals / size, 0.0
        # rows = left.T @ basis.T: the coordinates outside of the basis keep their prior
        self._basis, left = torch.linalg.qr(rows.T)
        self._law = condition(left.T, residuals, noise, None)

    def _map(self, side: Side) -> Map:
        if side == "output" and self.problem.affine != "kappa":
            raise ConfigError(f"{self.problem.name}: u is not affine in its input; sample it")
        return affine_maps(self.problem)[side]

    def mean(self, side: Side) -> Float[Tensor, " n"]:
        """Return the exact mean of a field on the grid."""
        return self._map(side)((self._basis @ self._law.mean)[None])[0]

    def std(self, side: Side) -> Float[Tensor, " n"]:
        """Return the exact standard deviation of a field at each grid point.

        It is a difference of variances: below 1e-7 of the prior's it is rounding. The prior's are
        computed at first use (a solve for each coordinate), and kept.
        """
        law = self._law
        taken = law.variance_reduction.sqrt()[:, None] * law.directions
        variance = _prior_variance(self.problem, side).clone()
        for some in responses(self._map(side), taken @ self._basis.T):
            variance -= some.square().sum(0)
        return variance.clamp_min(0).sqrt()

    def sample(self, size: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Draw `size` pairs (kappa, u), each (size, n): row i of u belongs to row i of kappa."""
        field, kappa, u = self.problem.gaussian_prior, [], []
        for start in range(0, size, self.problem.block):
            shape = (min(self.problem.block, size - start), field.rank)
            normals = torch.from_numpy(generator.standard_normal(shape))
            seen = normals @ self._basis
            xi = normals + (self._law.coordinates(seen) - seen) @ self._basis.T
            kappa.append(field.field(xi))
            u.append(self.problem.solve(kappa[-1]))
        none = torch.empty(0, self.problem.grid.size, dtype=torch.float64)
        return torch.cat([none, *kappa]), torch.cat([none, *u])


def linear_posterior(
    problem: Problem,
    sensors_in: GridSensors | None = None,
    sensors_out: GridSensors | None = None,
) -> LinearPosterior:
    """Return the exact joint law of kappa and u given sensors of either side.

    Parameters
    ----------
    problem : Problem
        u depends affinely on kappa, a Gaussian field, and on nothing else. Given sensors of kappa
        alone, u may depend on it in any way; its law is then known by samples.
    sensors_in, sensors_out : GridSensors, optional
        Sensors of kappa and of u. Where some are exact and others are not, the exact ones count
        with the noise that `uqsonet.gauss.gaussian.condition` says.

    Returns
    -------
    LinearPosterior
        Without sensors the prior.

    Raises
    ------
    ConfigError
        If the problem is another.
    """
    affine = problem.affine == "kappa" or sensors_out is None
    if not affine or problem.unobserved or problem.transform.name != "identity":
        raise ConfigError(
            f"problem {problem.name}: no posterior in closed form; u has to depend affinely on "
            "its Gaussian input and on no other"
        )
    start = torch.zeros(1, problem.gaussian_prior.rank, dtype=torch.float64)
    rows, residuals, noise = [start[:0]], [start[0, :0]], [start[0, :0]]
    sides: list[tuple[Side, GridSensors | None]] = [("input", sensors_in), ("output", sensors_out)]
    for side, sensors in sides:
        if sensors is None:
            continue
        apply, values = affine_maps(problem)[side], sensors.values.double()
        centre = apply(start)[0]
        for first in range(0, len(values), BATCH):
            part = slice(first, first + BATCH)
            places = sensors.place[part].long()
            some = torch.nn.functional.one_hot(places, problem.grid.size).double()
            rows.append(pulled_back(apply, start, some))
            residuals.append(values[part] - some @ centre)
        noise.append(sensors.noise)
    return LinearPosterior(problem, torch.cat(rows), torch.cat(residuals), torch.cat(noise))


def pulled_back(
    apply: Map, start: Float[Tensor, "1 r"], weights: Float[Tensor, "m n"]
) -> Float[Tensor, "m r"]:
    """Return functionals of what an affine map makes of `start` as functionals of `start`."""
    with torch.enable_grad():
        argument = start.detach().clone().requires_grad_()
        outcome = apply(argument)
        (found,) = torch.autograd.grad(outcome, argument, weights[:, None], is_grads_batched=True)
    return found[:, 0]


def affine_maps(problem: Problem) -> dict[Side, Map]:
    """Return the affine maps from coordinates (B, r) to either field (B, n)."""
    field = problem.gaussian_prior.field
    return {"input": field, "output": lambda xi: problem.solve(field(xi))}


def responses(apply: Map, xi: Float[Tensor, "k r"]) -> Iterator[Float[Tensor, "b n"]]:
    """Yield the linear part of an affine map at coordinates (k, r), a batch at a time."""
    centre = apply(torch.zeros_like(xi[:1]))
    for some in xi.split(BATCH):
        yield apply(some) - centre


def unit_responses(apply: Map, rank: int) -> Iterator[Float[Tensor, "b n"]]:
    """Yield the linear part of an affine map at each unit vector, a batch at a time."""
    for first in range(0, rank, BATCH):
        unit = torch.arange(first, min(first + BATCH, rank))
        yield from responses(apply, torch.nn.functional.one_hot(unit, rank).double())


@lru_cache(maxsize=8)
def _prior_variance(problem: Problem, side: Side) -> Tensor:
    variance = torch.zeros(problem.grid.size, dtype=torch.float64)
    for some in unit_responses(affine_maps(problem)[side], problem.gaussian_prior.rank):
        variance += some.square().sum(0)
    return variance
