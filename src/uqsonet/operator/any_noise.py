"""Readings whose noise is not Gaussian: the nearest Gaussian answer, weighted and moved.

Readings of the output are ``y = H (b(a) + e) + w + noise``, with a of the input, e what the
operator leaves over, and w what the modes leave out; those of the input have no e. The likelihood
is of the noise alone, so it is asked at predicted readings that hold e and w: samples of
``(a, e, w)`` given Gaussian noise of stated levels are weighted by the likelihood over the Gaussian
one, and brought to the posterior by tempered moves (`uqsonet.operator.particles`). Of a law of
single readings the levels are those that expectation maximisation gives, so that outliers hardly
count in the Gaussian answer either.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.posterior import MOMENT_SEED, LatentPosterior
from uqsonet.operator.joint import (
    MADE_PARTICLES,
    PARTICLES,
    JointPosterior,
    Model,
    OneSet,
    OutputReadings,
    Sampled,
    input_posterior,
    sampled_draws,
    sampled_moments,
)
from uqsonet.operator.particles import SAMPLE_ROWS, Following, Samples, Source, tempered
from uqsonet.sensors.sensors import Sensors

REFITS = 6
"""Number of times that levels of the nearest Gaussian noise are worked out, at most."""

REFIT_SAMPLES = 512
"""Number of samples behind each."""

SETTLED = 0.05
"""Levels that change by less than this share are kept."""

IMPOSSIBLE = 1e4
"""A likelihood of zero counts as this far, in logarithms, below the least that is positive."""

UNLIKELY = (
    "the likelihood is zero for all of {} samples of the Gaussian answer: state a noise_std that "
    "comes nearer to it"
)

NOTHING = -1e9
"""Logarithm of a likelihood of zero where samples are led to it by steps."""

NEGLIGIBLE_SHARE = 1e-3
"""Share of a reading's variance that what modes leave out may have and be left out."""

LEAPS = 3
"""Number of steps of each Hamiltonian move."""

FAR_MOVED_SHARE = 0.1
"""Effective share that a rise leaves where moves are Hamiltonian: few rises are needed."""

MAX_NOISE_MOVES = 100
"""Moves after one rise, at most."""


class ReadingNoise(Protocol):
    """The noise of a set of readings, the input's before the output's, as the model has them."""

    def log_likelihood(self, off: Tensor) -> Tensor:
        """Return log-likelihoods (S,) of readings that are off (S, m) from what is predicted."""
        ...

    @property
    def smooth(self) -> bool:
        """Whether torch can differentiate it."""
        ...

    def nearest(self, off: Tensor, levels: Tensor) -> Tensor | None:
        """Return levels (m,) of a nearer Gaussian for samples (S, m) of one of these levels.

        None if they are as stated.
        """
        ...


