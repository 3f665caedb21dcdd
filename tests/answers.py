"""Shorter ways to ask a model."""

from __future__ import annotations

from typing import Any

from uqsonet.gauss.given import Given
from uqsonet.sensors.sensors import checked_sensors


def input_given(
    model: Any, locations: object, values: object, mask: object = None, noise_std: object = None
) -> Given:
    """Return the law of the input's coefficients given sensors, as `condition` takes them."""
    field = model.fields.input
    return model.input_law_given(checked_sensors(field, locations, values, mask, noise_std))
