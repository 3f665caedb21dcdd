"""The law of fields given sensors, worked out from an operator's laws of coefficients.

Sets, samples and points are worked on in parts, so that no call takes more than a small multiple of
its result and some hundreds of megabytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.encode import joint_law
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.field import part_columns
from uqsonet.files import require_memory
from uqsonet.gauss.given import MOMENT_SAMPLES, MOMENT_SEED, Given, fixed, spread
from uqsonet.gauss.posterior import Joint, Posterior
from uqsonet.sensors.sensors import Sensors

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

SETS = 16  # sets that are conditioned at a time
DRAWN_TOGETHER = 4096  # functions that are drawn at a time
BAND_SAMPLES = 1000  # functions behind a band, of a new function and of the calibration runs alike
VALUES = 1 << 23  # sample values that are sorted at a time
EVEN_SAMPLES = 1024  # functions behind mean and std that have no closed form
MAX_KEPT_MOMENTS = 1 << 25  # values of moments that an answer keeps
CANCELLED = 1e-6  # smaller shares of the prior's variance are no difference from it
IMPROBABLE = 1e-4  # probability of sensors that gives a warning, over the number of sets
MIN_EFFECTIVE = 200  # a warning is given if an answer rests on fewer effective samples
UNUSUAL_STD = 6.0  # warn of squared input coefficients that are larger by so many of their std

TOO_LARGE = (
    "the answer is not finite: values or noise of the sensors, or numbers of the model's file, are "
    "too large"
)


class FieldLaw:
    """The law of one field given sets of sensors, in its units, as tensors (B, ...) in float64.

    Fields are numbered inputs first. The likelihood is the law of the readings' noise, as
    `likelihoods_of` returns it; None is the Gaussian one. `jointly` says that some of the sensors
    are of outputs, or not of Gaussian noise.

    Laws of sets are kept with their moments, for all fields together, where these are at most
    `MAX_KEPT_MOMENTS` values. Of more sets the first laws are kept, and those that took long
    (`jointly`); others are worked out again when they are needed.
    """

    def __init__(
        self, emulator: Emulator, sets: Sensors, number: int, likelihood: Any = None,
        kept: dict[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        self.emulator, self.sets, self.number, self.likelihood = emulator, sets, number, likelihood
        self.field, self._kept = emulator.named_fields[number], {} if kept is None else kept
        self.jointly = emulator.reads_outputs(sets) or likelihood is not None
        self._of_output = number >= len(emulator.inputs)

    def of(self, number: int) -> FieldLaw:
        """Return the law of another field."""
        return FieldLaw(self.emulator, self.sets, number, self.likelihood, self._kept)

    def effective_size(self) -> Tensor:
        """Return the number (B,) of effective samples; infinite where nothing was sampled."""
        if not self.jointly:
            return torch.full((len(self.sets),), torch.inf, dtype=torch.float64)
        return torch.cat([self.joint(part, 4).effective_size for part in self._parts()])

    def _parts(self) -> Iterator[slice]:
        for first in range(0, len(self.sets), SETS):
            yield slice(first, min(first + SETS, len(self.sets)))

    def joint(self, part: slice, stacklevel: int = 6) -> Joint:
        """Return the law of both sides given some of the sets; warnings are about a caller."""
        if part.start in self._kept:
            return self._kept[part.start]
        try:
            joint = self._conditioned(part)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise ObservationError(TOO_LARGE) from None
        if self.jointly or not part.start:
            self._kept[part.start] = joint
        for text in self._doubts(joint, part) if self.jointly else ():
            warnings.warn(text, ObservationWarning, stacklevel)
        return joint

    def _conditioned(self, part: slice) -> Joint:
        """Return the law given some of the sets; samples take seconds, and say so."""
        if not self.jointly:
            return joint_law(self.emulator, self.sets[part], self.likelihood)
        from uqsonet.show.terminal import never_silent  # deferred: few answers need a terminal

        with never_silent("answer"):
            return joint_law(self.emulator, self.sets[part], self.likelihood)

    def _doubts(self, joint: Joint, part: slice) -> Iterator[str]:
        """Yield what is unusual about an answer to sensors of outputs, in words with numbers."""
        tail, row = joint.tail.min(0)
        if float(tail) < IMPROBABLE / len(self.sets):
            read = self.sets.field[self.sets.mask] < len(self.emulator.inputs)
            given = "given those of inputs" if bool(read.any()) else "under the model's law"
            yield (
                f"the sensors of outputs{self.sets.named(part.start + int(row))} are improbable "
                f"{given}: values as far from their mean have probability "
                f"{float(tail):.1g}. The operator may be wrong here, and so may the band"
            )
        law = self.emulator.operator.law
        if joint.input is not None and (law is None or law.name == "gaussian"):
            mean, covariance = joint.input.law.moments()
            r = mean.shape[1]
            size, row = (mean.square().sum(1) + covariance.diagonal(0, 1, 2).sum(1)).max(0)
            if float(size) > r + UNUSUAL_STD * (2 * r) ** 0.5:
                yield (
                    f"the answer{self.sets.named(part.start + int(row))} leaves what the operator "
                    "has learned: squared coefficients of its inputs add up to "
                    f"{float(size):.3g} where about {r} is expected. The operator may be wrong "
                    "there; a solver corrects the answer (`corrected`)"
                )
        size, row = joint.effective_size.min(0)
        if float(size) < MIN_EFFECTIVE:
            yield (
                f"the answer to the sensors{self.sets.named(part.start + int(row))} "
                f"rests on only {float(size):.0f} effective samples, so mean and band are rough. "
                "Use a larger noise_std or fewer sensors"
            )

    def knows_inputs(self) -> bool:
        """Return whether there is a law of the inputs."""
        return self.joint(next(self._parts())).input is not None

    def _side(self, joint: Joint) -> Posterior:
        """Return the law of the field's side."""
        side = joint.output if self._of_output else joint.input
        if side is None:
            raise ObservationError(
                f"{self.emulator.method} has no law of its input, so it answers nothing about it; "
                "the Karhunen-Loeve model does"
            )
        return side

    def _laws(self, x: Tensor) -> Iterator[tuple[slice, Given, Tensor, Tensor]]:
        """Yield laws of coefficients with offset (M,) and basis (M, p) of the transformed field."""
        at, scale = self.emulator.locations(self.number, x), self.field.scale
        offset, basis = torch.empty(0), torch.empty(0)
        for part in self._parts():
            joint = self.joint(part, 7)
            side = self._side(joint)
            if part.start == 0:  # all sets have the same
                offset, basis = side.basis(at)
                if scale != 1:
                    offset, basis = offset * scale, basis * scale
            if len(self.sets) * basis.shape[1] ** 2 <= MAX_KEPT_MOMENTS:
                self._kept[part.start] = joint
            for rows, law in side.law.parts():
                here = range(part.start, part.stop)[rows]
                yield slice(here.start, here.stop), law, offset, basis

    @cached_property
    def drawn(self) -> bool:
        """Whether all that is known of the field is known from drawn functions."""
        first = self.joint(next(self._parts()), 7)
        whole = self._side(first).law.functions is not None
        return whole or not self.field.transform.linear

    @cached_property
    def alone(self) -> bool:
        """Whether sets are sampled one by one, without moments in closed form."""
        law = self.emulator.operator.law
        return law is not None and law.separate

    def _functions(
        self, law: Given, size: int, generator: torch.Generator, x: Tensor
    ) -> Iterator[Tensor]:
        """Yield functions (size, M), float64, at points (M, d) for each set of a law."""
        assert law.functions is not None
        fields, at = self.emulator.fields, self.emulator.locations(self.number, x)
        grid = fields.training_grid()[0] if self._of_output else fields.input.grid
        for drawn in law.functions(size, generator):
            ends = drawn.amin(1, keepdim=True), drawn.amax(1, keepdim=True)
            found = grid.interpolate(drawn.T.contiguous(), at).T  # splines overshoot
            yield found.clamp(*ends).double() * self.field.scale

    def within(self, values: Tensor) -> Tensor:
        """Return values of the transformed field within the ends that the law of the input has."""
        law = self.emulator.operator.law
        if self._of_output or law is None or law.ends is None:
            return values
        ends = law.ends[part_columns(self.emulator.inputs, self.number)] * self.field.scale
        return values.clamp(float(ends[:, 0].min()), float(ends[:, 1].max()))

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean (B, M) at points (M, d)."""
        if self.drawn:
            return self._sampled_moments(x)[0]
        mean = torch.empty(len(self.sets), len(x), dtype=torch.float64)
        for part, law, offset, basis in self._laws(x):
            mean[part] = offset + law.mean @ basis.T
        return mean

    def std(self, x: Tensor) -> Tensor:
        """Return the standard deviation (B, M) at points (M, d)."""
        if self.drawn:
            return self._sampled_moments(x)[1]
        std = torch.empty(len(self.sets), len(x), dtype=torch.float64)
        rest, left = torch.zeros_like(std), self.emulator.remainder_at(self.number, x)
        prior: Tensor | None = None
        for part, law, _, basis in self._laws(x):
            if left is not None:
                rest[part] = left.norm(dim=1)
            narrowing = law.narrowing()
            if narrowing is None:
                std[part] = spread(basis, law.moments()[1])
                continue
            if prior is None:  # all sets have the same
                prior = narrowing.prior_variance(basis)
            variance = narrowing.variance(basis, prior)
            lost = (variance < CANCELLED * prior).any(0)
            if bool(lost.any()):
                covariance = law.moments()[1]
                variance[:, lost] = spread(basis[lost], covariance).square()
            std[part] = variance.sqrt()
        return (std.square() + rest.square()).sqrt()

    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance (B, M, M) between points (M, d)."""
        require_memory(len(self.sets) * len(x) ** 2, "the covariances")
        if self.drawn:
            drawn = self.sample(MOMENT_SAMPLES, x, 0)
            centred = drawn - drawn.mean(1, keepdim=True)
            return centred.transpose(1, 2) @ centred / (MOMENT_SAMPLES - 1)
        between = torch.empty(len(self.sets), len(x), len(x), dtype=torch.float64)
        left = self.emulator.remainder_at(self.number, x)
        for part, law, _, basis in self._laws(x):
            _, covariance = law.moments()
            between[part] = basis @ covariance @ basis.T
            if left is not None:
                between[part] += left @ left.T
        return between

    def sample(self, size: int, x: Tensor, seed: int) -> Tensor:
        """Draw functions (B, size, M) at points (M, d)."""
        require_memory(len(self.sets) * size * len(x), "the samples")
        samples = torch.empty(len(self.sets), size, len(x), dtype=torch.float64)
        for row, some, drawn in self._draws(size, x, seed):
            samples[row, some] = drawn
        return samples

    def _draws(self, size: int, x: Tensor, seed: int) -> Iterator[tuple[int, slice, Tensor]]:
        """Yield some of `size` functions (k, M) of each set, and which set and functions."""
        left, generator = self.emulator.remainder_at(self.number, x), _generator(seed)
        parts = [slice(k, min(k + DRAWN_TOGETHER, size)) for k in range(0, size, DRAWN_TOGETHER)]
        seeds = [_seed(generator) for _ in parts]
        for sets, law, offset, basis in self._laws(x):
            for some, seed in zip(parts, seeds, strict=True):
                count, own = some.stop - some.start, torch.Generator().manual_seed(seed)
                if law.functions is not None:
                    found, rest = self._functions(law, count, own, x), None
                else:
                    c = law.sample(count, own).double()
                    found, rest = (torch.addmm(offset, one, basis.T) for one in c), left
                if rest is not None:  # sets share random numbers
                    z = torch.randn(count, rest.shape[1], generator=own, dtype=torch.float64)
                    rest = z @ rest.T
                for row, drawn in enumerate(found, sets.start):
                    drawn = drawn if rest is None else drawn.add_(rest)
                    yield row, some, self.field.transform.inverse(self.within(drawn))

    def exceedance(self, limits: Tensor, x: Tensor, size: int, seed: int) -> Tensor:
        """Return the share (B, K, M) of `size` functions above K limits at points (M, d)."""
        above = torch.zeros(len(self.sets), len(limits), len(x), dtype=torch.float64)
        for row, _, drawn in self._draws(size, x, seed):
            above[row] += torch.stack([(drawn > limit).sum(0) for limit in limits])
        return above / size

    def _values(
        self, size: int, x: Tensor, seed: int | None
    ) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
        """Yield values (k, size) of functions at some points, less an offset (k,), set by set.

        The points are x[slice], the field is the transformed one. Without a seed functions are
        spread as evenly as the law can, and may be more.
        """
        left, step = self.emulator.remainder_at(self.number, x), max(1, VALUES // size)
        for part, law, offset, basis in self._laws(x):
            own = fixed() if seed is None else torch.Generator().manual_seed(seed)
            if law.functions is not None:
                for row, drawn in enumerate(self._functions(law, size, own, x), part.start):
                    yield row, slice(0, len(x)), drawn.T.contiguous(), torch.zeros(len(x)).double()
                continue
            c = (law.even(size) if seed is None else law.sample(size, own)).float()
            z = None if left is None else torch.randn(left.shape[1], c.shape[1], generator=own)
            for first in range(0, len(x), step):
                here = slice(first, first + step)
                # Sets share random numbers.
                noise = 0.0 if left is None or z is None else left[here].float() @ z
                for row, one in enumerate(c, part.start):
                    yield row, here, basis[here].float() @ one.T + noise, offset[here]

    def _sampled_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std (B, M) of a field from functions; those of the last x are kept."""
        key = "sampled", self.number
        if key in self._kept and torch.equal(self._kept[key][0], x):
            return self._kept[key][1:]
        mean, std = torch.empty(2, len(self.sets), len(x), dtype=torch.float64)
        for row, here, values, offset in self._values(EVEN_SAMPLES, x, None):
            values = self.within(values.double().add_(offset[:, None]))
            std[row, here], mean[row, here] = torch.std_mean(
                self.field.transform.inverse(values), 1
            )
        if mean.numel() <= MAX_KEPT_MOMENTS:
            self._kept[key] = x, mean, std
        return mean, std

    def quantiles(self, levels: np.ndarray, x: Tensor, size: int, seed: int) -> Tensor:
        """Return quantiles (B, Q, M) at points (M, d), estimated from `size` functions."""
        quantiles = torch.empty(len(self.sets), len(levels), len(x), dtype=torch.float64)
        place = levels * (size - 1)
        low = np.floor(place).astype(int)
        high, share = np.minimum(low + 1, size - 1), place - low
        for row, here, values, offset in self._values(size, x, _seed(_generator(seed))):
            ordered = values.numpy()
            ordered.sort(axis=1)
            between = ordered[:, low] * (1 - share) + ordered[:, high] * share
            quantiles[row][:, here] = torch.from_numpy(between.T) + offset
        return self.field.transform.inverse(self.within(quantiles))


def _generator(seed: int) -> torch.Generator:
    """Return a generator of its own for a caller's seed."""
    return torch.Generator().manual_seed(seed + MOMENT_SEED)


def _seed(generator: torch.Generator) -> int:
    """Return a seed of its own: fields take different numbers from it, and stay in step."""
    return int(torch.randint(2**62, (), generator=generator))