class _Noisy(Source):
    """Samples of (a, e, w) given Gaussian noise, weighted by the likelihood of the real one.

    Their z is standard normal where the law of a is one of `coordinates`, else it holds a itself.
    """

    max_moves = MAX_NOISE_MOVES

    def __init__(
        self,
        model: Model,
        seen: Sensors,
        read: Sensors,
        noise: ReadingNoise,
        generator: torch.Generator,
    ) -> None:
        given = model.input_law_given(seen)
        self._readings = readings = OutputReadings(model, read, model.residual_root(given, 1))
        self._one = one = OneSet(model, seen, given, readings)
        self._law, straight = one.linearised(generator)
        self._source, self._noise = one.reweighted(self._law, straight), noise
        self.made = self._law.latent > 0
        rows, residual = one.at_sensors
        self._seen_rows, self._seen_values = rows[0], residual[0]
        left = model.bases.input_remainder.cpu() * torch.as_tensor(seen.norm(2))
        left = torch.cat([left.square().expand_as(residual)[0], readings.beyond[0]])
        variance = torch.cat([seen.noise()[0].square(), readings.variance[0] - readings.beyond[0]])
        share = left / (left + variance)
        self._std, self._kept, self._spread = variance.sqrt(), 1 - share, (share * variance).sqrt()
        covariance = readings.covariance[0]
        narrowed = covariance - readings.gain[0] @ readings.rows[0] @ covariance
        self._root = covariance_root(narrowed) if bool(covariance.any()) else narrowed[:, :0]
        beyond = len(left) if float(share.max()) > NEGLIGIBLE_SHARE else 0
        self._sizes = self._root.shape[1], beyond
        self._floor: float | None = None
        self._directions: dict[float, tuple[Tensor, Tensor]] = {}
        self._smooth = self._law.has_coordinates and noise.smooth
        if self._smooth:  # moves go far
            self.effective_share = FAR_MOVED_SHARE

    def placed(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return a (n, r), c = b(a) + e (n, p), and how far readings are off (n, m)."""
        of_a, own, beyond = z.split([z.shape[1] - sum(self._sizes), *self._sizes], 1)
        a = of_a
        if self.made:
            a = self._one.made(of_a)
        elif self._law.has_coordinates:
            a = self._law.coordinates(of_a[:, 1:], of_a[:, 0].long())
        readings, c = self._readings, self._one.branch(a.float())
        off = readings.values[0] - c @ readings.rows[0].T
        if own.shape[1]:
            e = off @ readings.gain[0].T + own @ self._root.T
            c, off = c + e, off - e @ readings.rows[0].T
        if len(self._seen_values):
            off = torch.cat([self._seen_values - a.double() @ self._seen_rows.T, off], 1)
        if beyond.shape[1]:
            off = off * self._kept - beyond * self._spread
        return a.float(), c, off

    def nearest(self, generator: torch.Generator) -> Tensor | None:
        """Return levels (m,) of Gaussian noise that come nearer, None if there are none."""
        return self._noise.nearest(self.placed(self._drawn(REFIT_SAMPLES, generator))[2], self._std)

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return samples of the Gaussian answer."""
        found, _ = self._weighted(self._drawn(size, generator))
        finite = found.weight[found.weight.isfinite()]
        if not len(finite):
            raise ObservationError(UNLIKELY.format(size))
        self._floor = float(finite.min()) - IMPOSSIBLE
        return replace(found, weight=found.weight.nan_to_num(neginf=self._floor))

    def particles(self, size: int, generator: torch.Generator) -> tuple[Sampled, Tensor, Samples]:
        """Return the law of a, samples of c (n, p), and samples of both."""
        source, size = (self._following(), MADE_PARTICLES) if self.made else (self, size)
        found, _ = tempered(source, size, generator)
        c, off = self.placed(found.z)[1:]
        if self.made and bool((self._noise.log_likelihood(off) <= NOTHING).all()):
            raise ObservationError(UNLIKELY.format(size))
        return self._one.sampled(found), c, found

    def _following(self) -> Following:
        """Return moves of latent fields: to the Gaussian answer first, then to the real noise."""

        def weighed(z: Tensor) -> tuple[Tensor, Tensor]:
            a, _, off = self.placed(z)
            found = (off / self._std).square().sum(1) / 2 + self._noise.log_likelihood(off)
            return a, torch.stack([self._source.log_weight(a), found.clamp_min(NOTHING)], 1)

        return Following(weighed, self._law.latent + sum(self._sizes))

    def _drawn(self, size: int, generator: torch.Generator) -> Tensor:
        """Return z (n, k) of samples."""
        if not self._law.has_coordinates:
            of_a = self._law.sample(size, generator)[0].double()
        else:
            kinds = self._law.kinds(size, generator)[0].double()
            of_a = _normals(size, self._law.mean.shape[1], generator)
            of_a = torch.cat([kinds[:, None], of_a], 1)
        return torch.cat([of_a, _normals(size, sum(self._sizes), generator)], 1)

    def _weighted(self, z: Tensor, slope: bool = False) -> tuple[Samples, Tensor | None]:
        """Return samples, and the slope of their weights in z where it is asked for."""
        parts, slopes = [], []
        for rows in z.split(SAMPLE_ROWS):
            with torch.set_grad_enabled(slope):
                rows = rows.detach().requires_grad_(slope)
                a, _, off = self.placed(rows)
                weight = (off / self._std).square().sum(1) / 2
                weight = weight + self._source.log_weight(a) + self._noise.log_likelihood(off)
                if slope:
                    slopes.append(torch.autograd.grad(weight.sum(), rows)[0].nan_to_num())
            parts.append((a.detach(), weight.detach()[:, None]))
        a, weight = (torch.cat(part) for part in zip(*parts, strict=True))
        found = Samples(
            a, weight if self._floor is None else weight.nan_to_num(neginf=self._floor), z
        )
        return found, torch.cat(slopes) if slope else None

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples by moves that leave the Gaussian answer as it is."""
        first = 1
        if not self._law.has_coordinates:
            first = self._law.mean.shape[1]
            a = self._law.moved(z[None, :, :first].float(), step, generator)[0].double()
        else:
            a = z[:, :1]
        rest, fresh = z[:, first:], _normals(len(z), z.shape[1] - first, generator)
        after = step * fresh + math.sqrt(1 - step**2) * rest
        if self._law.has_coordinates and step < 1:
            for kind in a.unique().tolist():
                mine = (a[:, 0] == kind).nonzero()[:, 0]
                along, size = self._seen_directions(kind)
                far = (step**2 / (step**2 + (1 - step**2) * size**2)).sqrt()
                seen, new = rest[mine] @ along.T, fresh[mine] @ along.T
                moved = (1 - far**2).clamp_min(0).sqrt() * seen + (far - 1) * new
                after[mine] = fresh[mine] + moved @ along
        return self._weighted(torch.cat([a, after], 1))[0]

    def _seen_directions(self, kind: float) -> tuple[Tensor, Tensor]:
        """Return directions (k, d) of z that readings see, and by how many of their levels (k,).

        Moves go far in the others (Cui, Law and Marzouk, J. Comput. Phys. 304, 2016).
        """
        if kind not in self._directions:
            z = torch.zeros(len(self._std), 1 + self._law.mean.shape[1] + sum(self._sizes)).double()
            z[:, 0] = kind
            with torch.enable_grad():
                off = self.placed(z.requires_grad_())[2]
                (slope,) = torch.autograd.grad(off.diagonal().sum(), z)
            _, seen, along = torch.linalg.svd(slope[:, 1:] / self._std[:, None], False)
            self._directions[kind] = along, seen.clamp_max(1)
        return self._directions[kind]

    def proposal(
        self, now: Samples, powers: Tensor, step: float, generator: torch.Generator
    ) -> tuple[Samples, Tensor]:
        """Return moved samples, by Hamiltonian dynamics where the likelihood has a slope."""
        if not self._smooth:
            return super().proposal(now, powers, step, generator)
        power = float(powers[0])
        angle = math.asin(step) / LEAPS
        cos, sin = math.cos(angle), math.sin(angle)
        kind, x = now.z.split([1, now.z.shape[1] - 1], 1)
        v = _normals(len(x), x.shape[1], generator)
        before = (x.square() + v.square()).sum(1)
        found, slope = self._weighted(now.z, slope=True)
        for _ in range(LEAPS):
            assert slope is not None
            v = v + power * math.tan(angle / 2) * slope[:, 1:]
            x, v = cos * x + sin * v, cos * v - sin * x
            found, slope = self._weighted(torch.cat([kind, x], 1), slope=True)
            assert slope is not None
            v = v + power * math.tan(angle / 2) * slope[:, 1:]
        after = (x.square() + v.square()).sum(1)
        return found, (found.weight - now.weight) @ powers - (after - before) / 2


def _normals(n: int, k: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, k, generator=generator, dtype=torch.float64)


@torch.no_grad()
def condition_any_noise(
    model: Model, seen: Sensors, read: Sensors, noise: ReadingNoise, size: int = PARTICLES
) -> JointPosterior:
    """Return the law of both fields given one set of checked sensors of each.

    Parameters
    ----------
    model : KarhunenLoeveModel
    seen, read : Sensors
        Of input and output, either of which may be none; their noise, positive, is that of the
        Gaussian answer to start from.
    noise : ReadingNoise
    size : int
        Samples behind the answer.
    """
    single, seen, read = seen.single, seen.alone(0), read.alone(0)
    seen = replace(seen, noise_std=seen.noise(model.noise_std))
    generator = torch.Generator().manual_seed(MOMENT_SEED)
    source = _Noisy(model, seen, read, noise, generator)
    for _ in range(0 if source.made else REFITS):
        levels = source.nearest(generator)
        before = torch.cat([seen.noise_std, read.noise_std], 1)[0]
        if levels is None or bool(((levels / before - 1).abs() < SETTLED).all()):
            break
        of_seen, of_read = levels[None].split([seen.values.shape[1], read.values.shape[1]], 1)
        seen, read = replace(seen, noise_std=of_seen), replace(read, noise_std=of_read)
        source = _Noisy(model, seen, read, noise, generator)
    law, c, found = source.particles(size, generator)
    effective = torch.tensor([found.effective_size]).double()
    if read.values.shape[1]:
        c = Sampled(c[None])
        output = LatentPosterior(
            model.fields.output.grid,
            model.bases.output_basis,
            single,
            partial(sampled_draws, c),
            partial(sampled_moments, c, model.config.output_modes),
        )
    else:
        root = model.residual_root(law, 1)
        output = model.output_posterior(law, root, single)
    given = input_posterior(model, single, law)
    return JointPosterior(given, output, effective, torch.ones_like(effective))
