"""Sensors of either side: the law of input and output given readings of the one, the other or both.

A model knows the output as ``c = b(a) + e`` in coefficients: a, of the input, has a law of its own,
and e is what the operator leaves over. Readings of the output are ``y = o + H c + noise``.

1. *Source.* What readings of the output see of the branch is taken as linear in a,
   ``H b(a) = o + W a + d``, by least squares over samples of the law given readings of the input;
   d counts as noise. Laws in closed form (Gaussian, mixture) are then conditioned on all readings,
   and the branch is linearised again over the result (Garcia-Fernandez et al., IEEE Trans. Signal
   Process. 63, 2015). Another law is conditioned on readings of the input alone.
2. *Correction.* Samples of the source are weighted by the likelihood of the branch itself over the
   linearised one, and brought to the posterior by sequential Monte Carlo
   (`uqsonet.operator.particles`).
3. Given a, the rest is Gaussian: e is conditioned in closed form, so one draw gives both fields.

A linear branch needs no correction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import GaussianLaw, condition, sensor_noise
from uqsonet.gauss.posterior import (
    MOMENT_SEED,
    LatentPosterior,
    Posterior,
    SeparatePosterior,
    moments_of,
)
from uqsonet.laws.base import ClosedForm, InputPosterior
from uqsonet.laws.bases import rounding_noise
from uqsonet.operator.particles import Following, Reweighted, Samples, Source, Split, tempered
from uqsonet.sensors.sensors import Sensors, checked_sensors

if TYPE_CHECKING:
    from uqsonet.fields.operator_fields import OperatorFields
    from uqsonet.laws.bases import KarhunenLoeveBases

PARTICLES = 4096  # samples that stand for the law of the input when sensors read the output
MADE_PARTICLES = 1024  # samples where fields are made of latent ones: each is a whole field
LINEARISATIONS = 3  # times that the branch is linearised
FIT_SAMPLES = 8  # samples per coefficient behind a linearisation
MAX_SPLIT = 32  # readings of the output up to which `Split` solves for what they see
Model = Any  # a `KarhunenLoeveModel`, whose methods call this file


class OutputReadings:
    """Readings of the output, and what they say of its coefficients beyond the branch's answer.

    Values are ``rows c + noise`` with ``c = b + e``, where e ~ N(0, C) is what the operator leaves
    over: C has the root (B, p, p), float64, and is zero without one. Sensors that state no noise
    are exact.
    """

    def __init__(self, model: Model, sensors: Sensors, residual_root: Tensor | None) -> None:
        offset, basis = model.bases.output_at(sensors)
        mask = sensors.mask
        self.rows = basis * mask[..., None]
        self.values = torch.where(mask, sensors.values - offset, 0.0)
        # Where nothing is read the noise is one, which changes nothing.
        error = torch.as_tensor(model.output_error() * sensors.norm(1), dtype=torch.float64)
        error = error.expand_as(sensors.values)
        self.beyond = error.square() * mask
        """Variance (B, m) of what the output's modes leave out, a part of `variance`."""
        self.variance = torch.where(mask, sensors.noise().square() + error**2, 1.0)
        batch, _, p = self.rows.shape
        self.covariance = torch.zeros(batch, p, p, dtype=torch.float64)
        if residual_root is not None:
            self.covariance = (residual_root @ residual_root.transpose(1, 2)).to(self.covariance)
        through = torch.linalg.solve(self.noise, self.rows @ self.covariance)  # (B, m, p)
        self.gain = through.transpose(1, 2)
        """Maps a reading's distance from b to the mean of e, (B, p, m)."""

    @cached_property
    def noise(self) -> Tensor:
        """Covariance (B, m, m) of readings given the branch's answer."""
        seen = self.rows @ self.covariance @ self.rows.transpose(1, 2)
        return seen + torch.diag_embed(self.variance)

    def tail(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Return the probability (B,) of readings as far off, from the moments of the answers."""
        off = (self.values - mean)[..., None]
        root = torch.linalg.cholesky(covariance + self.noise)
        distance = torch.linalg.solve_triangular(root, off, upper=False).square().sum((1, 2))
        count = (self.rows.abs().sum(2) > 0).sum(1)
        return torch.special.gammaincc(count.clamp_min(1) / 2, distance / 2)

    def moments(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of c from those of b given the readings."""
        off = self.values - (self.rows @ mean[..., None])[..., 0]
        kept = torch.eye(self.rows.shape[-1], dtype=torch.float64) - self.gain @ self.rows
        mean = mean + (self.gain @ off[..., None])[..., 0]
        return mean, kept @ covariance @ kept.transpose(1, 2) + kept @ self.covariance

    def corrected(self, c: Tensor, generator: torch.Generator) -> Tensor:
        """Return c (B, n, p) given the readings from ``b + e`` with e before them (Matheron)."""
        normal = torch.randn(
            *c.shape[:2], self.rows.shape[1], generator=generator, dtype=torch.float32
        )
        noisy = c @ self.rows.transpose(1, 2) + normal * self.variance.sqrt()[:, None, :]
        return c + (self.values[:, None, :] - noisy) @ self.gain.transpose(1, 2)


class Sampled(InputPosterior):
    """A law of the input's coefficients that is known by samples (B, n, r).

    Of one set whose fields a law has `made` of normals z (n, k), these fields are known, too.
    """

    def __init__(
        self, a: Tensor, made: InputPosterior | None = None, z: Tensor | None = None
    ) -> None:
        self._a, self.made_by, self._z = a, made, z

    def _picked(self, size: int, generator: torch.Generator) -> Tensor:
        """Return numbers of samples, each at most once as long as they last."""
        kept = self._a.shape[1]
        rounds = -(-size // kept)
        drawn = torch.rand(rounds, kept, generator=generator, dtype=torch.float32)
        return drawn.argsort(-1).flatten()[:size]

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return some of the samples, each at most once as long as they last."""
        return self._a[:, self._picked(size, generator)]

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield the whole fields of samples where they are known."""
        if self.made_by is None or self._z is None:
            yield from super().fields(bases, size, generator)
        else:
            yield self.made_by.made(self._z[self._picked(size, generator)])

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of ``weight a`` over the samples."""
        return moments_of(self._a.double() @ weight.double().T)


@dataclass(frozen=True)
class JointPosterior:
    """The law of input and output given sensors of both.

    Samples of both by generators of the same state, and of the same size, belong together.
    """

    input: Posterior
    """Of the transformed input."""
    output: Posterior
    effective_size: Tensor
    """Independent samples (B,) that the answer is worth; infinite where nothing was sampled."""
    tail: Tensor
    """Probability (B,) of readings of the output as far from their mean as these, given those of
    the input, by the normal law of their mean and covariance."""


Readings = tuple[object, object, object, object]  # locations, values, mask and noise_std


def both_sides(
    fields: OperatorFields, inputs: Readings, outputs: Readings
) -> tuple[Sensors, Sensors]:
    """Return checked sensors of input and output.

    It raises `ObservationError` if sensors cannot be used, or both sides have different numbers of
    sets.
    """
    seen, read = checked_sensors(fields.input, *inputs), checked_sensors(fields.output, *outputs)
    if len(seen) != len(read) or seen.single != read.single:
        raise ObservationError(
            f"sensors of the input come in {len(seen)} sets, those of the output in {len(read)}"
        )
    return seen, read


@torch.no_grad()
def condition_both(
    model: Model, seen: Sensors, read: Sensors, size: int = PARTICLES
) -> JointPosterior:
    """Return the law of both fields given checked sensors of both, either of which may be none.

    An answer that has no closed form is made of `size` samples.
    """
    separate = read.values.shape[1] > 0 or (model.law is not None and model.law.separate)
    if len(seen) > 1 and separate:
        pairs = ((seen.alone(b), read.alone(b)) for b in range(len(seen)))
        return together([condition_both(model, *pair, size) for pair in pairs], seen.single)
    if len(seen) == 1:
        seen, read = seen.alone(0), read.alone(0)
    seen, single = replace(seen, noise_std=seen.noise(model.noise_std)), seen.single
    effective = torch.full((len(seen),), math.inf, dtype=torch.float64)
    tail = torch.ones_like(effective)
    given = model.input_law_given(seen)
    if not read.values.shape[1]:
        output = model.condition_on(seen)
        return JointPosterior(input_posterior(model, single, given), output, effective, tail)
    root = model.residual_root(given, 1)
    readings = OutputReadings(model, read, root)
    one = OneSet(model, seen, given, readings)
    source, effective[0] = one.conditioned(size)
    tail[0] = one.tail
    output = model.output_posterior(source, root, single, readings)
    return JointPosterior(input_posterior(model, single, source), output, effective, tail)


def together(alone: Sequence[JointPosterior], single: bool) -> JointPosterior:
    """Return the laws of sets that were conditioned one by one."""
    inputs = SeparatePosterior(single, [one.input for one in alone])
    outputs = SeparatePosterior(single, [one.output for one in alone])
    size = torch.cat([one.effective_size for one in alone])
    return JointPosterior(inputs, outputs, size, torch.cat([one.tail for one in alone]))


class OneSet:
    """One set of readings of both sides, for a branch, a law or a noise without a closed form."""

    def __init__(
        self, model: Model, seen: Sensors, given: InputPosterior, readings: OutputReadings
    ) -> None:
        self.model, self.seen, self._given, self.readings = model, seen, given, readings
        self.at_sensors = tuple(found.cpu() for found in model.bases.at_sensors(seen))
        self.tail = 1.0

    def branch(self, a: Tensor) -> Tensor:
        """Return the branch's answers (n, p), float64, to coefficients (n, r)."""
        found = self.model.branch(a.to(self.model.bases.linear_weight.device))
        return found.cpu().double()

    def _answers(self, a: Tensor) -> Tensor:
        """Return what readings see (n, m), float64, of the branch's answers to (n, r)."""
        return self.branch(a) @ self.readings.rows[0].T

    def conditioned(self, size: int) -> tuple[InputPosterior, float]:
        """Return the law given all readings, and how many independent samples it is worth."""
        generator = torch.Generator().manual_seed(MOMENT_SEED)
        law, straight = self.linearised(generator)
        if straight is not None and self.model.network is None:
            return law, math.inf
        size = MADE_PARTICLES if self._given.latent else size
        found, _ = tempered(self.source(law, straight), size, generator)
        return self.sampled(found), found.effective_size

    def made(self, z: Tensor) -> Tensor:
        """Return coefficients (n, r) of the fields that latent normals (n, k) make."""
        return self.model.bases.coefficients_of(self._given.made(z))

    def sampled(self, found: Samples) -> Sampled:
        """Return the law of these samples, with their whole fields where latent ones make them."""
        latent, a = self._given.latent, found.a[None]
        return Sampled(a, self._given, found.z[:, :latent]) if latent else Sampled(a)

    def linearised(self, generator: torch.Generator) -> tuple[InputPosterior, LinearBranch | None]:
        """Return the law given all readings, the branch taken as linear, and that branch.

        Where the law has no closed form, it is that given readings of the input, and None.
        """
        source, straight = self._given, None
        if not self.readings.values.shape[1]:
            return source, None
        if self.model.network is None:
            known = LinearBranch.of_linear(self.model, self.readings)
            if (exact := self._given_all(known)) is not None:
                self.tail = float(self.readings.tail(*known.moments(self._given)))
                return exact, known
        for _ in range(LINEARISATIONS):
            a = source.sample(FIT_SAMPLES * source.mean.shape[1], generator)
            answers = self._answers(a[0])[None]
            if straight is None:
                self.tail = float(self.readings.tail(*moments_of(answers)))
            found = LinearBranch.fitted(a, answers)
            if (better := self._given_all(found)) is None:
                break
            source, straight = better, found
        return source, straight

    def _given_all(self, straight: LinearBranch) -> InputPosterior | None:
        return input_given_all(self.model, self.seen, self.at_sensors, self.readings, straight)

    def source(self, source: InputPosterior, straight: LinearBranch | None) -> Source:
        """Return samples of what `linearised` gave, weighted by the branch itself."""
        if self._given.latent:
            weigh = self.reweighted(source, None).log_weight

            def weighed(z: Tensor) -> tuple[Tensor, Tensor]:
                a = self.made(z)
                return a, weigh(a)[:, None]

            return Following(weighed, self._given.latent)
        values, noise = self.readings.values, self.readings.noise
        few = straight is not None and values.shape[1] <= MAX_SPLIT
        if straight is not None and few and isinstance(self._given, ClosedForm):
            law = self._given.law
            given = GaussianLaw(law.mean[0], law.directions[0], law.std_reduction[0])
            return Split(given, values[0], noise[0], straight.weight[0], self._answers)
        return self.reweighted(source, straight)

    def reweighted(self, source: InputPosterior, straight: LinearBranch | None) -> Reweighted:
        """Return the same without solving for anything."""
        values, noise = self.readings.values, self.readings.noise
        if not values.shape[1] or (straight is not None and self.model.network is None):
            return Reweighted(source, lambda a: torch.zeros(len(a), dtype=torch.float64))
        alone = torch.linalg.cholesky(noise)
        wide = None if straight is None else torch.linalg.cholesky(noise + straight.left)

        def log_weight(a: Tensor) -> Tensor:
            found = _distance(values, self._answers(a)[None], alone)
            if straight is not None and wide is not None:
                found = found - _distance(values, straight.of(a[None]), wide)
            return -found[0] / 2

        return Reweighted(source, log_weight)


def _distance(values: Tensor, answers: Tensor, root: Tensor) -> Tensor:
    """Return squared distances (B, n), in units of `root`, of readings from answers (B, n, m)."""
    left = (values[:, None, :] - answers).transpose(1, 2)
    return torch.linalg.solve_triangular(root, left, upper=False).square().sum(1)


@dataclass(frozen=True)
class LinearBranch:
    """What readings see of the branch, as ``offset + weight a + d``."""

    offset: Tensor  # (B, m)
    weight: Tensor  # (B, m, r)
    left: Tensor  # (B, m, m), covariance of d

    @classmethod
    def fitted(cls, a: Tensor, answers: Tensor) -> LinearBranch:
        """Return the least-squares map from samples (B, n, r) to answers (B, n, m)."""
        a = a.double()
        at, mean = a.mean(1, keepdim=True), answers.mean(1, keepdim=True)
        a, answers = a - at, answers - mean
        gram = a.transpose(1, 2) @ a
        ridge = 1e-9 * gram.diagonal(0, 1, 2).mean(-1).clamp_min(1e-300)
        gram.diagonal(0, 1, 2).add_(ridge[:, None])
        weight = torch.linalg.solve(gram, a.transpose(1, 2) @ answers).transpose(1, 2)
        left = answers - a @ weight.transpose(1, 2)
        offset = (mean - at @ weight.transpose(1, 2))[:, 0]
        free = max(1, a.shape[1] - a.shape[2])
        return cls(offset, weight, left.transpose(1, 2) @ left / free)

    @classmethod
    def of_linear(cls, model: Model, readings: OutputReadings) -> LinearBranch:
        """Return what readings see of a linear branch."""
        weight, offset = model.straight()
        left = torch.zeros_like(readings.noise)
        return cls(readings.rows @ offset, readings.rows @ weight, left)

    def moments(self, given: InputPosterior) -> tuple[Tensor, Tensor]:
        """Return mean (B, m) and covariance (B, m, m) of answers under a law in closed form."""
        eye = torch.eye(self.weight.shape[2], dtype=torch.float64)
        found = given.linear_moments(eye)
        assert found is not None
        mean = self.offset + (self.weight @ found[0][..., None])[..., 0]
        return mean, self.weight @ found[1] @ self.weight.transpose(1, 2)

    def of(self, a: Tensor) -> Tensor:
        """Return answers (B, n, m), float64, of coefficients (B, n, r)."""
        return self.offset[:, None, :] + a.double() @ self.weight.transpose(1, 2)


def input_given_all(
    model: Model, seen: Sensors, at_sensors: tuple[Tensor, Tensor], readings: OutputReadings,
    straight: LinearBranch,
) -> InputPosterior | None:  # fmt: skip
    """Return the law of the input given all readings, those of the output being linear in it.

    None where the law has no closed form for that.
    """
    bases = model.bases
    rows, residual = (found.cpu() for found in at_sensors)
    root = torch.linalg.cholesky(readings.noise + straight.left)
    off = readings.values - straight.offset
    lower = torch.linalg.solve_triangular(root, straight.weight, upper=False)
    ahead = torch.linalg.solve_triangular(root, off[..., None], upper=False)[..., 0]
    rows, residual = torch.cat([rows, lower], 1), torch.cat([residual, ahead], 1)
    error = float(bases.input_remainder) if model.law is None else rounding_noise(bases)
    level = sensor_noise(seen.noise(), error, norm=seen.norm(2))
    levels = torch.cat([level, torch.ones_like(ahead)], 1)
    # Padding among the output's readings has rows of zeros and a residual of zero.
    mask = torch.cat([seen.mask, torch.ones_like(ahead, dtype=torch.bool)], 1)
    if model.law is None:
        return ClosedForm(condition(rows, residual, levels, mask))
    return model.law.condition_linear(rows, residual, mask, levels, level.shape[1])


def input_posterior(model: Model, single: bool, given: InputPosterior) -> Posterior:
    """Return the law of the transformed input as a posterior of functions."""
    moments = partial(sampled_moments, given, model.config.input_modes)
    grid, basis = model.fields.input.grid, model.bases.input_basis
    found = LatentPosterior(grid, basis, single, partial(sampled_draws, given), moments)
    if isinstance(given, ClosedForm):
        found.narrowed = given.narrowing
    known = not isinstance(given, Sampled) or given.made_by is not None
    if model.law is not None and model.law.whole and known:
        found.whole = partial(given.fields, model.bases)
    return found


def sampled_draws(given: InputPosterior, size: int, generator: torch.Generator) -> Tensor:
    """Draw coefficients (B, size, r), float64."""
    return given.sample(size, generator).double()


def sampled_moments(
    given: InputPosterior, modes: int, size: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return mean (B, r) and covariance (B, r, r) of coefficients, exactly where that is known."""
    eye = torch.eye(modes, dtype=torch.float64)
    if (exact := given.linear_moments(eye)) is not None:
        return exact
    return moments_of(given.sample(size, generator) if generator else given.even(size))
