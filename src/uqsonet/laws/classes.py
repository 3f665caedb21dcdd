"""The link of classes: latent Gaussian fields cut into classes by thresholds.

For inputs that take few values (rock or sand, one phase or another). At each point the class is
given by the thresholds between which a latent Gaussian field of variance one lies (Matheron et al.,
SPE 16753, 1987). Thresholds follow from how often each class occurs. Correlations of the latent
field follow from how often two points are on the same side: tetrachoric correlations (Pearson
1900), for two classes of equal share ``rho = sin(pi/2 tau)``.

Which classes touch is said by a *rule*: a class, or a list of rules, between whose members a latent
field of its own decides, cut at rising thresholds (truncated plurigaussian fields, Galli et al.
1994, with a partition that nests). ``[0, 1, 2]`` is one field with two thresholds, whose classes 0
and 2 never touch; ``[0, [1, 2]]`` are two fields, and each class touches each. The classes in order
of their values, and each of them apart from the others, are compared by the likelihood of pairs of
classes at pairs of points in one half of the inputs under the other half; of rules between which
chance decides, that of fewest fields is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from uqsonet.fields.stacked import Domain
from uqsonet.laws.base import MIN_TAIL_NOISE, classes_of, farthest_tail
from uqsonet.laws.correlations import (
    LATENT_LAYOUT,
    LatentField,
    bivariate_normal,
    fit_latent,
    latent_of,
    tetrachoric,
)
from uqsonet.laws.truncated import MIN_LATENT_VARIANCE, Choices, Told

Rule = Any  # a class, or a list of rules
RULE_PAIRS = 200  # pairs of near points that rules are compared at
MIN_PAIR_SHARE = 1e-3  # minimum probability of a pair of classes: a rule may be wrong about few
DOUBT = 1e-4  # a sensor's class is uncertain if another class has at least this probability

MIN_WIDTH = 0.01
"""Minimum width of a class between two others, in standard deviations of the latent field: a sensor
may read it where no training input had it."""


@dataclass(frozen=True)
class ClassField:
    """A latent field that decides between some classes, or groups of them."""

    places: Tensor  # (K,), interval of the field, from 0, of each class; -1 where it lies in any
    thresholds: Tensor  # (n, T), of the field at each point, ascending
    latent: LatentField

    @classmethod
    def fit(cls, domain: Domain, labels: Tensor, groups: list[list[int]], count: int) -> ClassField:
        """Estimate thresholds and the latent covariance where inputs have one of these classes.

        `labels` (N, n) are numbers of K classes (`count`), of which `groups` are those in each
        interval.
        """
        places = torch.full((count,), -1)
        for place, group in enumerate(groups):
            places[group] = place
        place = places[labels]
        inside = None if bool((places >= 0).all()) else (place >= 0).float()
        size = torch.tensor(len(labels)) if inside is None else inside.sum(0).double()
        below = torch.stack(
            [
                ((place >= 0) & (place <= cut)).float().sum(0).double() / size.clamp_min(1)
                for cut in range(len(groups) - 1)
            ],
            1,
        )
        mean_size = size.double().mean()
        pooled = (below * size[..., None]).mean(0) / mean_size
        # Shares that differ between points by no more than chance are one share.
        chance = pooled * (1 - pooled)
        if bool((((below - pooled).square() * size[..., None]).mean(0) < 2 * chance).all()):
            below = pooled.expand_as(below)
        least = 0.5 / float(mean_size)
        thresholds = torch.special.ndtri(below.clamp(least, 1 - least)).contiguous()
        for k in range(1, thresholds.shape[1]):
            thresholds[:, k] = thresholds[:, k].maximum(thresholds[:, k - 1] + MIN_WIDTH)
        # The threshold whose share is nearest to one half; fields side by side each have their own.
        middle = (below - 0.5).abs().argmin(1)
        side = ((place >= 0) & (place <= middle)).float()
        cut = thresholds.gather(1, middle[:, None])[:, 0]
        if bool((cut == cut[0]).all()) and abs(float(cut[0])) < 3 / math.sqrt(float(mean_size)):
            cut = torch.zeros_like(cut)
        return cls(places, thresholds, fit_latent(domain, side, cut, tetrachoric, inside))


class Classes:
    """Classes of rising values (K,), and the latent fields that decide between them."""

    layout: ClassVar = {
        "values": ("K", torch.float64),
        "thresholds": ("nT", torch.float64),
        "places*": ("FK", torch.int64),
        **LATENT_LAYOUT,
    }

    def __init__(self, values: Tensor, parts: list[ClassField]) -> None:
        self.values, self.parts = values, parts
        self.latent, self.variance = [part.latent for part in parts], MIN_LATENT_VARIANCE
        self.ends: Tensor | None = None

    @classmethod
    def fit(cls, domain: Domain, fields: Tensor) -> Classes | None:
        """Choose a rule, and estimate thresholds and latent covariances from inputs (N, n).

        There is no such link where inputs take more than a few values, or some point has but one.
        """
        values = classes_of(fields)
        if values is None:
            return None
        labels = torch.bucketize(fields, ((values[1:] + values[:-1]) / 2).float())
        if bool((labels == labels[0]).all(0).any()):
            return None
        count = len(values)
        rule = chosen_rule(domain.points(), labels, count)
        return cls(values, [ClassField.fit(domain, labels, g, count) for g in fields_of(rule)])

    def told(self, domain: Domain, places: Tensor, values: Tensor, noise: Tensor) -> Told:
        """Return what readings (m,) with this noise say of the latent fields at places (m, d)."""
        ends = []
        for part in self.parts:
            cuts = torch.nn.functional.pad(
                domain.interpolate(part.thresholds, places), [1, 1], value=torch.inf
            )
            cuts[..., 0] = -torch.inf
            free = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
            place = part.places.clamp_min(0)
            of_class = torch.stack([cuts[:, place], cuts[:, place + 1]])  # (2, m, K)
            ends.append(of_class.where(part.places >= 0, free[:, None, None]))
        low, high = every = torch.stack(ends, 1)  # (2, F, m, K)
        which = torch.bucketize(values, (self.values[1:] + self.values[:-1]) / 2)
        # A value between the classes is wrong or noisy; without noise the gap is its scale.
        gap = (self.values[1:] - self.values[:-1]).amin()
        level = noise.clamp_min(MIN_TAIL_NOISE * float(gap))
        z = (values[:, None] - self.values) / level[:, None]
        likelihood = (-z.square() / 2).log_softmax(-1)  # (m, K)
        choices = [
            Choices(low[:, i], high[:, i], lambda mean, std, one=one: (mean, std, one[None]))
            for i, one in enumerate(likelihood)
        ]
        sure = not bool((likelihood.exp().topk(2).values[:, 1] > DOUBT).any())
        low, high = every.gather(3, which[:, None].expand(*every.shape[:3], 1))[..., 0]
        nugget = torch.full((len(which),), self.variance, dtype=torch.float64)
        tail = farthest_tail((values - self.values[which]).abs() / level)
        return Told(low, high, nugget, None if sure else choices, tail)

    def fields(self, latent: list[Tensor]) -> Tensor:
        """Return inputs (S, n), float32, of latent fields (S, n)."""
        values = self.values.float()
        if len(latent) > 1:
            return values[self.numbers(latent)]
        first, *others = values[self.table]  # a tenth of the time of numbers
        found = first.expand_as(latent[0])
        for cut, value in zip(self.parts[0].thresholds.T.float(), others, strict=True):
            found = torch.where(latent[0] > cut, value, found)
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return values, places, thresholds and the latent fields."""
        found = {"values": self.values}
        found["thresholds"] = torch.cat([part.thresholds for part in self.parts], 1)
        ordered = torch.arange(len(self.values))
        if len(self.parts) > 1 or not torch.equal(self.parts[0].places, ordered):
            found["places"] = torch.stack([part.places for part in self.parts])
        for number, part in enumerate(self.parts):
            found |= part.latent.tensors(f"_{number}" if number else "")
        return found

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], domain: Domain) -> Classes:
        """Return the link that `tensors` were taken of."""
        values, thresholds = tensors["values"], tensors["thresholds"]
        places = tensors.get("places", torch.arange(len(values))[None])
        counts = places.amax(1).tolist()
        if thresholds.shape[1] != sum(counts) or min(counts) < 1:
            raise ValueError(f"{len(values)} values have {thresholds.shape[1]} thresholds")
        cuts = thresholds.split(counts, 1)
        if not bool((values.diff() > 0).all()) or any(bool((c.diff() <= 0).any()) for c in cuts):
            raise ValueError("values and thresholds must rise")
        parts = []
        for number, (place, cut) in enumerate(zip(places, cuts, strict=True)):
            tail = f"_{number}" if number else ""
            parts.append(ClassField(place, cut, latent_of(domain, tensors, tail)))
        link = cls(values, parts)
        if bool((link.table < 0).any()):
            raise ValueError("places leave latent values without a class")
        return link

    @cached_property
    def table(self) -> Tensor:
        """Number of the class in each box: of an interval of each latent field."""
        places = torch.stack([part.places for part in self.parts])
        shape = [int(place.amax()) + 1 for place in places]
        table = torch.full(shape, -1)
        for box in itertools.product(*map(range, shape)):
            here = (places == torch.tensor(box)[:, None]) | (places < 0)
            fits = here.all(0).nonzero()[:, 0]
            table[box] = int(fits[0]) if len(fits) == 1 else -1
        return table

    def numbers(self, latent: list[Tensor]) -> Tensor:
        """Return numbers (size, n) of the classes of latent fields (size, n), one for each part."""
        box = []
        for part, field in zip(self.parts, latent, strict=True):
            above = [(field > cut).byte() for cut in part.thresholds.T.float()]
            box.append(torch.stack(above).sum(0))
        return self.table[tuple(box)]


