"""Gaussian fields whose correlation length is drawn anew for each function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uqsonet_study.priors.beyond import MixtureField
from uqsonet_study.priors.gaussian_process import GaussianField


def random_length(
    field: Callable[[float], GaussianField], shortest: float, longest: float, count: int
) -> MixtureField:
    """Return a Gaussian field of a random length, log-uniform on so many values.

    The posterior is exact: that of each length, weighted by the likelihood of the values.
    """
    lengths = np.geomspace(shortest, longest, count).tolist()
    return MixtureField([field(length) for length in lengths], [1.0] * count)
