"""What sensors read, and how observation sets travel in batches.

An `Observations` batch holds `locations` (B, m, d), `values` (B, m) and `mask` (B, m); sets of
different sizes share a batch by padding, and `mask` is False on padding. Where sensors stand is
in `uqsonet.layouts`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.grids import Grid
from uqsonet.problems import Problem
from uqsonet.seeds import numpy_generator


@dataclass(frozen=True)
class Observations:
    """A batch of observation sets.

    Attributes
    ----------
    locations : Tensor, shape (B, m, d)
    values : Tensor, shape (B, m)
    mask : Tensor of bool, shape (B, m)
    """

    locations: Float[Tensor, "B m d"]
    values: Float[Tensor, "B m"]
    mask: Bool[Tensor, "B m"]

    @property
    def counts(self) -> Tensor:
        """Number of sensors in each set, shape (B,)."""
        return self.mask.sum(-1)

    def to(self, dtype: torch.dtype, device: torch.device | str | None = None) -> Observations:
        """Return a copy with floating-point tensors of `dtype` on `device`."""
        return Observations(
            self.locations.to(device=device, dtype=dtype),
            self.values.to(device=device, dtype=dtype),
            self.mask.to(device=device),
        )

    def __getitem__(self, index: slice | Tensor) -> Observations:
        return Observations(self.locations[index], self.values[index], self.mask[index])


def make_observations(
    locations: object,
    values: object,
    mask: object = None,
    grid: Grid | None = None,
    positive: bool = False,
) -> tuple[Observations, bool]:
    """Check what a user passed and bring it to batch form, float64.

    Parameters
    ----------
    locations : array, shape (m, d) or (B, m, d); (m,) is taken as (m, 1)
    values : array, shape (m,) or (B, m)
    mask : array of bool, shape of `values`, or None for no padding
    grid : Grid, optional
        Refuse unmasked locations outside its box.
    positive : bool
        Refuse values that are not positive (the observed field is a coefficient).

    Returns
    -------
    observations : Observations
    single : bool
        True if the arguments described one set rather than a batch.

    Raises
    ------
    ObservationError
        With what was found and what is allowed.
    """
    try:
        y = torch.as_tensor(values, dtype=torch.float64)
        x = torch.as_tensor(locations, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ObservationError(f"locations and values must be numeric arrays ({error})") from None
    if x.ndim == 1:
        x = x[:, None]
    single = y.ndim == 1
    if single:
        x, y = x[None], y[None]
    m = torch.ones_like(y, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    m = m[None] if single and m.ndim == 1 else m
    if m.dtype != torch.bool:
        raise ObservationError(f"mask must be boolean, found {m.dtype}")
    if y.ndim != 2 or x.shape[:-1] != y.shape or m.shape != y.shape:
        raise ObservationError(
            "shapes do not fit: locations (B, m, d), values (B, m) and mask (B, m) expected, found "
            f"{tuple(x.shape)}, {tuple(y.shape)}, {tuple(m.shape)}"
        )
    if not bool(m.any(-1).all()):
        raise ObservationError("an observation set is empty: at least one sensor is needed")
    if not bool(torch.isfinite(y[m]).all() and torch.isfinite(x[m]).all()):
        raise ObservationError("sensor locations and values must be finite (found NaN or inf)")
    if positive and not bool((y[m] > 0).all()):
        raise ObservationError(f"sensor values must be positive, found {float(y[m].min())}")
    if grid is not None:
        if x.shape[-1] != grid.dim:
            raise ObservationError(
                f"locations have {x.shape[-1]} coordinates, the domain has {grid.dim}"
            )
        grid.require_inside(x[m])
    # Padding gets harmless values, so that nothing a caller left there can spread.
    x = torch.where(m[..., None], x, torch.zeros_like(x))
    return Observations(x, torch.where(m, y, torch.ones_like(y)), m), single


def observations_of(
    problem: Problem, locations: object, values: object, mask: object = None
) -> tuple[Observations, bool]:
    """Check what a user passed against a problem's domain; see `make_observations`."""
    positive = problem.transform.name == "log"
    return make_observations(locations, values, mask, problem.grid, positive)


def observe(
    problem: Problem,
    kappa: Tensor,
    layouts: Tensor,
    noise: Tensor | None = None,
    points: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Read a field at sensors, with noise where the field is Gaussian.

    Parameters
    ----------
    kappa : Tensor, shape (B, n)
    layouts : Tensor of int, shape (B, m)
        Indices of grid points.
    noise : Tensor, shape (B, m), optional
        Additive in the transformed field: multiplicative ``exp(noise)`` where that is log kappa.
    points : Tensor, shape (n, d), optional
        The grid's points where a caller has them at hand.

    Returns
    -------
    locations : Tensor, shape (B, m, d)
    values : Tensor, shape (B, m)
    """
    values = kappa.gather(-1, layouts)
    if noise is not None:
        values = problem.transform.inverse(problem.transform.forward(values) + noise)
    points = problem.grid.points().to(kappa) if points is None else points
    return points[layouts], values


def evaluation_observations(
    problem: Problem,
    kappa: Tensor,
    layouts: dict[int, Tensor],
    noise_std: float,
    seed: int,
    split: str,
) -> Observations:
    """Return the observation sets of a split: set s at count m sees function s.

    Sets are ordered by count, then by function; shape (counts * S, largest m), float64.
    """
    sets, widest = len(kappa), max(layouts)
    parts = []
    for m, indices in layouts.items():
        generator = numpy_generator(seed, problem.name, split, "noise", m)
        noise = torch.from_numpy(generator.standard_normal((len(indices), m)))[:sets] * noise_std
        x, y = observe(problem, kappa.double(), indices[:sets], noise if noise_std else None)
        pad = widest - m
        mask = torch.ones_like(y, dtype=torch.bool)
        parts.append(
            (
                torch.nn.functional.pad(x, (0, 0, 0, pad)),
                torch.nn.functional.pad(y, (0, pad), value=1.0),
                torch.nn.functional.pad(mask, (0, pad)),
            )
        )
    x, y, mask = (torch.cat(part) for part in zip(*parts, strict=True))
    return Observations(x, y, mask)
