"""What runs with gaps lack: how much, and whether points, regions or single values are missing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.runs.field_runs import FieldRuns

LOOKED_AT = 2000  # runs, and points, that say which gaps there are, at most
SHARED = 0.2  # correlation of what neighbours lack, beyond that of each point, that makes blocks
UNEQUAL = 4.0  # variance of what points lack over that of chance, above which points differ


class Gaps(NamedTuple):
    """The share of values that are missing, and the kind: ``blocks``, ``points``, ``scattered``."""

    share: float
    kind: str

    def __str__(self) -> str:
        texts = {
            "blocks": "in blocks: whole regions are missing in a run",
            "points": "by points: some are seen much more often than others",
            "scattered": "scattered",
        }
        return f"{self.share:.1%} of the values missing, {texts[self.kind]}"


def unit_points(points: Tensor) -> Tensor:
    """Return points (n, d), each coordinate over the width of their box."""
    points = points.double()
    low, high = points.amin(0), points.amax(0)
    return (points - low) / (high - low).clamp_min(1e-300)


def gaps_of(field: FieldRuns) -> Gaps:
    """Return how much of a field is missing, and what kind of gaps that makes.

    Gaps are blocks where a point and its nearest neighbour lack the same runs more often than what
    each of them lacks on the whole says.
    """
    runs = slice(None, None, max(1, len(field) // LOOKED_AT))
    points = slice(None, None, max(1, field.domain.size // LOOKED_AT))
    lacking = np.isnan(field.values[runs, points]).astype(np.float64)
    share, rate = float(lacking.mean()), lacking.mean(0)
    kind = "scattered"
    if lacking.shape[1] > 1:
        places = unit_points(field.domain.points())[points]
        away = torch.cdist(places, places)
        nearest = away.fill_diagonal_(torch.inf).argmin(1).numpy()
        off = lacking - rate
        both = float(np.sqrt(np.square(off).mean() * np.square(off[:, nearest]).mean()))
        chance = share * (1 - share) / len(lacking)
        if both > 0 and float((off * off[:, nearest]).mean()) > SHARED * both:
            kind = "blocks"
        elif float(rate.var()) > UNEQUAL * chance:
            kind = "points"
    return Gaps(share, kind)
