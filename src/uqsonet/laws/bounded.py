"""A Gaussian field within bounds: a draw counts only if it is inside them at every point.

For inputs with a hard lower or upper end that many of them touch (a porosity, a saturation). Mean
and covariance are those of the Gaussian *before* it is cut off. They are estimated by expectation
maximisation, with the fields outside the bounds as missing data (Lee & Scott, Comput. Stat. Data
Anal. 56, 2012): with a share alpha of the Gaussian's draws within the bounds, each step adds alpha
times the difference between the moments of the data and those of draws within the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import condition, covariance_root, sensor_noise
from uqsonet.gauss.given import Given, Separate
from uqsonet.gauss.seeds import torch_generator
from uqsonet.laws.base import (
    MIN_TAIL_NOISE,
    InputLaw,
    Layout,
    Linear,
    farthest_tail,
    require,
)
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases, rounding_noise
from uqsonet.laws.truncated import truncated_samples
from uqsonet.sensors.sensors import Sensors

EM_STEPS = 80  # steps of expectation maximisation
EM_DRAWS = 8192  # draws within the bounds in each of them
MIN_INSIDE = 0.02  # share of the Gaussian's draws within the bounds, or the law does not fit
MIN_OUTSIDE = 0.05  # share of the plain Gaussian's draws outside, or the law does not fit
MAX_TRIES = 64  # draws per sample; after these, Hamiltonian Monte Carlo is used instead


def covariance_of(a: Tensor) -> Tensor:
    """Return the covariance (r, r) of draws (n, r)."""
    left = a - a.mean(0)
    return left.T @ left / len(a)


class BoundedGiven(Given):
    """A conditioned Gaussian within bounds, by rejection or else by Hamiltonian Monte Carlo."""

    def __init__(self, law: BoundedLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        rows, residual = (seen[0].cpu() for seen in bases.at_sensors(sensors))
        noise = sensors.noise()[0]
        level = sensor_noise(noise, bases.input_remainder.cpu(), rounding_noise(bases))
        self._law, self._bases = law, bases
        self._gaussian = condition(rows @ law.root, residual - rows @ law.mean, level, None)

        values = bases.fields.input.transform.forward(sensors.values[0].double())
        beyond = torch.maximum(values - law.upper, law.lower - values).clamp_min(0)
        least = MIN_TAIL_NOISE * float(law.upper - law.lower)
        self.tail = farthest_tail(beyond / noise.clamp_min(least))

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients of fields within the bounds, by rejection if possible."""

        def white(count: int) -> Tensor:
            shape = count, len(self._law.mean)
            z = torch.randn(shape, generator=generator, dtype=torch.float64)
            return self._gaussian.coordinates(z)

        found, _ = self._law.accepted(self._bases, white, size, MAX_TRIES * size)
        if len(found) >= size:
            return found[None, :size].float()
        return self._by_chains(size, generator)[None]

    def _by_chains(self, size: int, generator: torch.Generator) -> Tensor:
        """Return coefficients (size, r) by Hamiltonian Monte Carlo for the field on its grid."""
        law, gaussian = self._law, self._gaussian
        factor = self._bases.input_factor.double().cpu()
        rows = factor @ law.root @ gaussian.root
        mean = self._bases.input_mean.cpu() + factor @ (law.mean + gaussian.mean @ law.root)
        nugget = 1e-10 * rows.square().sum(1).amax() * torch.eye(len(rows), dtype=rows.dtype)
        low, high = (b.double().expand(len(rows)) for b in (law.lower, law.upper))
        try:
            fields = truncated_samples(mean, rows @ rows.T + nugget, low, high, size, generator)
        except ObservationError:
            raise ObservationError(
                f"no field within the bounds that training inputs have ({float(law.lower):g} to "
                f"{float(law.upper):g}, transformed) agrees with these sensors: state their noise"
            ) from None
        return self._bases.coefficients_of(fields)


class BoundedLaw(InputLaw):
    """A Gaussian law of the coefficients, given that the field is within bounds everywhere.

    The bounds are of the transformed field. The Gaussian has mean (r,), and `root` (r, r) is the
    symmetric one of its covariance.
    """

    name = "bounded"
    misfit = "a Gaussian law of theirs leaves their range hardly ever, or almost always"
    separate, reads_functionals = True, False
    layout: ClassVar[Layout] = {
        "lower": ("", torch.float64),
        "upper": ("", torch.float64),
        "mean": ("r", torch.float64),
        "root": ("rr", torch.float64),
    }

    def __init__(self, lower: Tensor, upper: Tensor, mean: Tensor, root: Tensor) -> None:
        if not bool(lower < upper):
            raise ValueError("the lower bound must be below the upper one")
        self.lower, self.upper, self.mean, self.root = lower, upper, mean, root

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> Self | None:
        """Return the law with the Gaussian before the cut; None where inputs touch no bounds."""
        generator = torch_generator(seed, "law", cls.name)
        lower, upper = sample.fields.amin().double(), sample.fields.amax().double()
        if not bool(lower < upper):
            return None
        a, bases = sample.coefficients, sample.bases
        data_mean, data_covariance = a.mean(0), covariance_of(a)
        mean, covariance = data_mean.clone(), data_covariance.clone()

        def white(count: int) -> Tensor:
            shape = count, a.shape[1]
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        for step in range(EM_STEPS):
            law = cls(lower, upper, mean, covariance_root(covariance))
            tries = EM_DRAWS if step == 0 else int(EM_DRAWS / MIN_INSIDE)
            inside, share = law.accepted(bases, white, EM_DRAWS, tries)
            if share < MIN_INSIDE or (step == 0 and share > 1 - MIN_OUTSIDE):
                return None
            # Longer steps at first: expectation maximisation is slow where few draws are within.
            rate = min(1.0, (4.0 if step < EM_STEPS // 2 else 1.0) * share)
            mean = mean + rate * (data_mean - inside.mean(0))
            covariance = covariance + rate * (data_covariance - covariance_of(inside))
        return cls(lower, upper, mean, covariance_root(covariance))

    def condition(
        self, bases: KarhunenLoeveBases, sensors: Sensors, also: Linear | None = None
    ) -> Given | None:
        """Return the law of the coefficients given each set of sensors (`InputLaw.condition`)."""
        if also is not None:
            return None
        return Separate([BoundedGiven(self, bases, sensors.alone(b)) for b in range(len(sensors))])

    def accepted(
        self, bases: KarhunenLoeveBases, white: Callable[[int], Tensor], size: int, tries: int
    ) -> tuple[Tensor, float]:
        """Return draws (k, r) within the bounds everywhere, and their share of all draws.

        There are at least `size`, unless so many `tries` are over. `white` maps a number to as many
        draws (n, r) in the coordinates of `root`.
        """
        kept: list[Tensor] = []
        inside = tried = 0
        while inside < size and tried < tries:
            a = self.mean + white(size) @ self.root
            kept.append(a[bases.within(a, float(self.lower), float(self.upper))])
            inside, tried = inside + len(kept[-1]), tried + len(a)
        return torch.cat(kept) if kept else torch.empty(0), inside / max(1, tried)

    def tensors(self) -> dict[str, Tensor]:
        """Return bounds, and mean and root of the Gaussian."""
        return {name: getattr(self, name) for name in self.layout}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> Self:
        """Return the law that `tensors` were taken of."""
        require(tensors, cls.layout, bases)
        return cls(**tensors)