def members(rule: Rule) -> list[int]:
    """Return the classes of a rule."""
    return [rule] if isinstance(rule, int) else [k for part in rule for k in members(part)]


def fields_of(rule: Rule) -> list[list[list[int]]]:
    """Return, for each latent field of a rule, the classes between its thresholds."""
    if isinstance(rule, int):
        return []
    return [[members(part) for part in rule], *(one for part in rule for one in fields_of(part))]


def rules(classes: list[int]) -> list[Rule]:
    """Return the rules to try: one field, or a class apart and the others in order, nested."""

    def nested(order: list[int]) -> Rule:
        return order if len(order) == 2 else [order[0], nested(order[1:])]

    apart = [[one, *(other for other in classes if other != one)] for one in classes]
    return [classes, *(nested(order) for order in apart if len(classes) > 2)]


def chosen_rule(points: Tensor, labels: Tensor, count: int) -> Rule:
    """Return the rule under which the classes at near points are most probable.

    `labels` (N, n) are numbers of K classes (`count`), by their values, at points (n, d).
    """
    by_value = list(range(count))
    if count == 2:
        return by_value
    joints = [_joint(part, *_pairs(points), count) for part in labels.tensor_split(2)]
    tried = rules(by_value)
    scores = [_agreement(rule, joints) for rule in tried]
    limit = max(scores) - (count**2 - 1) / len(labels)  # what chance makes of so many shares
    good = [(rule, score) for rule, score in zip(tried, scores, strict=True) if score >= limit]
    return min(good, key=lambda one: (len(fields_of(one[0])), -one[1]))[0]


