"""A Gaussian field within bounds: a draw counts only if it is inside them at every point.

For inputs with a hard lower or upper end that many of them touch (a porosity, a saturation). Mean
and covariance are those of the Gaussian *before* it is cut off. They are estimated by expectation
maximisation, with the fields outside the bounds as missing data (Lee & Scott, Comput. Stat. Data
Anal. 56, 2012): with a share alpha of the Gaussian's draws within the bounds, each step adds alpha
times the difference between the moments of the data and those of draws within the bounds.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import condition, covariance_root, sensor_noise
from uqsonet.gauss.seeds import torch_generator
from uqsonet.laws.base import MIN_TAIL_NOISE, InputPosterior, SeparateLaw, farthest_tail
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases, rounding_noise
from uqsonet.laws.truncated import truncated_samples
from uqsonet.sensors.sensors import Sensors

EM_STEPS = 80  # steps of expectation maximisation
EM_DRAWS = 8192  # draws within the bounds in each of them
MIN_INSIDE = 0.02  # share of the Gaussian's draws within the bounds, or the law does not fit
MIN_OUTSIDE = 0.05  # share of the plain Gaussian's draws outside, or the law does not fit
MAX_TRIES = 64  # draws per sample; after these, Hamiltonian Monte Carlo is used instead


class BoundedPosterior(InputPosterior):
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
        law = self._law
        kept: list[Tensor] = []
        inside, tried = 0, 0
        while inside < size and tried < MAX_TRIES * size:
            z = torch.randn(2 * size, len(law.mean), generator=generator, dtype=torch.float64)
            a = law.mean + self._gaussian.coordinates(z) @ law.root
            kept.append(a[law.holds(self._bases, a)])
            inside, tried = inside + len(kept[-1]), tried + len(a)
        if inside >= size:
            return torch.cat(kept)[None, :size].float()
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


class BoundedLaw(SeparateLaw):
    """A Gaussian law of the coefficients, given that the field is within bounds everywhere.

    The bounds are of the transformed field. The Gaussian has mean (r,), and `root` (r, r) is the
    symmetric one of its covariance.
    """

    name = "bounded"
    posterior = BoundedPosterior
    misfit = "a Gaussian law of theirs leaves their range hardly ever, or almost always"
    layout: ClassVar = {
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
    def fit(cls, sample: InputSample, seed: int) -> list[BoundedLaw]:
        """Fit the Gaussian before the cut; nothing where the data touch no bounds."""
        generator = torch_generator(seed, "law", cls.name)
        lower, upper = sample.fields.amin().double(), sample.fields.amax().double()
        a, bases = sample.coefficients, sample.bases
        data_mean = a.mean(0)
        data_covariance = (a - data_mean).T @ (a - data_mean) / len(a)
        mean, covariance = data_mean.clone(), data_covariance.clone()
        for step in range(EM_STEPS):
            law = cls(lower, upper, mean, covariance_root(covariance))
            inside, share = law._draws(bases, generator)
            if share < MIN_INSIDE or (step == 0 and share > 1 - MIN_OUTSIDE):
                return []
            centre = inside.mean(0)
            spread = (inside - centre).T @ (inside - centre) / len(inside)
            # Longer steps at first: expectation maximisation is slow where few draws are within.
            rate = min(1.0, (4.0 if step < EM_STEPS // 2 else 1.0) * share)
            mean = mean + rate * (data_mean - centre)
            covariance = covariance + rate * (data_covariance - spread)
        return [cls(lower, upper, mean, covariance_root(covariance))]

    def _draws(self, bases: KarhunenLoeveBases, generator: torch.Generator) -> tuple[Tensor, float]:
        """Return coefficients (k, r) within the bounds, and the share of draws that are."""
        kept, drawn = [], 0
        while sum(map(len, kept)) < EM_DRAWS and drawn < EM_DRAWS / MIN_INSIDE:
            z = torch.randn(EM_DRAWS, len(self.mean), generator=generator, dtype=torch.float64)
            a = self.mean + z @ self.root
            kept.append(a[self.holds(bases, a)])
            drawn += len(a)
        inside = torch.cat(kept)
        return inside, len(inside) / drawn

    def holds(self, bases: KarhunenLoeveBases, a: Tensor) -> Tensor:
        """Return whether fields of coefficients (..., r) are within the bounds everywhere."""
        field = bases.input_mean.float().cpu() + a.float() @ bases.input_factor.cpu().T
        return (field.amin(-1) >= self.lower) & (field.amax(-1) <= self.upper)
