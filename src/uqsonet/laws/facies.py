"""Classes with variation inside: rock types, each with a Gaussian field of its own.

Classes are those of a `ThresholdedLaw`; within each the transformed input is a Gaussian field,
independent of the classes and of the fields of the others. The classes of training inputs are found
by their jumps, and each field's mean, variance and correlations from the points where it is seen. A
sensor's class is uncertain: its reading is judged under each class's field, given the readings
nearby that have the same class.

Jumps are found along each axis by a hidden Markov model: a point has the class of the one before,
and a value near the value there; or, rarely, another class, and any value of that. A smooth field
that crosses the range of another class thus stays one piece, and a jump ends it. Parameters come
from expectation maximisation (Baum et al. 1970) on some inputs; a point's class is the one of
largest probability, over all axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from uqsonet.fields.grid import Grid
from uqsonet.laws.base import SeparateLaw, classes_of, farthest_tail
from uqsonet.laws.bases import InputSample, KarhunenLoeveBases, rounding_noise
from uqsonet.laws.latent import LatentField, fit_latent, latent_of
from uqsonet.laws.thresholded import Reading, ThresholdedLaw, ThresholdedPosterior
from uqsonet.laws.truncated import kriged
from uqsonet.sensors.sensors import Sensors

COUNTS = (2, 3)  # numbers of classes to try
OUTLIER_STD = 4.0  # values farther from the mean of their class, in its std, do not count
SEEN = 300  # inputs that parameters are estimated from
FACIES_STEPS = 12  # steps of expectation maximisation
LEAST = 1e-3  # minimum std of values and of their steps, as a share of that of all values
MIN_JUMPS = 0.1  # changes of class in an input, on average, or inputs have no classes
MIN_CLASS_SHARE = 0.01  # share of the points that each class has
JUMP = 3.0  # steps between classes over those within (root mean square), at least
NEAR_SENSORS = 10  # other sensors given which a reading is judged


@dataclass(frozen=True)
class Inner:
    """The Gaussian field of a class."""

    mean: Tensor  # (n,), float64
    std: Tensor  # (n,), float64
    latent: LatentField  # the field less its mean, over its standard deviation

    @classmethod
    def fit(cls, grid: Grid, fields: Tensor, inside: Tensor) -> Inner:
        """Estimate the field from inputs (N, n), where they are of its class."""
        mean = std = torch.zeros((), dtype=torch.float64)
        for far in (math.inf, OUTLIER_STD, OUTLIER_STD):  # points of another class are far off
            if std.any():
                inside = inside & ((fields - mean).abs() <= far * std)
            mean = _average(fields, inside)
            std = _average((fields - mean).square(), inside).sqrt()
        weight = inside.float()
        std = std.clamp_min(1e-6 * float(fields.std()))
        scaled = ((fields - mean) / std).float() * weight
        nowhere = torch.full_like(mean, -torch.inf)  # no cut: moments are correlations
        moments = lambda both, h, k: both.clamp(-0.9999, 0.9999)  # noqa: E731
        return cls(mean, std, fit_latent(grid, scaled, nowhere, moments, weight))


def _average(values: Tensor, inside: Tensor) -> Tensor:
    """Return the mean (n,) of some values (N, n), over all points if these differ by chance."""
    weight = inside.float()
    count, total = weight.sum(0).double(), (values * weight).sum(0).double()
    mean = total.sum() / count.sum()
    size = ((values - mean).square() * weight).sum().double() / count.sum()
    here = torch.where(count > 0, total / count.clamp_min(1), mean)
    alike = (count * (here - mean).square()).mean() < 2 * size
    return mean.expand_as(here) if bool(alike) else here


class FaciesPosterior(ThresholdedPosterior):
    """Classes at the sensors, the latent fields, and the field within each class by kriging."""

    def __init__(self, law: FaciesLaw, bases: KarhunenLoeveBases, sensors: Sensors) -> None:
        super().__init__(law.classes, bases, sensors)
        grid, locations = bases.fields.input.grid, sensors.locations[0].double()
        self._inner, self._near = law.inner, torch.cdist(locations, locations)
        means, stds = (
            grid.interpolate(torch.stack([getattr(one, of) for one in law.inner], 1), locations)
            for of in ("mean", "std")
        )
        values = bases.fields.input.transform.forward(sensors.values[0].double())
        noise = sensors.noise()[0].clamp_min(rounding_noise(bases))
        self._noise, self._off = noise, values[:, None] - means  # (m, K)
        # Responses (m, rank) of the sensors to each class's field.
        self._inner_rows = [
            one.latent.rows(grid, locations) * stds[:, k, None] for k, one in enumerate(law.inner)
        ]
        level = (stds.square() + noise[:, None].square()).sqrt()
        self.tail = farthest_tail((self._off / level).abs().amin(-1))
        self._judge(-(self._off / level).square() / 2 - level.log())

    def _reading(self) -> Reading:
        """Return the log likelihood of a reading given those of the same class nearby."""
        off, noise, rows = self._off, self._noise, self._inner_rows
        nearest = self._near.argsort(1)[:, 1 : NEAR_SENSORS + 1]
        bits = 1 << torch.arange(nearest.shape[1])
        kept = torch.full((*off.shape, 1 << nearest.shape[1]), torch.nan, dtype=torch.float64)

        def log_density(i: int, k: int, others: Tensor) -> Tensor:
            """Return the log density of reading i under class k, given those of these sensors."""
            places = torch.cat([others, torch.tensor([i])])
            seen = rows[k][places]
            covariance = seen @ seen.T + noise[places].square().diag()
            inner = torch.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
            variance = (covariance[-1, -1] - inner @ covariance[:-1, -1]).clamp_min(noise[i] ** 2)
            mean = inner @ off[others, k]
            return -0.5 * ((off[i, k] - mean).square() / variance + variance.log())

        def reading(i: int, classes: Tensor) -> Tensor:
            near, found = classes[:, nearest[i]], []
            for k, table in enumerate(kept[i]):
                same = ((near == k) * bits).sum(1)  # which of the others have this class
                for code in same.unique().tolist():
                    if bool(table[code].isnan()):
                        table[code] = log_density(i, k, nearest[i][(bits & code) > 0])
                found.append(table[same])
            return torch.stack(found, 1)

        return reading

    def fields(
        self, bases: KarhunenLoeveBases, size: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Yield fields (size, n), float32."""
        numbers, classes = self._numbers(size, generator)
        patterns, of = _patterns(classes)
        field = torch.zeros(numbers.shape)
        for k, one in enumerate(self._inner):
            xi = torch.randn(size, one.latent.rank, generator=generator, dtype=torch.float64)
            off, rows, variance = self._off[:, k], self._inner_rows[k], self._noise.square()
            for number, pattern in enumerate(patterns):
                here, mine = of == number, pattern == k
                xi[here] = kriged(xi[here], rows[mine], off[mine], variance[mine], generator)
            inside = one.mean.float() + one.std.float() * one.latent.fields(xi)
            field = torch.where(numbers == k, inside, field)
        yield field


