"""Which classes touch: rules that cut one latent field, or several, into classes.

A rule is a class, or a list of rules: a latent field of its own, cut at rising thresholds, decides
between the members of a list (truncated plurigaussian fields, Galli et al. 1994, with a partition
that nests). ``[0, 1, 2]`` is one field with two thresholds, whose classes 0 and 2 never touch;
``[0, [1, 2]]`` are two fields, and each class touches each. The classes in order of their values,
and each of them apart from the others, are compared by the likelihood of pairs of classes at pairs
of points in one half of the inputs under the other half; of rules between which chance decides,
that of fewest fields is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

Rule = Any  # a class, or a list of rules
RULE_PAIRS = 200  # pairs of near points that rules are compared at
MIN_PAIR_SHARE = 1e-3  # minimum probability of a pair of classes: a rule may be wrong about few
NODES = 24  # nodes of the quadrature of the bivariate normal distribution


def bivariate_normal(h: Tensor, k: Tensor, rho: Tensor) -> Tensor:
    """Return P(X <= h, Y <= k) of standard normals with correlation rho (Drezner & Wesolowsky)."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    top = torch.asin(rho)
    total = torch.zeros_like(rho)
    for x, w in zip(nodes, weights, strict=True):
        theta = top * ((x + 1) / 2)
        sine, cosine = theta.sin(), theta.cos().square().clamp_min(1e-300)
        total += w * torch.exp(-(h * h + k * k - 2 * h * k * sine) / (2 * cosine))
    ndtr = torch.special.ndtr
    return ndtr(h) * ndtr(k) + total * top / (4 * math.pi)


def tetrachoric(both: Tensor, h: Tensor, k: Tensor) -> Tensor:
    """Return the correlation for which P(X <= h, Y <= k) is `both`, by Newton's method."""
    ndtr = torch.special.ndtr
    p, q = ndtr(h), ndtr(k)
    spread = (p * (1 - p) * q * (1 - q)).sqrt().clamp_min(1e-12)
    rho = torch.sin(math.pi / 2 * ((both - p * q) / spread).clamp(-0.9999, 0.9999))
    if not bool(h.any()) and not bool(k.any()):
        return torch.sin(2 * math.pi * (both - 0.25))
    for _ in range(12):
        off = bivariate_normal(h, k, rho) - both
        left = 1 - rho.square()
        density = torch.exp(-(h * h + k * k - 2 * rho * h * k) / (2 * left))
        step = off * 2 * math.pi * left.sqrt() / density.clamp_min(1e-12)
        rho = (rho - step.clamp(-0.2, 0.2)).clamp(-0.9999, 0.9999)
    return rho


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