def _pairs(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs of points, from neighbours to a quarter of all apart."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(len(points), (RULE_PAIRS,), generator=generator)
    order = torch.cdist(points[first], points).argsort(1)
    most = max(2, len(points) // 4)
    step = (most ** torch.rand(RULE_PAIRS, generator=generator)).long().clamp(1, len(points) - 1)
    return first, order.gather(1, step[:, None])[:, 0]


def _joint(labels: Tensor, first: Tensor, second: Tensor, count: int) -> Tensor:
    """Return the share (P, K, K) of inputs with each pair of classes at each pair of points."""
    pair = (labels[:, first] * count + labels[:, second]).T  # (P, N)
    shares = torch.zeros(len(first), count * count, dtype=torch.float64)
    shares.scatter_add_(1, pair, torch.ones_like(pair, dtype=torch.float64))
    return shares.view(-1, count, count) / len(labels)


def _agreement(rule: Rule, joints: list[Tensor]) -> float:
    """Return the mean log likelihood of each half's pairs of classes under the other half."""
    total = 0.0
    for half, joint in enumerate(joints):
        probable = torch.ones_like(joint)
        for groups in fields_of(rule):
            shares = _field_shares(groups, joint)
            place = torch.full(joint.shape[1:2], -1)  # the last: classes that are elsewhere
            for number, group in enumerate(groups):
                place[group] = number
            probable *= shares[:, place][:, :, place]
        probable = probable.clamp_min(MIN_PAIR_SHARE)
        probable = probable / probable.sum((1, 2), keepdim=True)
        total += float((joints[1 - half] * probable.log()).sum((1, 2)).mean()) / 2
    return total


def _field_shares(groups: list[list[int]], joint: Tensor) -> Tensor:
    """Return shares (P, G + 1, G + 1) of pairs of a latent field's intervals, fitted to `joint`.

    Those of a point alone stand in the last row and column: the other may be of any class.
    """
    one = torch.zeros(len(groups), joint.shape[1], dtype=joint.dtype)
    for number, group in enumerate(groups):
        one[number, group] = 1
    both = (one @ joint @ one.T).clamp_min(1e-6)
    below = (both / both.sum((1, 2), keepdim=True)).cumsum(1).cumsum(2)
    ends = below[:, :-1, -1], below[:, -1, :-1]
    h, k = (torch.special.ndtri(end.clamp(1e-4, 1 - 1e-4)) for end in ends)
    # Each threshold has a correlation; the nearer to one half, the better it is known.
    weight = ends[0] * (1 - ends[0])
    corner = below[:, :-1, :-1].diagonal(dim1=1, dim2=2)
    rho = (tetrachoric(corner, h, k) * weight).sum(1) / weight.sum(1)
    h, k = (torch.nn.functional.pad(one, [1, 1], value=9.0) for one in (h, k))
    h[:, 0] = k[:, 0] = -9.0
    h, k = torch.broadcast_tensors(h[:, :, None], k[:, None, :])
    cells = bivariate_normal(h, k, rho[:, None, None].expand_as(h)).diff(dim=1).diff(dim=2)
    cells = torch.cat([cells, cells.sum(1, keepdim=True)], 1)
    return torch.cat([cells, cells.sum(2, keepdim=True)], 2).clamp_min(0)
