"""Sensors of either side: the law of input and output given readings of the one, the other or both.

A model knows the output as ``c = b(a) + e`` in coefficients: a, of the input, has a law of its own,
and e is what the operator leaves over. Readings of the output are ``y = o + H c + noise``.

1. *Source.* What readings of the output see of the branch is taken as linear in a,
   ``H b(a) = o + W a + d``, by least squares over samples of the law given readings of the input;
   d counts as noise. Laws in closed form (Gaussian, mixture) are then conditioned on all readings,
   and the branch is linearised again over the result (Garcia-Fernandez et al., IEEE Trans. Signal
   Process. 63, 2015). Another law is conditioned on readings of the input alone.
2. *Correction.* Samples of the source are weighted by the likelihood of the branch itself over the
   linearised one, and brought to the posterior by steps of rising weight: resampling, and moves
   that leave the source as it is (sequential Monte Carlo, Del Moral, Doucet and Jasra, J. R. Stat.
   Soc. B 68, 2006; the moves are preconditioned Crank-Nicolson, Cotter et al., Stat. Sci. 28,
   2013).
3. Given a, the rest is Gaussian: e is conditioned in closed form, so one draw gives both fields.

A linear branch needs no correction.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Observations
from uqsonet.gauss.gaussian import GaussianLaw, condition
from uqsonet.gauss.posterior import MOMENT_SEED, LatentPosterior, Posterior, moments_of
from uqsonet.laws.base import ClosedForm, InputPosterior
from uqsonet.laws.common import least_noise
from uqsonet.laws.truncated import resampled

if TYPE_CHECKING:
    from uqsonet.fields.operator_fields import OperatorFields
    from uqsonet.operator.model import KarhunenLoeveModel

PARTICLES = 4096
"""Samples of the input that stand for its law where the output is read, too."""

ISLANDS = 16
"""Parts of them that are resampled by themselves: how far their means differ shows the error."""

SHARE = 0.5
"""Effective share of the samples that a rise of the weight leaves."""

WAY, LAST_WAY = 0.1, 0.5
"""Sum of accepted squared steps that samples go after a rise, and after the last."""

MOST_MOVES = 400

ACCEPTED = 0.3
"""Share of moves that steps are fitted to."""

LINEARISED = 3
"""Times that the branch is linearised."""

FITTED = 8
"""Samples for each coefficient that it is linearised over."""

MOST_SPLIT = 32
"""Readings of the output up to which what they see is solved for."""

NEWTON = 5
"""Steps of that, at most."""

CLOSE = 0.1
"""Steps to one input end after a move of this share of its length: the next is far smaller."""


@dataclass(frozen=True)
class Particles:
    """Samples of the input's coefficients given readings of both sides.

    Attributes
    ----------
    a : Tensor, shape (size, r), float32
    effective_size : float
        Independent samples that their means are worth, from the spread of the islands' means.
    """

    a: Tensor
    effective_size: float


@dataclass(frozen=True)
class Samples:
    """Samples of a source, and how they stand to the target.

    Attributes
    ----------
    a : Tensor, shape (n, r), float32
        Coefficients of the input.
    weight : Tensor, shape (n,)
        Logarithm of the target's density over the source's.
    z : Tensor, shape (n, r)
        What moves start from.
    """

    a: Tensor
    weight: Tensor
    z: Tensor

    def pick(self, index: Tensor) -> Samples:
        """Return some of the samples."""
        return Samples(self.a[index], self.weight[index], self.z[index])

    def where(self, taken: Tensor, others: Samples) -> Samples:
        """Return the others where a sample is taken from them."""
        kept = taken[:, None]
        a, z = torch.where(kept, others.a, self.a), torch.where(kept, others.z, self.z)
        return Samples(a, torch.where(taken, others.weight, self.weight), z)


class Source(ABC):
    """A law that can be sampled, moved along, and weighted into the target."""

    @abstractmethod
    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""

    @abstractmethod
    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples by moves that leave the source as it is.

        Parameters
        ----------
        z : Tensor, shape (n, r)
        step : float
            From 0 (stay) to 1 (independent samples).
        generator : torch.Generator
        """


