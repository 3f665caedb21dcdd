"""Readings whose noise is not Gaussian: samples of the nearest Gaussian answer, moved on.

Readings of the output are ``y = H (b(a) + e) + w + noise``, with a of the input, e what the
operator leaves over, and w what the modes leave out; those of the input have no e. The likelihood
is of the noise alone, so it is asked at predicted readings that hold e and w. All three are made of
standard normals that stand for the answer to Gaussian noise of the stated levels. Samples of them
are weighted by the branch over the linearised one, then by the likelihood over the Gaussian one,
and brought to the posterior by tempered moves (`uqsonet.operator.particles.Following`).
"""

from __future__ import annotations

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
from uqsonet.operator.particles import Following, Samples, tempered
from uqsonet.sensors.sensors import Sensors

NOTHING = -1e9  # logarithm of a likelihood of zero: samples are led away from it by steps
UNLIKELY = (
    "the likelihood is zero for all of {} samples of the Gaussian answer: state a noise_std that "
    "comes nearer to it"
)
FAR = 3.0  # levels that readings are off from which on samples start with noise of that size there
REFITS, REFIT_SAMPLES = 5, 512  # times that this is looked at, at most, and samples behind each
LAST_DISTANCE = 8.0  # how far samples move at last: within walls they spread slowly
MAX_MOVES = 100  # moves after one rise, at most
NEGLIGIBLE_SHARE = 1e-3  # of a reading's variance that what modes leave out may have and be ignored


class ReadingNoise(Protocol):
    """The noise of a set of readings, the input's before the output's, as the model has them."""

    def log_likelihood(self, off: Tensor) -> Tensor:
        """Return log-likelihoods (S,) of readings that are off (S, m) from what is predicted."""
        ...


class _Noisy:
    """What (a, e, w) are made of, and how far it is from the posterior.

    Of a law that is made of latent normals these come first. Of others one normal says which
    `kind` of Gaussian a is of, or which of some samples it is; the coordinates of the kind follow.
    """

    def __init__(
        self, model: Model, seen: Sensors, read: Sensors, noise: ReadingNoise,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        given = model.input_law_given(seen)
        self._readings = readings = OutputReadings(model, read, model.residual_root(given, 1))
        self.one = one = OneSet(model, seen, given, readings)
        self.law, straight = one.linearised(generator)
        self._weight, self._noise = one.reweighted(self.law, straight).log_weight, noise
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
        of_a = self.law.latent
        if self.law.has_coordinates:
            of_a = 1 + self.law.mean.shape[1]
            self._pool = self.law.kinds(PARTICLES, generator)[0].sort().values
        elif not of_a:
            pool = self.law.sample(PARTICLES, generator)[0]
            of_a, self._pool = 1, pool[pool[:, 0].argsort()]
        self._sizes = of_a, self._root.shape[1], beyond
        self.count = sum(self._sizes)

    def picked(self, z: Tensor) -> Tensor:
        """Return which of the pool the first coordinate (n, k) means."""
        return (torch.special.ndtr(z[:, 0]) * PARTICLES).long().clamp_max(PARTICLES - 1)

    def placed(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return a (n, r), c = b(a) + e (n, p), and how far readings are off (n, m)."""
        of_a, own, beyond = z.split(self._sizes, 1)
        if self.law.latent:
            a = self.one.made(of_a)
        elif self.law.has_coordinates:
            a = self.law.coordinates(of_a[:, 1:], self._pool[self.picked(z)])
        else:
            a = self._pool[self.picked(z)]
        readings, c = self._readings, self.one.branch(a.float())
        off = readings.values[0] - c @ readings.rows[0].T
        if own.shape[1]:
            e = off @ readings.gain[0].T + own @ self._root.T
            c, off = c + e, off - e @ readings.rows[0].T
        if len(self._seen_values):
            off = torch.cat([self._seen_values - a.double() @ self._seen_rows.T, off], 1)
        if beyond.shape[1]:
            off = off * self._kept - beyond * self._spread
        return a.float(), c, off

    def weighed(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return a (n, r), and logarithms (n, 2) of what leads to the Gaussian answer, and on."""
        a, _, off = self.placed(z)
        real = self._noise.log_likelihood(off).clamp_min(NOTHING)
        return a, torch.stack([self._weight(a), (off / self._std).square().sum(1) / 2 + real], 1)

    def effective(self, found: Samples) -> float:
        """Return how many independent samples these are worth."""
        if self.law.latent or self.law.has_coordinates:
            return found.effective_size
        share = self.picked(found.z).bincount().double() / len(found.z)
        return min(found.effective_size, 1 / float(share.square().sum()))


@torch.no_grad()
def condition_any_noise(
    model: Model, seen: Sensors, read: Sensors, noise: ReadingNoise
) -> JointPosterior:
    """Return the law of both fields given one set of checked sensors of each.

    Parameters
    ----------
    model : KarhunenLoeveModel
    seen, read : Sensors
        Of input and output, either of which may be none; their noise, positive, is that of the
        Gaussian answer to start from.
    noise : ReadingNoise
    """
    single, seen, read = seen.single, seen.alone(0), read.alone(0)
    seen = replace(seen, noise_std=seen.noise(model.noise_std))
    generator = torch.Generator().manual_seed(MOMENT_SEED)
    source = _Noisy(model, seen, read, noise, generator)
    stated = torch.cat([seen.noise_std, read.noise_std], 1)
    for _ in range(0 if source.law.latent else REFITS):
        normals = torch.randn(REFIT_SAMPLES, source.count, generator=generator).double()
        off = source.placed(normals)[2].square().mean(0, keepdim=True).sqrt()
        if not bool((off > FAR * stated).any()):
            break
        levels = torch.where(off > FAR * stated, off, stated)
        of_seen, of_read = levels.split([seen.values.shape[1], read.values.shape[1]], 1)
        seen, read = replace(seen, noise_std=of_seen), replace(read, noise_std=of_read)
        source = _Noisy(model, seen, read, noise, generator)
    size = MADE_PARTICLES if source.law.latent else PARTICLES
    following = Following(source.weighed, source.count)
    following.last, following.max_moves = LAST_DISTANCE, MAX_MOVES
    found, _ = tempered(following, size, generator)
    c, off = source.placed(found.z)[1:]
    if bool((noise.log_likelihood(off) <= NOTHING).all()):
        raise ObservationError(UNLIKELY.format(size))
    law = source.one.sampled(found)
    effective = torch.tensor([source.effective(found)]).double()
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
        output = model.output_posterior(law, model.residual_root(law, 1), single)
    given = input_posterior(model, single, law)
    return JointPosterior(given, output, effective, torch.ones_like(effective))