class FaciesLaw(SeparateLaw):
    """Classes with a Gaussian field in each (this module's text).

    The values of `classes` are the mean of each class.
    """

    name = "facies"
    posterior = FaciesPosterior
    misfit = "they do not jump between classes on a grid, or take only a few values"
    whole = True
    layout: ClassVar = {
        **ThresholdedLaw.layout,
        "inner_mean": ("nK", torch.float64),
        "inner_std": ("nK", torch.float64),
    }

    def __init__(self, classes: ThresholdedLaw, inner: list[Inner]) -> None:
        self.classes, self.inner = classes, inner

    @classmethod
    def fit(cls, sample: InputSample, seed: int) -> list[FaciesLaw]:
        """Return the laws of `COUNTS` classes that inputs jump between."""
        return [law for law in (cls.of_count(sample, count) for count in COUNTS) if law is not None]

    def refitted(self, sample: InputSample, seed: int) -> FaciesLaw | None:
        """Return the law of as many classes of other inputs."""
        return self.of_count(sample, len(self.inner))

    @classmethod
    def of_count(cls, sample: InputSample, count: int) -> FaciesLaw | None:
        """Return the law of so many classes; None where inputs do not jump between them."""
        grid, fields = sample.bases.fields.input.grid, sample.fields
        if not isinstance(grid, Grid) or classes_of(fields) is not None:
            return None
        labels = segmented(grid, fields, count)
        if labels is None:
            return None
        means = torch.stack([fields[labels == k].double().mean() for k in range(count)])
        classes = ThresholdedLaw.of_labels(grid, labels, means)
        if classes is None or not bool((means.diff() > 0).all()):
            return None
        return cls(classes, [Inner.fit(grid, fields, labels == k) for k in range(count)])

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the classes and of the fields within them."""
        found = self.classes.tensors()
        found["inner_mean"] = torch.stack([one.mean for one in self.inner], 1)
        found["inner_std"] = torch.stack([one.std for one in self.inner], 1)
        for number, one in enumerate(self.inner):
            found |= one.latent.tensors(f"_in_{number}")
        return found

    @classmethod
    def of(cls, tensors: dict[str, Tensor], bases: KarhunenLoeveBases) -> FaciesLaw:
        """Return the law that `tensors` were taken of."""
        grid, std = bases.fields.input.grid, tensors["inner_std"]
        if not bool((std > 0).all()):
            raise ValueError("inner_std must be positive")
        columns = zip(tensors["inner_mean"].T, std.T, strict=True)
        inner = [
            Inner(mean, std, latent_of(grid, tensors, f"_in_{number}"))
            for number, (mean, std) in enumerate(columns)
        ]
        return cls(ThresholdedLaw.of(tensors, bases), inner)


def _patterns(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows (P, m) that differ, and the number of each row among them."""
    if not classes.shape[1]:
        return classes[:1], torch.zeros(len(classes), dtype=torch.int64)
    return classes.unique(dim=0, return_inverse=True)


