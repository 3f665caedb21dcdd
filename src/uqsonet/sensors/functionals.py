"""Sensors that read linear functionals: averages over a region, fluxes as differences.

A functional is a row of weights on points. What it sees of a mean, or of a mode, is the weighted
sum of their values there (`Sensors.read`), so laws that are linear in the
coefficients take it as they take a value at a point. A functional of a field under a logarithm is
refused: an average of k is not linear in log k, and no instrument reads an average of log k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import real_numbers
from uqsonet.sensors.sensors import AXES, Sensors, WeightedPoints, noise_levels


def functional_sets(
    field: Field,
    number: int,
    weighted: WeightedPoints,
    values: object,
    noise_std: object,
    kind: str,
) -> Sensors:
    """Return sensors of one field that read combinations of its values at common points."""
    dim = field.domain.dim
    x, weights = real_numbers(weighted.points, "points"), real_numbers(weighted.weights, "weights")
    x = x[:, None] if x.ndim == 1 and dim == 1 else x
    y = real_numbers(values, "values", missing=True)
    y = y[None] if y.ndim == 0 else y
    weights = weights[None] if weights.ndim == 1 and y.shape[-1] == 1 else weights
    shapes = (*weights.shape, dim) == (y.shape[-1], *x.shape) and y.ndim < 3
    if not shapes:
        raise ObservationError(
            f"shapes do not fit: points (q, {dim}) ({', '.join(AXES[:dim])}), weights (m, q) and "
            f"values (m,) or (B, m) of {field.name} expected, found {tuple(x.shape)}, "
            f"{tuple(weights.shape)}, {tuple(y.shape)}"
        )
    single = y.ndim == 1
    y = y[None] if single else y
    # Each sensor keeps the points that it reads, filled up with its first one.
    order = (weights == 0).long().argsort(dim=1, stable=True)
    order = order[:, : max(1, int((weights != 0).sum(1).max()))]
    weights = weights.gather(1, order)
    order = torch.where(weights == 0, order[:, :1], order)
    sets, m = len(y), len(weights)
    return Sensors(
        field=torch.full((sets, m), number),
        locations=x[order].expand(sets, -1, -1, -1),
        values=y,
        noise_std=noise_levels(noise_std, y),
        mask=torch.ones(sets, m, dtype=torch.bool),
        labels=[str(k) for k in range(sets)],
        single=single,
        kind=kind,
        weights=weights.expand(sets, -1, -1),
    )


def require_readable(
    inputs: Sequence[Field], outputs: Sequence[Field], operator: Any, sets: Sensors
) -> None:
    """Refuse functionals that an operator between these fields cannot take.

    Raises
    ------
    ObservationError
        If weights are all zero or not finite, the field is under a transform, or the model or its
        law of the input knows no functionals.
    """
    assert sets.weights is not None
    fields, there = [*inputs, *outputs], sets.mask & ~sets.at_points
    weights = sets.weights[sets.mask]
    if not bool((weights.isfinite().all(1) & (weights != 0).any(1)).all()):
        raise ObservationError("weights of a sensor must be finite and not all zero")
    law = getattr(operator, "law", None)
    for number in sets.field[there].unique().tolist():
        one = fields[number]
        if one.transform.name != "identity":
            raise ObservationError(
                f"sensors of {one.name}: weights on points are for fields that a model knows "
                f"without a transform, and it knows {one.name} under {one.transform.name}: a "
                f"combination of values of {one.name} is not linear in that. Give sensors at points"
            )
        if number < len(inputs) and law is not None and law.name not in ("mixture", "family"):
            raise ObservationError(
                f"sensors of {one.name}: the law {law.name!r} of the input takes sensors at "
                "points, no weights on points; the laws gaussian, mixture and family do"
            )
    if bool(there.any()) and not getattr(operator, "reads_functionals", False):
        name = getattr(operator, "method", type(operator).__name__)
        raise ObservationError(
            f"{name} takes sensors at points, no weights on points; the Karhunen-Loeve model does"
        )
