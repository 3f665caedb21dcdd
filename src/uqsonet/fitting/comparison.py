"""One comparison, one rule: candidates have an order, and the first that is not worse is taken.

Laws, and what answers in a model's place, are scored on the same held-out runs. The simplest
candidate comes first, and the first is taken to which no other one is preferable. One is preferable
to another if its CRPS is lower by more than is tolerated: a standard error, but no more than
`MOST_TOLERATED`, so that what is little known is not lost by much. Or it is as low, and its bands
hold what they promise while the other's do not: the CRPS alone hardly tells how wide an answer is.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fitting.held_out import LEVELS, HeldOut
from uqsonet.gauss.seeds import torch_generator

LOG = logging.getLogger("uqsonet")

DRAWS = 256  # functions behind the CRPS of one answer

LEAST_TOLERATED, MOST_TOLERATED = 0.005, 0.02
"""Share by which a CRPS may be higher and count as equal: a standard error between these two."""

ROUNDING = 1e-4
"""CRPS, relative to that of the mean of the runs, that is rounding alone."""

NO_ANSWER = 10.0  # CRPS of a model without an answer, in the same units

EXACT = 0.05
"""CRPS, relative to that of the mean of the runs, beside which differences hardly count."""

BAND_ERRORS, MIN_MISS = 2.0, 0.02
"""Bands hold too much or too little if they miss their levels, summed over `LEVELS`, by more than
those of another candidate do: by so many standard errors of the difference, and by this share."""


class Comparison:
    """Candidates by name, the simplest first, and their scores on the same held-out pairs.

    Pairs may be in parts, each of which has its own operator of a candidate.
    """

    def __init__(self, parts: Sequence[HeldOut], seed: int) -> None:
        self.parts, self._seed = parts, seed
        self.scores: dict[str, Tensor] = {}
        """CRPS and shares inside bands of `LEVELS`, (3, counts, N)."""
        first = 0
        groups = []
        for one in parts:
            groups.append(one.groups + first)
            first += int(one.groups.max()) + 1
        self.groups = torch.cat(groups)
        """Which of the N pairs share a layout: what is true of one is likely so of the others."""

    @torch.no_grad()
    def add(self, name: str, operators: Sequence[Any]) -> bool:
        """Score a candidate; return whether it has an answer to all pairs."""
        LOG.log(15, "scoring %s on held-out runs", name)
        found = []
        try:
            for one, held in zip(operators, self.parts, strict=True):
                rows = []
                for count in held.sensors:
                    draws = torch_generator(self._seed, "fit", "answers", "draws")
                    rows.append(held.sampled(one, count, DRAWS, draws))
                found.append(torch.stack(rows, 1))
        except (ObservationError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
            LOG.info("%s: no answer to a held-out run (%s)", name, error)
            return False
        self.scores[name] = torch.cat(found, 2)
        means = ", ".join(f"{float(mean):.4g}" for mean in self.scores[name][0].mean(1))
        LOG.info("%s: CRPS %s", name, means)
        return True

    def no_answer(self, name: str) -> None:
        """Give a candidate that has no answer a score that nothing is as bad as."""
        counts = len(self.parts[0].sensors)
        usual = torch.cat([torch.full((len(one),), one.usual()[0]) for one in self.parts])
        found = torch.zeros(1 + len(LEVELS), counts, len(usual), dtype=torch.float64)
        found[0] = NO_ANSWER * usual
        self.scores[name] = found

    def relative(self) -> dict[str, Tensor]:
        """Return scores (3, N) over all numbers of sensors: each CRPS in units of the lowest.

        Answers that are exact but for rounding are equal, and their bands do not count.
        """
        lowest = torch.stack([one[0].mean(1) for one in self.scores.values()]).amin(0)
        usual = sum(len(one) * one.usual()[0] for one in self.parts) / len(self.groups)
        scale = (lowest + EXACT * usual)[:, None]
        wide = torch.where(lowest > ROUNDING * usual, 1.0, torch.nan)[:, None]
        return {
            name: torch.cat([one[:1].clamp_min(ROUNDING * usual) / scale, one[1:] * wide]).nanmean(
                1
            )
            for name, one in self.scores.items()
        }

    def taken(self, order: Sequence[str] | None = None) -> tuple[str, str]:
        """Return the name of what is taken, and why: ``crps``, ``bands``, or nothing."""
        found = self.relative()
        order = list(found) if order is None else [name for name in order if name in found]
        number, why = first_not_worse([found[name] for name in order], self.groups)
        return order[number], why

    def above(self, name: str, other: str) -> tuple[float, float]:
        """Return by which share the CRPS of one is above another's, and its standard error."""
        found = self.relative()
        size = float(found[other][0].mean())
        more = (found[name][0] - found[other][0]) / size
        return float(more.mean()), standard_error(more, self.groups)


def standard_error(values: Tensor, groups: Tensor | None = None) -> float:
    """Return the standard error of the mean of values (N,), those of one group being dependent."""
    groups = torch.arange(len(values)) if groups is None else groups
    count = int(groups.max()) + 1
    if count < 2:
        return math.inf
    totals = torch.zeros(count, dtype=values.dtype).index_add_(0, groups, values - values.mean())
    return math.sqrt(count / (count - 1) * float(totals.square().sum())) / len(values)


def preferable(one: Tensor, other: Tensor, groups: Tensor | None = None) -> str:
    """Return in what a candidate is preferable to another: ``crps``, ``bands``, or nothing."""
    gain, size = other[0] - one[0], float(other[0].mean().minimum(one[0].mean()))
    allowed = standard_error(gain, groups) / max(size, 1e-300)
    chance = size * min(max(allowed, LEAST_TOLERATED), MOST_TOLERATED)
    if float(gain.mean()) > chance:
        return "crps"
    less = _missed(other) - _missed(one)
    least = max(BAND_ERRORS * standard_error(less, groups), MIN_MISS)
    return "bands" if float(gain.mean()) >= -chance and float(less.mean()) > least else ""


def _missed(scores: Tensor) -> Tensor:
    """Return values (N,) whose mean is by how much bands miss their levels."""
    levels = torch.tensor(LEVELS[: len(scores) - 1], dtype=torch.float64)
    off = scores[1:] - levels[:, None]
    return (off * off.mean(1, keepdim=True).sign()).sum(0)


def first_not_worse(scores: Sequence[Tensor], groups: Tensor | None = None) -> tuple[int, str]:
    """Return which candidate is taken, and why not the first one: ``crps``, ``bands``, or nothing.

    Parameters
    ----------
    scores : sequence of Tensor, shape (1, N) or (3, N)
        The CRPS of each held-out run, and the shares of it that bands of `LEVELS` hold; the
        simplest candidate comes first.
    groups : Tensor, shape (N,), optional
        Runs of one number share a layout of sensors: they count as one where errors are estimated.
        By default each run counts.

    Where each candidate has one that is preferable, the one of lowest CRPS is taken.
    """
    reasons = [[preferable(other, one, groups) for other in scores] for one in scores]
    lowest = min(range(len(scores)), key=lambda k: float(scores[k][0].mean()))
    number = next((k for k, why in enumerate(reasons) if not any(why)), lowest)
    why = next(filter(None, [reasons[0][number], *reasons[0]]), "") if number else ""
    return number, why