def segmented(grid: Grid, fields: Tensor, count: int) -> Tensor | None:
    """Return numbers (N, n) of `count` classes of fields (N, n), by their mean.

    None where inputs have no such classes.
    """
    shape = [-1, *grid.shape]
    some = fields[:SEEN].double().reshape(shape)
    level = torch.quantile(some.flatten()[:: max(1, some.numel() // 100_000)],
                           (torch.arange(count).double() + 0.5) / count)  # fmt: skip
    spread, steps = some.std(), [line.diff(dim=1).std() / 3 for line in _lines(some)]
    least = LEAST * float(spread)
    law = _Chain(level, spread.expand(count) / count, torch.stack(steps))
    for _ in range(FACIES_STEPS):
        law = law.improved(some, least)
    if not bool((law.mean.diff() > 0).all()):
        return None
    labels = torch.cat([law.shares(part.double().reshape(shape)).argmax(-1).flatten(1)
                        for part in fields.split(SEEN)])  # fmt: skip
    steps = torch.cat([one.diff(dim=1).flatten() for one in _lines(fields.reshape(shape))])
    change = torch.cat([one.diff(dim=1).flatten() for one in _lines(labels.reshape(shape))]) != 0
    shares = labels.flatten().bincount(minlength=count) / labels.numel()
    if float(change.sum()) <= MIN_JUMPS * len(fields) or float(shares.amin()) <= MIN_CLASS_SHARE:
        return None
    between, within = (float(steps[one].square().mean()) for one in (change, ~change))
    return labels if between > JUMP**2 * within else None


def _lines(fields: Tensor) -> list[Tensor]:
    """Return fields (N, k_1, ..., k_d) as lines (L, k) along each axis."""
    return [fields.movedim(axis, -1).flatten(0, -2) for axis in range(1, fields.dim())]


class _Chain:
    """The hidden Markov model: values of classes, steps within them, and how often they change.

    Classes share the std (d,) of steps along each axis: else they become places where one field is
    steep, and where it is flat.
    """

    def __init__(self, mean: Tensor, std: Tensor, steps: Tensor, change: float = 0.02) -> None:
        self.mean, self.std, self.steps, self.change = mean, std, steps, change

    def _log(self, off: Tensor, std: Tensor) -> Tensor:
        return -0.5 * (off / std).square() - std.log()

    def line(self, values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Return log probabilities (L, k, K) of classes, and those (L, k - 1, K) of no change."""
        count = len(self.mean)
        anew = self._log(values[..., None] - self.mean, self.std)
        stay = self._log(values.diff(dim=1)[..., None], self.steps[axis]) + math.log1p(-self.change)
        jump = anew + math.log(self.change / max(count - 1, 1))
        same = torch.eye(count, dtype=torch.bool)

        def moves(t: int) -> Tensor:
            """Return log probabilities (L, from, to) of the step to point t."""
            return torch.where(same, stay[:, t - 1, None, :], jump[:, t, None, :])

        ahead = [anew[:, 0]]
        for t in range(1, values.shape[1]):
            ahead.append((ahead[-1][..., None] + moves(t)).logsumexp(1))
        back = [torch.zeros_like(anew[:, 0])]
        for t in range(values.shape[1] - 1, 0, -1):
            back.append((moves(t) + back[-1][:, None]).logsumexp(2))
        first, last = torch.stack(ahead, 1), torch.stack(back[::-1], 1)
        total = ahead[-1].logsumexp(1)[:, None, None]
        return first + last - total, first[:, :-1] + stay + last[:, 1:] - total

    def shares(self, fields: Tensor) -> Tensor:
        """Return log probabilities (N, k_1, ..., k_d, K) of classes, summed over the axes."""
        found = fields.new_zeros(*fields.shape, len(self.mean))
        for axis, line in enumerate(_lines(fields)):
            moved = found.movedim(axis + 1, -2)
            moved += self.line(line, axis)[0].view_as(moved)
        return found

    def improved(self, fields: Tensor, least: float) -> _Chain:
        """Return the model after a step of expectation maximisation."""
        weight = self.shares(fields).softmax(-1).flatten(0, -2)
        values = fields.flatten()[:, None]
        total = weight.sum(0).clamp_min(1e-9)
        mean = (weight * values).sum(0) / total
        std = ((weight * (values - mean).square()).sum(0) / total).sqrt().clamp_min(least)
        steps, stays, size = [], 0.0, 0
        for axis, line in enumerate(_lines(fields)):
            stay = self.line(line, axis)[1].exp().sum(-1)
            square = (stay * line.diff(dim=1).square()).sum()
            steps.append((square / stay.sum().clamp_min(1e-9)).sqrt().clamp_min(least))
            stays, size = stays + float(stay.sum()), size + stay.numel()
        return _Chain(mean, std, torch.stack(steps), min(max(1 - stays / size, 1e-6), 0.5))
