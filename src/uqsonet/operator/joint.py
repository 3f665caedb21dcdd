"""Sensors of either side: the law of input and output given readings of the one, the other or both.

A model knows the output as ``c = b(a) + e`` in coefficients: a, of the input, has a law of its own,
and e is what the operator leaves over. Readings of the output are ``y = o + H c + w + noise``, with
w what the output's modes leave out.

1. *Source.* What readings of the output see of the branch is taken as linear in a,
   ``H b(a) = o + W a + d``, by least squares over samples of the law given readings of the input;
   d counts as noise. Laws in closed form (Gaussian, mixture) are then conditioned on all readings,
   and the branch is linearised again over the result (Garcia-Fernandez et al., IEEE Trans. Signal
   Process. 63, 2015). Another law is conditioned on readings of the input alone.
2. *Correction.* Samples of the source are weighted by the likelihood of the branch itself over the
   linearised one, and brought to the posterior by sequential Monte Carlo
   (`uqsonet.operator.particles`). A linear branch needs no correction.
3. Given a, the rest is Gaussian: e is conditioned in closed form, so one draw gives both fields.

Where noise is not Gaussian, its likelihood is asked at predicted readings that hold e and w. These
are made of standard normals, too, that stand for the answer to Gaussian noise of the stated levels;
samples are weighted by the likelihood over the Gaussian one after the correction of step 2.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.gauss.gaussian import covariance_root
from uqsonet.gauss.given import Given, Sampled, fixed, moments_of
from uqsonet.gauss.posterior import Joint
from uqsonet.laws.base import Linear
from uqsonet.operator.particles import Following, Samples, Source, Split, tempered
from uqsonet.sensors.sensors import Sensors

LOG = logging.getLogger("uqsonet")

PARTICLES = 4096  # samples that stand for the law of the input when sensors read the output
MADE_PARTICLES = 1024  # samples where fields are made of latent ones: each is a whole field
LINEARISATIONS = 3  # times that the branch is linearised
FIT_SAMPLES = 8  # samples per coefficient behind a linearisation
MAX_SPLIT = 32  # readings of the output up to which `Split` solves for what they see
MADE_DISTANCE = 2.0  # how far samples of made fields move at last
NOTHING = -1e9  # logarithm of a likelihood of zero: samples are led away from it by steps
UNLIKELY = (
    "the likelihood is zero for all of {} samples of the Gaussian answer: state a noise_std that "
    "comes nearer to it"
)
FAR = 3.0  # levels that readings are off from which on samples start with noise of that size there
REFITS, REFIT_SAMPLES = 5, 512  # times that this is looked at, at most, and samples behind each
NOISE_DISTANCE = 8.0  # how far samples move at last: within walls they spread slowly
NOISE_MOVES = 100  # moves after one rise, at most
NEGLIGIBLE_SHARE = 1e-3  # of a reading's variance that what modes leave out may have and be ignored
Model = Any  # a `KarhunenLoeveModel`, whose methods call this file


class ReadingNoise(Protocol):
    """The noise of a set of readings, the input's before the output's, as the model has them."""

    def log_likelihood(self, off: Tensor) -> Tensor:
        """Return log-likelihoods (S,) of readings that are off (S, m) from what is predicted."""
        ...


@torch.no_grad()
def condition(
    model: Model, seen: Sensors, read: Sensors | None, noise: Sequence[ReadingNoise] | None,
    size: int = PARTICLES,
) -> Joint:  # fmt: skip
    """Return the law of both fields given checked sensors of both, either of which may be none.

    An answer that has no closed form is made of `size` samples. Noise that is not Gaussian is that
    of each set.
    """
    read = seen.each(lambda t: t[:, :0]) if read is None else read
    if len(seen) > 1:
        each = [None] * len(seen) if noise is None else [[one] for one in noise]
        found = []
        for b, own in enumerate(each):
            LOG.log(15, "sensors of outputs, set %d of %d", b + 1, len(each))
            found.append(model.condition_on(seen.alone(b), read.alone(b), own, size))
        return Joint.together(found)
    seen = replace(seen, noise_std=seen.noise(model.noise_std)).alone(0)
    read, generator = read.alone(0), fixed()
    if noise is not None:
        return _noisy(model, seen, read, noise[0], generator)
    return OneSet(model, seen, read, generator).conditioned(size, generator)


class OutputReadings:
    """Readings of the output, and what they say of its coefficients beyond the branch's answer.

    Values are ``rows c + noise`` with ``c = b + e``, where e ~ N(0, C) is what the operator leaves
    over: C has the root (p, p), float64, and is zero without one. Sensors that state no noise are
    exact.
    """

    def __init__(self, model: Model, sensors: Sensors, residual_root: Tensor | None) -> None:
        offset, rows = model.bases.output_at(sensors)
        self.rows, self.values = rows[0], (sensors.values - offset)[0]
        error = torch.as_tensor(model.output_error() * sensors.norm(1), dtype=torch.float64)
        self.beyond = error.expand_as(sensors.values)[0].square()
        """Variance (m,) of what the output's modes leave out, a part of `variance`."""
        self.variance = sensors.noise()[0].square() + self.beyond
        p = self.rows.shape[1]
        self.covariance = torch.zeros(p, p, dtype=torch.float64)
        if residual_root is not None:
            self.covariance = (residual_root @ residual_root.T).to(self.covariance)
        self.gain = torch.linalg.solve(self.noise, self.rows @ self.covariance).T
        """Maps a reading's distance from b to the mean of e, (p, m)."""

    @cached_property
    def noise(self) -> Tensor:
        """Covariance (m, m) of readings given the branch's answer."""
        return self.rows @ self.covariance @ self.rows.T + self.variance.diag()

    def tail(self, mean: Tensor, covariance: Tensor) -> float:
        """Return the probability of readings as far off, from the moments of the answers."""
        root = torch.linalg.cholesky(covariance + self.noise)
        off = (self.values - mean)[:, None]
        distance = torch.linalg.solve_triangular(root, off, upper=False).square().sum()
        count = torch.tensor(max(1, int((self.rows.abs().sum(1) > 0).sum())) / 2).double()
        return float(torch.special.gammaincc(count, distance / 2))

    def moments(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (1, p) and covariance (1, p, p) of c from those of b given the readings."""
        off = self.values - mean @ self.rows.T
        kept = torch.eye(self.rows.shape[1], dtype=torch.float64) - self.gain @ self.rows
        return mean + off @ self.gain.T, kept @ covariance @ kept.T + kept @ self.covariance

    def corrected(self, c: Tensor, generator: torch.Generator) -> Tensor:
        """Return c (1, n, p) given the readings from ``b + e`` with e before them (Matheron)."""
        shape = *c.shape[:2], len(self.values)
        normal = torch.randn(shape, generator=generator, dtype=torch.float32)
        noisy = c @ self.rows.T + normal * self.variance.sqrt()
        return c + (self.values - noisy) @ self.gain.T


@dataclass(frozen=True)
class LinearBranch:
    """What readings see of the branch, as ``offset + weight a + d``."""

    offset: Tensor  # (m,)
    weight: Tensor  # (m, r)
    left: Tensor  # (m, m), covariance of d

    @classmethod
    def fitted(cls, a: Tensor, answers: Tensor) -> LinearBranch:
        """Return the least-squares map from samples (n, r) to answers (n, m)."""
        a = a.double()
        at, mean = a.mean(0), answers.mean(0)
        a, answers = a - at, answers - mean
        gram = a.T @ a
        gram.diagonal().add_(1e-9 * gram.diagonal().mean().clamp_min(1e-300))
        weight = torch.linalg.solve(gram, a.T @ answers).T
        left = answers - a @ weight.T
        return cls(mean - weight @ at, weight, left.T @ left / max(1, len(a) - a.shape[1]))

    @classmethod
    def of_linear(cls, model: Model, readings: OutputReadings) -> LinearBranch:
        """Return what readings see of a linear branch."""
        weight, offset = model.straight()
        left = torch.zeros_like(readings.noise)
        return cls(readings.rows @ offset, readings.rows @ weight, left)

    def moments(self, given: Given) -> tuple[Tensor, Tensor]:
        """Return mean (m,) and covariance (m, m) of answers under a law."""
        mean, covariance = given.moments()
        return self.offset + self.weight @ mean[0], self.weight @ covariance[0] @ self.weight.T

    def of(self, a: Tensor) -> Tensor:
        """Return answers (n, m), float64, of coefficients (n, r)."""
        return self.offset + a.double() @ self.weight.T


class OneSet:
    """One set of sensors of both sides.

    `law` is that of the input given all readings, the branch taken as linear (`straight`). Where
    the law has no closed form, it is that given readings of the input, and `straight` is None.
    """

    def __init__(
        self, model: Model, seen: Sensors, read: Sensors, generator: torch.Generator
    ) -> None:
        self.model, self.seen, self.tail = model, seen, 1.0
        ((_, self.given),) = model.input_law_given(seen).parts()
        self.root = model.residual_root(self.given)
        self.readings = OutputReadings(model, read, None if self.root is None else self.root[0])
        self.law, self.straight = self._linearised(generator)

    @property
    def exact(self) -> bool:
        """Whether the branch is linear, and the law in closed form."""
        return self.model.network is None and self.straight is not None

    def conditioned(self, size: int, generator: torch.Generator) -> Joint:
        """Return the law of both sides; `size` samples where it has no closed form."""
        if self.exact:
            return self.joint(self.law, math.inf)
        size = MADE_PARTICLES if self.law.whole_made else size
        found, _ = tempered(self._source(), size, generator)
        return self.joint(self.sampled(found), found.effective_size)

    def joint(self, law: Given, effective_size: float, output: Given | None = None) -> Joint:
        """Return the law of both sides for one of the input's coefficients given all readings."""
        model, single = self.model, self.seen.single
        output = output or model.output_given(law, self.root, self.readings)
        sides = model.output_posterior(output, single), model.input_posterior(law, single)
        numbers = (torch.tensor([x], dtype=torch.float64) for x in (effective_size, self.tail))
        return Joint(*sides, *numbers)

    def sampled(self, found: Samples) -> Sampled:
        """Return the law of these samples, with their whole fields where normals make them."""
        made = self.law.whole_made
        z = found.z[:, : self.law.normals]
        return Sampled(found.a[None], None if made is None else partial(_picked, made, z))

    def branch(self, a: Tensor) -> Tensor:
        """Return the branch's answers (n, p), float64, to coefficients (n, r)."""
        return self.model.branch(a.to(self.model.bases.linear_weight)).cpu().double()

    def answers(self, a: Tensor) -> Tensor:
        """Return what readings see (n, m), float64, of the branch's answers to (n, r)."""
        return self.branch(a) @ self.readings.rows.T

    def slopes(self, a: Tensor, along: Tensor) -> Tensor:
        """Return derivatives (n, m, k), float64, of these answers along directions (k, r)."""
        rows, (weight, _) = self.readings.rows, self.model.straight()
        added = self.model.network.slopes(a.to(self.model.bases.linear_weight), rows, along)
        return rows @ weight.double() @ along.T + added

    def _linearised(self, generator: torch.Generator) -> tuple[Given, LinearBranch | None]:
        law: Given = self.given
        straight: LinearBranch | None = None
        if not len(self.readings.values):
            return law, None
        if self.model.network is None:
            known = LinearBranch.of_linear(self.model, self.readings)
            if (exact := self._given_all(known)) is not None:
                self.tail = self.readings.tail(*known.moments(law))
                return exact, known
        for _ in range(LINEARISATIONS):
            a = law.sample(FIT_SAMPLES * self.model.config.input_modes, generator)[0]
            answers = self.answers(a)
            if straight is None:
                mean, covariance = moments_of(answers[None])
                self.tail = self.readings.tail(mean[0], covariance[0])
            found = LinearBranch.fitted(a, answers)
            if (better := self._given_all(found)) is None:
                break
            law, straight = better, found
        return law, straight

    def _given_all(self, straight: LinearBranch) -> Given | None:
        """Return the law given all readings, those of the output being linear in the input."""
        root = torch.linalg.cholesky(self.readings.noise + straight.left)
        off = (self.readings.values - straight.offset)[:, None]
        both = torch.cat([straight.weight, off], 1)
        white = torch.linalg.solve_triangular(root, both, upper=False)[None]
        also = Linear(white[..., :-1], white[..., -1])
        return self.model.law.condition(self.model.bases, self.seen, also)

    def _source(self) -> Source:
        """Return samples of the law, weighted by the branch itself."""
        readings, straight = self.readings, self.straight
        few = len(readings.values) <= MAX_SPLIT
        if few and straight is not None and self.given.gaussian is not None:
            law, known = self.given.gaussian[0], (readings.values, readings.noise)
            return Split(law, *known, straight.weight, self.answers, self.slopes)
        source = Following(self._weighed, self.law.normals)
        if self.law.whole_made:
            source.last = MADE_DISTANCE
        return source

    def _weighed(self, z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        a = self.law.made(z, generator).float()
        return a, self.log_weight(a)[:, None]

    @cached_property
    def _roots(self) -> tuple[Tensor, Tensor | None]:
        noise, straight = self.readings.noise, self.straight
        wide = None if straight is None else torch.linalg.cholesky(noise + straight.left)
        return torch.linalg.cholesky(noise), wide

    def log_weight(self, a: Tensor) -> Tensor:
        """Return logarithms (n,) of the likelihood of the branch over the linearised one."""
        if self.exact or not len(self.readings.values):
            return torch.zeros(len(a), dtype=torch.float64)
        alone, wide = self._roots
        found = _distance(self.readings.values - self.answers(a), alone)
        if self.straight is not None and wide is not None:
            found = found - _distance(self.readings.values - self.straight.of(a), wide)
        return -found / 2


def _picked(made: Callable[[Tensor], Tensor], z: Tensor, index: Tensor) -> Tensor:
    return made(z[index])


def _distance(off: Tensor, root: Tensor) -> Tensor:
    """Return squared lengths (n,) of distances (n, m), in units of `root`."""
    return torch.linalg.solve_triangular(root, off.T, upper=False).square().sum(0)


def _noisy(
    model: Model, seen: Sensors, read: Sensors, noise: ReadingNoise, generator: torch.Generator
) -> Joint:
    """Return the law of both fields given one set of sensors whose noise is not Gaussian.

    Their stated noise, positive, is that of the Gaussian answer to start from.
    """
    source = NoisySet(model, seen, read, noise, generator)
    stated = torch.cat([seen.noise_std, read.noise_std], 1)
    for _ in range(0 if source.law.whole_made else REFITS):
        normals = torch.randn(REFIT_SAMPLES, source.count, generator=generator).double()
        off = source.off(normals, generator).square().mean(0, keepdim=True).sqrt()
        if not bool((off > FAR * stated).any()):
            break
        levels = torch.where(off > FAR * stated, off, stated)
        of_seen, of_read = levels.split([seen.values.shape[1], read.values.shape[1]], 1)
        seen, read = replace(seen, noise_std=of_seen), replace(read, noise_std=of_read)
        source = NoisySet(model, seen, read, noise, generator)
    return source.conditioned(PARTICLES, generator)


class NoisySet(OneSet):
    """One set of sensors whose noise is not Gaussian: a, e and w are made of standard normals.

    Those of a come first, as its law `made` them of normals; of e and w those follow.
    """

    def __init__(
        self, model: Model, seen: Sensors, read: Sensors, noise: ReadingNoise,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        super().__init__(model, seen, read, generator)
        self._noise, readings = noise, self.readings
        rows, residual = (found.cpu() for found in model.bases.at_sensors(seen))
        self._seen_rows, self._seen_values = rows[0], residual[0]
        left = model.bases.input_remainder.cpu() * torch.as_tensor(seen.norm(2))
        left = torch.cat([left.square().expand_as(residual)[0], readings.beyond])
        variance = torch.cat([seen.noise()[0].square(), readings.variance - readings.beyond])
        share = left / (left + variance)
        self._std, self._kept, self._spread = variance.sqrt(), 1 - share, (share * variance).sqrt()
        covariance = readings.covariance
        narrowed = covariance - readings.gain @ readings.rows @ covariance
        self._root = covariance_root(narrowed) if bool(covariance.any()) else narrowed[:, :0]
        beyond = len(left) if float(share.max()) > NEGLIGIBLE_SHARE else 0
        self._sizes = self.law.normals, self._root.shape[1], beyond
        self.count = sum(self._sizes)

    def placed(self, a: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return c = b(a) + e (n, p) and how far readings are off (n, m), for a (n, r)."""
        _, own, beyond = z.split(self._sizes, 1)
        readings, c = self.readings, self.branch(a)
        off = readings.values - c @ readings.rows.T
        if own.shape[1]:
            e = off @ readings.gain.T + own @ self._root.T
            c, off = c + e, off - e @ readings.rows.T
        if len(self._seen_values):
            off = torch.cat([self._seen_values - a.double() @ self._seen_rows.T, off], 1)
        if beyond.shape[1]:
            off = off * self._kept - beyond * self._spread
        return c, off

    def off(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return how far readings are off (n, m) from what normals (n, k) predict."""
        return self.placed(self.law.made(z[:, : self.law.normals], generator), z)[1]

    def _weighed(self, z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return a (n, r), and logarithms (n, 2) of what leads to the Gaussian answer, and on."""
        a = self.law.made(z[:, : self.law.normals], generator)
        off = self.placed(a, z)[1]
        real = self._noise.log_likelihood(off).clamp_min(NOTHING)
        on = (off / self._std).square().sum(1) / 2 + real
        return a.float(), torch.stack([self.log_weight(a), on], 1)

    def _source(self) -> Source:
        source = Following(self._weighed, self.count)
        source.last, source.max_moves = NOISE_DISTANCE, NOISE_MOVES
        return source

    def conditioned(self, size: int, generator: torch.Generator) -> Joint:
        """Return the law of both sides by `size` samples."""
        size = MADE_PARTICLES if self.law.whole_made else size
        found, _ = tempered(self._source(), size, generator)
        c, off = self.placed(found.a, found.z)
        if bool((self._noise.log_likelihood(off) <= NOTHING).all()):
            raise ObservationError(UNLIKELY.format(size))
        self.tail, law = 1.0, self.sampled(found)
        output = Sampled(c[None]) if len(self.readings.values) else None
        if output is None:
            output = self.model.output_given(law, self.model.residual_root(law))
        return self.joint(law, found.effective_size, output)