def tempered(source: Source, size: int, generator: torch.Generator) -> Particles:
    """Bring samples of a source to the target, by steps of a rising power of the weight.

    Parameters
    ----------
    source : Source
    size : int
        A multiple of `ISLANDS`.
    generator : torch.Generator
    """
    now, t, step = source.start(size, generator), 0.0, 1.0
    while t < 1:
        rise = _rise(now.weight, 1 - t)
        t = 1.0 if t + rise > 1 - 1e-9 else t + rise
        index = resampled((rise * now.weight).view(ISLANDS, -1), generator)
        now = now.pick((index + torch.arange(0, size, size // ISLANDS)[:, None]).flatten())
        gone, enough = 0.0, LAST_WAY if t == 1 else WAY
        for _ in range(MOST_MOVES):
            proposed = source.moved(now.z, step, generator)
            draw = torch.rand(size, generator=generator, dtype=torch.float64)
            taken = draw.log() < t * (proposed.weight - now.weight)
            now = now.where(taken, proposed)
            share = float(taken.double().mean())
            gone += share * step**2
            if gone >= enough:
                break
            step = min(1.0, step * math.exp(share - ACCEPTED))
    return Particles(now.a, _effective_size(now.a))


def _rise(weight: Tensor, most: float) -> float:
    """Return the exponent, at most `most`, that leaves `SHARE` of the samples effective."""

    def effective(exponent: float) -> float:
        p = torch.softmax(exponent * weight, 0)
        return 1 / float(p.square().sum()) / len(weight)

    if effective(most) >= SHARE:
        return most
    low, high = 0.0, most
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= SHARE else (low, middle)
    return max(low, 1e-4 * most)


def _effective_size(a: Tensor) -> float:
    """Return how many independent samples the means of `ISLANDS` parts are worth."""
    parts = a.double().view(ISLANDS, -1, a.shape[1])
    between = parts.mean(1).var(0).sum() / ISLANDS  # of the mean of all
    return min(float(a.double().var(0).sum() / between.clamp_min(1e-300)), float(len(a)))


LogWeight = Callable[[Tensor], Tensor]
"""Maps coefficients (n, r), float32, to logarithms of weights (n,), float64."""


class Reweighted(Source):
    """A law of the input whose samples are weighted.

    Parameters
    ----------
    law : InputPosterior
        Of one set.
    log_weight : callable
    """

    def __init__(self, law: InputPosterior, log_weight: LogWeight) -> None:
        self._law, self._log_weight = law, log_weight

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return samples of the law."""
        a = self._law.sample(size, generator)[0]
        return Samples(a, self._log_weight(a), a)

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples moved by the law itself."""
        a = self._law.moved(z[None], step, generator)[0]
        return Samples(a, self._log_weight(a), a)


class Split(Source):
    """A Gaussian law whose few directions that readings of the output see are solved for.

    In coordinates z ~ N(0, I) of the law given readings of the input, what readings see is split
    off by an orthonormal basis, ``z = rest + Q^T s``. The rest is drawn from N(0, I), and s from
    the normal law about the best s for that rest, found by Gauss and Newton's steps: sharp readings
    are met however much they bend.

    Parameters
    ----------
    given : GaussianLaw
        Of one set.
    values : Tensor, shape (m,)
    noise : Tensor, shape (m, m)
        Covariance of readings given the branch's answer.
    weight : Tensor, shape (m, r)
        The linearised branch, as readings see it.
    answers : callable
        Maps coefficients (n, r), float32, to what readings see of the branch's answers, (n, m).
    """

    def __init__(
        self,
        given: GaussianLaw,
        values: Tensor,
        noise: Tensor,
        weight: Tensor,
        answers: Callable[[Tensor], Tensor],
    ) -> None:
        self._given, self._values, self._answers = given, values, answers
        self._root = torch.linalg.cholesky(noise)
        self._basis = torch.linalg.qr(given.spread(weight).T).Q.T  # (k, r)

    def start(self, size: int, generator: torch.Generator) -> Samples:
        """Return independent samples."""
        shape = size, self._basis.shape[1]
        return self._completed(self._rest(shape, generator), generator)

    def moved(self, z: Tensor, step: float, generator: torch.Generator) -> Samples:
        """Return samples whose rest is moved, and the seen directions drawn again."""
        rest = z - (z @ self._basis.T) @ self._basis
        rest = math.sqrt(1 - step**2) * rest + step * self._rest(z.shape, generator)
        return self._completed(rest, generator)

    def _rest(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        return normal - (normal @ self._basis.T) @ self._basis

    def _seen(self, rest: Tensor, s: Tensor, slopes: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return coefficients, white distances (n, m) of readings and their slopes (n, m, k)."""
        a = self._given.coordinates(rest + s @ self._basis).float()
        if not slopes:
            off = self._values - self._answers(a)
            return a, torch.linalg.solve_triangular(self._root, off.T, upper=False).T, None
        with torch.enable_grad():
            a = a.requires_grad_()
            found = self._answers(a)
            parts = [torch.autograd.grad(c.sum(), a, retain_graph=True)[0] for c in found.T]
        along = self._given.spread(self._basis)  # the root is symmetric: d a / d s
        slope = torch.stack(parts, 1).double() @ along.T
        off = self._values - found.detach()
        white = torch.linalg.solve_triangular(self._root, off.T, upper=False).T
        return a.detach(), white, torch.linalg.solve_triangular(self._root, slope, upper=False)

    def _completed(self, rest: Tensor, generator: torch.Generator) -> Samples:
        """Draw what readings see for each rest (n, r), and weight the samples."""
        n, k = len(rest), len(self._basis)
        s = torch.zeros(n, k, dtype=torch.float64)
        damping = torch.ones(n, 1, dtype=torch.float64)
        best, cost = s, torch.full((n, 1), math.inf, dtype=torch.float64)
        centre, root = s, torch.eye(k, dtype=torch.float64).expand(n, -1, -1)
        for _ in range(NEWTON):
            _, off, slope = self._seen(rest, s, True)
            assert slope is not None
            here = (s.square().sum(1) + off.square().sum(1))[:, None]
            better = here < cost
            cost, best = torch.where(better, here, cost), torch.where(better, s, best)
            precision = slope.transpose(1, 2) @ slope
            precision.diagonal(0, 1, 2).add_(1.0)
            found = torch.linalg.cholesky(precision)
            right = (slope.transpose(1, 2) @ off[..., None])[..., 0] - s
            solved = s + torch.cholesky_solve(right[..., None], found)[..., 0]
            centre = torch.where(better, solved, centre)
            root = torch.where(better[..., None], found, root)
            damping = torch.where(better, 1.0, damping / 3)
            s = best + damping * (centre - best)
        normal = torch.randn(n, k, 1, generator=generator, dtype=torch.float64)
        spread = torch.linalg.solve_triangular(root.transpose(1, 2), normal, upper=True)[..., 0]
        s = best + spread
        a, off, _ = self._seen(rest, s, False)
        size = root.diagonal(0, 1, 2).log().sum(1)
        weight = normal.square().sum((1, 2)) - s.square().sum(1) - off.square().sum(1)
        return Samples(a, weight / 2 - size, rest + s @ self._basis)


class OutputReadings:
    """Readings of the output, and what they say of its coefficients beyond the branch's answer.

    Values are ``rows c + noise`` with ``c = b + e``, where e ~ N(0, C) is what the operator leaves
    over.

    Parameters
    ----------
    model : KarhunenLoeveModel
    observations : Observations
        Of the output; shape (B, m).
    noise_std : float or Tensor, shape (B, m)
    residual_root : Tensor, shape (B, p, p), or None
        Root of C, float64; None where that is zero.
    """

    def __init__(
        self,
        model: KarhunenLoeveModel,
        observations: Observations,
        noise_std: Tensor,
        residual_root: Tensor | None,
    ) -> None:
        offset, basis = model.bases.output_at(observations)
        mask = observations.mask
        self.rows = basis * mask[..., None]
        self.values = torch.where(mask, observations.values - offset, 0.0)
        # Where nothing is read the noise is one, which changes nothing.
        error = model.output_error() * observations.norm(1)
        self.variance = torch.where(mask, noise_std.square() + error**2, 1.0)
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
    """A law of the input's coefficients that is known by samples (B, n, r)."""

    def __init__(self, a: Tensor) -> None:
        self._a = a

    def sample(self, size: int, generator: torch.Generator) -> Tensor:
        """Return some of the samples, each at most once as long as they last."""
        batch, kept, r = self._a.shape
        rounds = -(-size // kept)
        order = (
            torch.rand(batch, rounds, kept, generator=generator, dtype=torch.float32)
            .argsort(-1)
            .flatten(1)[:, :size]
        )
        return self._a.gather(1, order[..., None].expand(-1, -1, r))

    def linear_moments(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (B, p) and covariance (B, p, p) of ``weight a`` over the samples."""
        return moments_of(self._a.double() @ weight.double().T)


@dataclass(frozen=True)
class JointPosterior:
    """The law of input and output given sensors of both.

    Attributes
    ----------
    input : Posterior
        Of the transformed input.
    output : Posterior
        Samples of both by generators of the same state, and of the same size, belong together.
    effective_size : Tensor, shape (B,)
        Independent samples that the answer is worth; infinite where nothing was sampled for it.
    """

    input: Posterior
    output: Posterior
    effective_size: Tensor
    tail: Tensor
    """Probability (B,) of readings of the output as far from their mean as these, given those of
    the input, by the normal law of their mean and covariance."""


Readings = tuple[object, object, object, object]
"""Locations, values, mask and noise_std of sensors, as `OperatorModel.condition` takes them."""


Checked = tuple[Observations, Tensor]
"""Sensors of one side, and their noise (B, m), float64."""


def both_sides(
    fields: OperatorFields, inputs: Readings, outputs: Readings, noise_std: float
) -> tuple[Checked, Checked, bool]:
    """Check sensors of input and output; return both, and whether they are a single set.

    Parameters
    ----------
    fields : OperatorFields
    inputs, outputs : tuple
    noise_std : float
        Of sensors of the input that state none; those of the output are then exact.

    Raises
    ------
    ObservationError
        If sensors cannot be used, or both sides have different numbers of sets.
    """
    seen, single = fields.input.observations(*inputs[:3], empty=True)
    read, also = fields.output.observations(*outputs[:3], empty=True)
    if len(seen.values) != len(read.values) or single != also:
        raise ObservationError(
            f"sensors of the input come in {len(seen.values)} sets, "
            f"those of the output in {len(read.values)}"
        )
    levels = (
        torch.as_tensor(level, dtype=torch.float64).expand_as(sets.values)
        for level, sets in (
            (fields.input.noise(inputs[3], seen, noise_std), seen),
            (fields.output.noise(outputs[3], read, 0.0), read),
        )
    )
    return (seen, next(levels)), (read, next(levels)), single


@torch.no_grad()
def condition_jointly(
    model: KarhunenLoeveModel, inputs: Readings, outputs: Readings, size: int = PARTICLES
) -> JointPosterior:
    """Return the law of both fields given sensors of both.

    Parameters
    ----------
    model : KarhunenLoeveModel
    inputs, outputs : tuple
        Either may have no sensors: arrays of shape (B, 0, d) and (B, 0), or (0, d) and (0,).
    size : int
        Samples behind an answer that has no closed form.

    Raises
    ------
    ObservationError
        If sensors cannot be used, or both sides have different numbers of sets.
    """
    (seen, noise), (read, level), single = both_sides(
        model.fields, inputs, outputs, model.noise_std
    )
    effective = torch.full((len(seen.values),), math.inf, dtype=torch.float64)
    tail = torch.ones_like(effective)
    given = model.input_posterior(*inputs)
    if not read.values.shape[1]:
        output = model.condition(*inputs)
        return JointPosterior(_of_inputs(model, single, given), output, effective, tail)
    root = model.residual_root(given, len(effective))
    readings = OutputReadings(model, read, level, root)
    source = None
    if model.network is None:
        straight = _Straight.of_linear(model, readings)
        source = _source(model, seen, model.bases.at_sensors(seen), noise, readings, straight)
        if source is not None:
            mean, covariance = straight.moments(given)
            tail = readings.tail(mean, covariance)
    if source is None:
        found = []
        for b in range(len(effective)):
            here, there = seen.mask[b], read.mask[b]
            one = _OneSet(
                model,
                _compact(seen, b),
                noise[b : b + 1, here],
                OutputReadings(
                    model,
                    _compact(read, b),
                    level[b : b + 1, there],
                    None if root is None else root[b : b + 1],
                ),
            )
            found.append(one.particles(size))
            effective[b], tail[b] = found[-1].effective_size, one.tail
        source = Sampled(torch.stack([one.a for one in found]))
    output = model.output_posterior(source, root, single, readings)
    return JointPosterior(_of_inputs(model, single, source), output, effective, tail)


@torch.no_grad()
def condition_linearised(
    model: KarhunenLoeveModel, inputs: Readings, outputs: Readings
) -> JointPosterior:
    """Return the law of both fields by Gauss and Newton's steps to the likeliest input.

    There the branch is linearised and the Gaussian law conditioned (Laplace's approximation, for
    one set). For hundreds of readings of the output, where samples have too little weight to
    correct it; the operator has to be smooth, and its inputs Gaussian.

    Parameters
    ----------
    model : KarhunenLoeveModel
        Its network, if it has one, has a method `slope` from coefficients (r,) to (p, r).
    inputs, outputs : tuple
        As `condition_jointly` takes them, in one set.

    Raises
    ------
    ObservationError
        If sensors cannot be used, or there are several sets.
    """
    (seen, noise), (read, level), single = both_sides(
        model.fields, inputs, outputs, model.noise_std
    )
    if len(seen.values) != 1:
        raise ObservationError(
            f"sensors come in {len(seen.values)} sets; linearised answers are for one"
        )
    if not read.values.shape[1]:
        return condition_jointly(model, inputs, outputs)
    given = model.input_law_given(seen, noise)
    root = model.residual_root(given, 1)
    readings = OutputReadings(model, read, level, root)
    source: InputPosterior = given
    tail, at_sensors = 1.0, model.bases.at_sensors(seen)
    for step in range(NEWTON):
        at, rows = source.mean[0].double(), readings.rows[0]
        answer, slope = _slope(model, at)
        offset, weight = rows @ (answer - slope @ at), rows @ slope
        found = _Straight(offset[None], weight[None], torch.zeros_like(readings.noise))
        if not step:
            tail = float(readings.tail(*found.moments(given)))
        better = _source(model, seen, at_sensors, noise, readings, found)
        if better is None:
            raise ObservationError("linearised answers need a law of the input in closed form")
        source = better
        if (source.mean[0] - at).norm() <= CLOSE * at.norm():
            break
    output = model.output_posterior(source, root, single, readings)
    ones = torch.ones(1, dtype=torch.float64)
    return JointPosterior(_of_inputs(model, single, source), output, math.inf * ones, tail * ones)


def _slope(model: KarhunenLoeveModel, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the branch's answer (p,) at one input (r,), and its slope (p, r), float64."""
    slope, offset = model.straight()
    found = slope @ a + offset
    if model.network is not None:
        found, slope = found + model.network(a), slope + model.network.slope(a)  # pyright: ignore
    return found, slope


def _compact(observations: Observations, row: int) -> Observations:
    """Return one of the sets without its padding."""
    used, one = observations.mask[row], observations[row : row + 1]
    weights = None if one.weights is None else one.weights[:, used]
    return Observations(one.locations[:, used], one.values[:, used], one.mask[:, used], weights)


class _OneSet:
    """One set of readings of both sides, for a branch or a law without a closed form."""

    def __init__(
        self,
        model: KarhunenLoeveModel,
        seen: Observations,
        noise_std: Tensor,
        readings: OutputReadings,
    ) -> None:
        self._model, self._seen, self._noise, self._readings = model, seen, noise_std, readings
        self._given = model.input_law_given(seen, noise_std)
        self.tail = 1.0

    def _answers(self, a: Tensor) -> Tensor:
        """Return what readings see (n, m), float64, of the branch's answers to (n, r)."""
        found = self._model.branch(a.to(self._model.bases.linear_weight.device))
        return found.cpu().double() @ self._readings.rows[0].T

    def particles(self, size: int) -> Particles:
        """Return samples given all readings."""
        generator = torch.Generator().manual_seed(MOMENT_SEED)
        source, straight = self._given, None
        at_sensors = self._model.bases.at_sensors(self._seen)
        for _ in range(LINEARISED):
            a = source.sample(FITTED * source.mean.shape[1], generator)
            answers = self._answers(a[0])[None]
            if straight is None:
                self.tail = float(self._readings.tail(*moments_of(answers)))
            found = _Straight.fitted(a, answers)
            better = _source(
                self._model, self._seen, at_sensors, self._noise, self._readings, found
            )
            if better is None:
                break
            source, straight = better, found
        return tempered(self._source(source, straight), size, generator)

    def _source(self, source: InputPosterior, straight: _Straight | None) -> Source:
        values, noise = self._readings.values, self._readings.noise
        few = straight is not None and values.shape[1] <= MOST_SPLIT
        if straight is not None and few and isinstance(self._given, ClosedForm):
            law = self._given.law
            given = GaussianLaw(law.mean[0], law.directions[0], law.std_reduction[0])
            return Split(given, values[0], noise[0], straight.weight[0], self._answers)
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
class _Straight:
    """What readings see of the branch, as ``offset + weight a + d``.

    Attributes
    ----------
    offset : Tensor, shape (B, m)
    weight : Tensor, shape (B, m, r)
    left : Tensor, shape (B, m, m)
        Covariance of d.
    """

    offset: Tensor
    weight: Tensor
    left: Tensor

    @classmethod
    def fitted(cls, a: Tensor, answers: Tensor) -> _Straight:
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
    def of_linear(cls, model: KarhunenLoeveModel, readings: OutputReadings) -> _Straight:
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


def _source(
    model: KarhunenLoeveModel,
    seen: Observations,
    at_sensors: tuple[Tensor, Tensor],
    noise_std: Tensor,
    readings: OutputReadings,
    straight: _Straight,
) -> InputPosterior | None:
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
    least = float(bases.input_remainder) if model.law is None else least_noise(bases)
    level = (noise_std.square() + (least * seen.norm(2)) ** 2).sqrt()
    levels = torch.cat([level, torch.ones_like(ahead)], 1)
    # Padding among the output's readings has rows of zeros and a residual of zero.
    mask = torch.cat([seen.mask, torch.ones_like(ahead, dtype=torch.bool)], 1)
    if model.law is None:
        return ClosedForm(condition(rows, residual, levels, mask))
    return model.law.condition_linear(rows, residual, mask, levels, level.shape[1])


def _of_inputs(model: KarhunenLoeveModel, single: bool, given: InputPosterior) -> Posterior:
    """Return the law of the transformed input as a posterior of functions."""

    def draw(size: int, generator: torch.Generator) -> Tensor:
        return given.sample(size, generator).double()

    def estimate(size: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        eye = torch.eye(model.config.input_modes, dtype=torch.float64)
        if (exact := given.linear_moments(eye)) is not None:
            return exact
        return moments_of(given.sample(size, generator) if generator else given.even(size))

    return LatentPosterior(model.fields.input.grid, model.bases.input_basis, single, draw, estimate)
