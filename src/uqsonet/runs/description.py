"""What runs are like: shapes, ranges, spectra, and how far from Gaussian (`Runs.describe`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uqsonet.fields.field import Transform
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.gauss.modes import empirical_modes
from uqsonet.runs.field_runs import FieldRuns

SKEWED = 0.5
"""Skewness of positive values above which their logarithm is proposed."""


def may_log(field: FieldRuns) -> bool:
    """Return whether a logarithm is possible: positive values, more than two of them."""
    return float(field.values.min()) > 0 and np.unique(field.values[:50]).size > 2


def proposed_transform(field: FieldRuns) -> str:
    """Return ``log`` where the values are positive and skewed and their logarithm is less so.

    `uqsonet.fit` tries both and takes the one with the better scores.
    """
    if field.transform is not None or not may_log(field):
        return field.transform or "identity"
    values = field.values.astype(np.float64)
    plain, logged = _skewness(values), _skewness(np.log(values))
    return "log" if plain > SKEWED and abs(logged) < plain else "identity"


def _skewness(values: np.ndarray) -> float:
    centred = values - values.mean()
    return float((centred**3).mean() / (centred**2).mean() ** 1.5)


@dataclass(frozen=True)
class FieldDescription:
    """What `describe` finds about one field.

    Attributes
    ----------
    name, side, units, transform : str
        `side` is ``input`` or ``output``; `transform` is the one proposed.
    points : tuple of int
    lowest, highest : float
    distinct : int
        Different values among the first runs, at most 3.
    modes : dict of float to int
        Modes that keep a share of the variance.
    distance : float
        Largest Kolmogorov distance between a leading coefficient, or the norm of ten of them, and
        what it would be under a Gaussian law.
    chance : float
        What chance alone makes of it (95 %), for so many runs.
    interpolation_error : float
    """

    name: str
    side: str
    units: str
    transform: str
    points: tuple[int, ...]
    lowest: float
    highest: float
    distinct: int
    modes: dict[float, int]
    distance: float
    chance: float
    interpolation_error: float

    def __str__(self) -> str:
        units = f" {self.units}" if self.units else ""
        kept = ", ".join(f"{count} keep {100 * share:g} %" for share, count in self.modes.items())
        two = ", two values only" if self.distinct <= 2 else ""
        law = "no evidence against a Gaussian law"
        if self.distance > self.chance:
            law = "not Gaussian"
        lines = [
            f"{self.side:7}{self.name}: {' x '.join(map(str, self.points))} points, "
            f"{self.lowest:.4g} to {self.highest:.4g}{units}{two}",
            f"       transform {self.transform}; modes: {kept}",
            f"       coefficients: {law} (Kolmogorov distance {self.distance:.3f}; "
            f"chance {self.chance:.3f})",
        ]
        if self.interpolation_error:
            lines.append(
                f"       interpolated to common points, with an error of about "
                f"{100 * self.interpolation_error:.2g} % of its standard deviation"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Description:
    """What `Runs.describe` finds; printing it is the point."""

    name: str
    runs: int
    fields: tuple[FieldDescription, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.runs} runs", *map(str, self.fields)])


SHARES = (0.9, 0.99, 0.999)
"""Shares of the variance whose modes a description counts."""


def describe(
    name: str, inputs: Mapping[str, FieldRuns], outputs: Mapping[str, FieldRuns]
) -> Description:
    """Describe the fields of a data set of this name (`Runs.describe`)."""
    described = [
        _described(key, "input", one, proposed_transform(one)) for key, one in inputs.items()
    ]
    described += [_described(key, "output", one, "identity") for key, one in outputs.items()]
    return Description(name, len(next(iter(inputs.values()))), tuple(described))


def _described(name: str, side: str, field: FieldRuns, transform: str) -> FieldDescription:
    """Describe a field."""
    forward = Transform(transform).forward
    values = torch.from_numpy(field.values)
    rows = RowBlocks.of(values).map(lambda block: forward(block.double()))
    modes = empirical_modes(rows, min(len(field) - 1, rows.shape[1], 400), "modes")
    total = modes.std.square().sum() + rows.shape[1] * modes.remainder**2
    kept = (modes.std.square().cumsum(0) / total).clamp_max(1)
    real = modes.std > 1e-6 * modes.std[0]  # others are the rounding of stored values
    some = modes.coefficients(forward(values[:5000].double()))[:, real]
    return FieldDescription(
        name=name,
        side=side,
        units=field.units,
        transform=transform,
        points=field.domain.shape,
        lowest=float(field.values.min()),
        highest=float(field.values.max()),
        distinct=min(3, np.unique(field.values[:50]).size),
        modes={share: int((kept < share).sum()) + 1 for share in SHARES},
        distance=distance_from_gaussian(some / modes.std[real]),
        chance=1.73 / math.sqrt(len(some)),
        interpolation_error=field.interpolation_error,
    )


def distance_from_gaussian(coefficients: Tensor) -> float:
    """Return how far standardised coefficients (N, r) are from independent standard normals.

    The largest Kolmogorov distance of the first ten and of their squared norm, which under a
    Gaussian law is chi-squared: a heavy tail common to all shows there.
    """
    leading = coefficients[:, :10]
    cuts = [torch.special.ndtr(column) for column in leading.T]
    half = torch.tensor(leading.shape[1] / 2, dtype=torch.float64)
    cuts.append(torch.special.gammainc(half, leading.square().sum(1) / 2))
    size = len(coefficients)
    steps = torch.arange(size + 1, dtype=torch.float64) / size
    worst = 0.0
    for cut in cuts:
        ordered = cut.double().sort().values
        gap = torch.maximum((ordered - steps[:-1]).abs(), (ordered - steps[1:]).abs())
        worst = max(worst, float(gap.max()))
    return worst
