"""The law of fields given sensors, worked out from an operator's laws of coefficients.

Sets, samples and points are worked on in parts, so that no call takes more than a small multiple of
its result and some hundreds of megabytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uqsonet.emulator.named_operator import NamedOperator
from uqsonet.errors import ObservationError, ObservationWarning
from uqsonet.fields.field import part_columns
from uqsonet.gauss.posterior import (
    MOMENT_SAMPLES,
    MOMENT_SEED,
    PointPosterior,
    Posterior,
    SeparatePosterior,
    spread,
)
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:  # needed only for sensors of outputs
    from uqsonet.operator.joint import JointPosterior

SETS = 16  # sets that are conditioned at a time
DRAWN_TOGETHER = 4096  # functions that are drawn at a time
BAND_SAMPLES = 1000  # functions behind a band, of a new function and of the calibration runs alike
VALUES = 1 << 23  # sample values that are sorted at a time
MAX_KEPT_MOMENTS = 1 << 25  # values of the moments of coefficients that an answer keeps
CANCELLED = 1e-6  # smaller shares of the prior's variance are no difference from it
IMPROBABLE = 1e-4  # probability of sensors that gives a warning, over the number of sets
MIN_EFFECTIVE = 200  # a warning is given if an answer rests on fewer effective samples
UNUSUAL_STD = 6.0  # warn of squared input coefficients that are larger by so many of their std

TOO_LARGE = (
    "the answer is not finite: values or noise of the sensors, or numbers of the model's file, are "
    "too large"
)


class Conditioned:
    """An operator's laws of coefficients given sets of sensors, for some sets at a time.

    Laws of a few sets are kept, and those that took long (of sensors of outputs); others are worked
    out again when they are needed. Up to `MAX_KEPT_MOMENTS` values of moments are kept.

    The likelihood is the law of the readings' noise, as `likelihoods_of` returns it; None is the
    Gaussian one. `jointly` says that some of the sensors are of outputs, or not of Gaussian noise.
    """

    def __init__(self, operator: NamedOperator, sets: Sensors, likelihood: Any = None) -> None:
        self.operator, self.sets, self.likelihood = operator, sets, likelihood
        self.jointly = operator.reads_outputs(sets) or likelihood is not None
        self._kept: dict[tuple[str, bool, int], Any] = {}

    def laws(self, of_output: bool) -> Iterator[tuple[slice, Posterior]]:
        """Yield the law of the output's or the input's coefficients, for some sets at a time."""
        jointly = self.jointly or not of_output
        for part in self._parts():
            law = self.law(part, jointly)
            yield part, law if not jointly else law.output if of_output else law.input

    def moments(self, of_output: bool, sets: slice, law: Posterior) -> tuple[Tensor, Tensor]:
        """Return mean (b, p) and covariance (b, p, p) of the coefficients of some sets."""
        key = "moments", of_output, sets.start
        if key in self._kept:
            return self._kept[key]
        moments = law.coefficient_moments()
        if moments[1][0].numel() * len(self.sets) <= MAX_KEPT_MOMENTS:
            self._kept[key] = moments
        return moments

    def effective_size(self) -> Tensor:
        """Return the number (B,) of effective samples; infinite where nothing was sampled."""
        if not self.jointly:
            return torch.full((len(self.sets),), torch.inf, dtype=torch.float64)
        sizes = []
        for part in self._parts():
            sizes.append(self.law(part, True, stacklevel=4).effective_size)
        return torch.cat(sizes)

    def _parts(self) -> Iterator[slice]:
        for first in range(0, len(self.sets), SETS):
            yield slice(first, min(first + SETS, len(self.sets)))

    def law(self, part: slice, jointly: bool, stacklevel: int = 6) -> Any:
        """Return the law of the output or of both sides; warnings are about a caller."""
        key, sets = ("law", jointly, part.start), self.sets[part]
        if key in self._kept:
            return self._kept[key]
        try:
            if jointly and self.likelihood is not None:
                from uqsonet.emulator.likelihood import law_by_likelihood

                law: Any = law_by_likelihood(self.operator, sets, self.likelihood)
            else:
                law = self.operator.joint_law(sets) if jointly else self.operator.law(sets)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise ObservationError(TOO_LARGE) from None
        if jointly or len(self.sets) <= SETS:
            self._kept[key] = law
        for text in self._doubts(law, part) if jointly else ():
            warnings.warn(text, ObservationWarning, stacklevel)
        return law

    def _doubts(self, joint: JointPosterior, part: slice) -> Iterator[str]:
        """Yield what is unusual about an answer to sensors of outputs, in words with numbers."""
        tail, row = joint.tail.min(0)
        if float(tail) < IMPROBABLE / len(self.sets):
            yield (
                f"the sensors of outputs{self.sets.named(part.start + int(row))} are improbable "
                f"given those of inputs: values as far from their mean have probability "
                f"{float(tail):.1g}. The operator may be wrong here, and so may the band"
            )
        if getattr(self.operator.operator, "law", None) is None:
            mean, covariance = joint.input.coefficient_moments()
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


class FieldLaw:
    """The law of one field given sets of sensors, in its units, as tensors (B, ...) in float64.

    Fields are numbered inputs first. Its `separate` says that sets are sampled one by one, and have
    no moments in closed form.
    """

    def __init__(self, conditioned: Conditioned, number: int) -> None:
        operator = conditioned.operator
        self._conditioned, self._operator, self.number = conditioned, operator, number
        self.field, self.sets = operator.named_fields[number], conditioned.sets
        self._of_output = number >= len(operator.inputs)
        self._batch = len(conditioned.sets)
        law: Any = getattr(operator.operator, "law", None)
        whole = law is not None and law.whole
        self.separate = law is not None and law.separate
        if self._of_output:
            config = getattr(operator.operator, "config", None)
            whole = getattr(config, "nearest", 0) and not conditioned.jointly
        self._sampled = whole or not self.field.transform.linear
        # Made fields are known by so many samples, and each is worked out again when it is drawn.
        self._made = whole and law is not None and law.made and conditioned.jointly

    def _laws(self, x: Tensor) -> Iterator[tuple[slice, Posterior, Tensor, Tensor]]:
        """Yield laws of coefficients with offset (M,) and basis (M, p) of the transformed field."""
        at, scale = self._operator.locations(self.number, x), self.field.scale
        offset, basis = torch.empty(0), torch.empty(0)
        for part, law in self._conditioned.laws(self._of_output):
            if part.start == 0:  # all sets have the same
                offset, basis = law.basis(at)
                if scale != 1:
                    offset, basis = offset * scale, basis * scale
            if isinstance(law, SeparatePosterior):
                for row, one in enumerate(law.laws, part.start):
                    yield slice(row, row + 1), one, offset, basis
            else:
                yield part, law, offset, basis

    def _functions(
        self, law: Posterior, size: int, generator: torch.Generator, x: Tensor
    ) -> Iterator[Tensor]:
        """Yield functions (size, M), float64, at points (M, d) for each set of a law."""
        assert law.whole is not None
        fields, at = self._operator.fields, self._operator.locations(self.number, x)
        grid = fields.training_grid()[0] if self._of_output else fields.input.grid
        for drawn in law.whole(size, generator):
            ends = drawn.amin(1, keepdim=True), drawn.amax(1, keepdim=True)
            found = grid.interpolate(drawn.T.contiguous(), at).T  # splines overshoot
            yield found.clamp(*ends).double() * self.field.scale

    def within(self, values: Tensor) -> Tensor:
        """Return values of the transformed field within the ends that the law of the input has."""
        law: Any = getattr(self._operator.operator, "law", None)
        if self._of_output or law is None or law.ends is None:
            return values
        ends = law.ends[part_columns(self._operator.inputs, self.number)] * self.field.scale
        return values.clamp(float(ends[:, 0].min()), float(ends[:, 1].max()))

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean (B, M) at points (M, d)."""
        if self._sampled:
            return self._sampled_moments(x)[0]
        mean = torch.empty(self._batch, len(x), dtype=torch.float64)
        for part, law, offset, basis in self._laws(x):
            if isinstance(law, PointPosterior):
                c = law.coefficients.double()
            elif (narrowing := law.narrowing()) is not None:
                c = narrowing.mean
            else:
                c, _ = self._conditioned.moments(self._of_output, part, law)
            mean[part] = offset + c @ basis.T
        return mean

    def std(self, x: Tensor) -> Tensor:
        """Return the standard deviation (B, M) at points (M, d)."""
        if self._sampled:
            return self._sampled_moments(x)[1]
        std = torch.empty(self._batch, len(x), dtype=torch.float64)
        rest, left = torch.zeros_like(std), self._operator.remainder_at(self.number, x)
        prior: Tensor | None = None
        for part, law, _, basis in self._laws(x):
            if left is not None:
                rest[part] = left
            narrowing = law.narrowing()
            if narrowing is None:
                std[part] = spread(basis, self._conditioned.moments(self._of_output, part, law)[1])
                continue
            if prior is None:  # all sets have the same
                prior = narrowing.prior_variance(basis)
            variance = narrowing.variance(basis, prior)
            lost = (variance < CANCELLED * prior).any(0)
            if bool(lost.any()):
                covariance = self._conditioned.moments(self._of_output, part, law)[1]
                variance[:, lost] = spread(basis[lost], covariance).square()
            std[part] = variance.sqrt()
        return (std.square() + rest.square()).sqrt()

    def covariance(self, x: Tensor) -> Tensor:
        """Return the covariance (B, M, M) between points (M, d)."""
        if self._sampled:
            drawn = self.sample(MOMENT_SAMPLES, x, 0)
            centred = drawn - drawn.mean(1, keepdim=True)
            return centred.transpose(1, 2) @ centred / (MOMENT_SAMPLES - 1)
        between = torch.empty(self._batch, len(x), len(x), dtype=torch.float64)
        left = self._operator.remainder_at(self.number, x)
        for part, law, _, basis in self._laws(x):
            _, covariance = self._conditioned.moments(self._of_output, part, law)
            between[part] = basis @ covariance @ basis.T
            if left is not None:
                between[part].diagonal(dim1=1, dim2=2).add_(left.square())
        return between

    def sample(self, size: int, x: Tensor, seed: object) -> Tensor:
        """Draw functions (B, size, M) at points (M, d)."""
        left, generator = self._operator.remainder_at(self.number, x), generator_of(seed)
        samples = torch.empty(self._batch, size, len(x), dtype=torch.float64)
        seeds = [_seed(generator) for _ in range(0, size, DRAWN_TOGETHER)]
        for part, law, offset, basis in self._laws(x):
            for first, seed in zip(range(0, size, DRAWN_TOGETHER), seeds, strict=True):
                some, own = min(DRAWN_TOGETHER, size - first), torch.Generator().manual_seed(seed)
                if law.whole is not None:
                    for row, drawn in enumerate(self._functions(law, some, own, x), part.start):
                        samples[row, first : first + some] = drawn
                    continue
                drawn = law.coefficient_samples(some, own).double()
                here = samples[part, first : first + some]
                for one, into in zip(drawn, here, strict=True):
                    torch.addmm(offset, one, basis.T, out=into)
                if left is not None:
                    shape = here.shape[1:]  # sets share random numbers
                    here += torch.randn(shape, generator=own, dtype=torch.float32) * left
        return self.field.transform.inverse(self.within(samples))

    def _sampled_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std (B, M) of a field from samples."""
        parts, size = [], MOMENT_SAMPLES // 4 if self._made else MOMENT_SAMPLES
        for some in x.split(max(1, VALUES // size)):
            drawn = self.sample(size, some, 0)
            parts.append((drawn.mean(1), drawn.std(1)))
        mean, std = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return mean, std

    def quantiles(self, levels: np.ndarray, x: Tensor, size: int, seed: object) -> Tensor:
        """Return quantiles (B, Q, M) at points (M, d), estimated from `size` functions."""
        left, seed = self._operator.remainder_at(self.number, x), _seed(generator_of(seed))
        quantiles = torch.empty(self._batch, len(levels), len(x), dtype=torch.float64)
        place = levels * (size - 1)
        low = np.floor(place).astype(int)
        high, share = np.minimum(low + 1, size - 1), place - low
        step = max(1, VALUES // size)

        def picked(values: Tensor) -> Tensor:
            """Return quantiles (Q, k) of functions at k points (k, size)."""
            ordered = values.numpy()
            ordered.sort(axis=1)
            between = ordered[:, low] * (1 - share) + ordered[:, high] * share
            return torch.from_numpy(between.T)

        for part, law, offset, basis in self._laws(x):
            own = torch.Generator().manual_seed(seed)
            if law.whole is not None:
                for row, drawn in enumerate(self._functions(law, size, own, x), part.start):
                    quantiles[row] = picked(drawn.T.contiguous())
                continue
            c = law.coefficient_samples(size, own).float()
            for first in range(0, len(x), step):
                here, noise = slice(first, first + step), 0.0
                if left is not None:  # sets share random numbers
                    shape = len(x[here]), size
                    noise = torch.randn(shape, generator=own, dtype=torch.float32)
                    noise *= left[here, None].float()
                for one, into in zip(c, quantiles[part], strict=True):
                    values = basis[here].float() @ one.T + noise
                    into[:, here] = picked(values) + offset[here]
        return self.field.transform.inverse(self.within(quantiles))


def generator_of(seed: object) -> torch.Generator:
    """Return the generator that a caller's seed stands for, or the caller's own.

    It raises `ObservationError` if it is no seed.
    """
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**62))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**62:
        raise ObservationError(f"seed must be a whole number from 0 to 2^62, found {seed!r}")
    return torch.Generator().manual_seed(int(seed) + MOMENT_SEED)


def _seed(generator: torch.Generator) -> int:
    """Return a seed of its own: fields take different numbers from it, and stay in step."""
    return int(torch.randint(2**62, (), generator=generator))
