"""The reference file of an evaluation: observation sets with the posterior of u given each.

Where nobody knows that posterior (own data), the file holds the observation sets alone.
Stored are statistics, with a second value of each that tells their error, and samples only where
the exact Wasserstein distance wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import readable
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.storage import ArrayFile


@dataclass(frozen=True)
class ObservationSets:
    """Observation sets of one evaluation."""

    observations: Sensors  # S sets, ordered by sensor count; float64
    function: Tensor  # (S,), index of the function observed in its split

    @property
    def counts(self) -> Tensor:
        """Sensor count (S,) that a set is listed by."""
        return self.observations.counts


@dataclass(frozen=True)
class Reference(ObservationSets):
    """Observation sets of one evaluation with their reference posteriors."""

    # (S, n), on the full grid
    mean: Tensor
    std: Tensor
    # (S, n), what tells the error of `mean` and `std`. For `monte_carlo` the same from an
    # independent draw of equal size (the floor under any comparison); for `reduced` the first of
    # two independent halves, as far from their average as that is from the truth, on average.
    repeat_mean: Tensor
    repeat_std: Tensor
    mode_vectors: Tensor  # (n, k), orthonormal (in quadrature) basis for the Gaussian W2
    mode_mean: Tensor  # (S, k)
    mode_covariance: Tensor  # (S, k, k)
    samples: Tensor | None  # (S, n_samples, M), sample functions on the training grid
    floor_w2: Tensor | None  # (S,), exact W2 between the two independent draws
    # (S, bins, M), means of equal bins of the ascending samples at each point of the training grid
    quantiles: Tensor | None = None
    # (S,), `marginal_w1` between the quantiles of the two independent draws
    floor_w1: Tensor | None = None


OPTIONAL = ("samples", "floor_w2", "quantiles", "floor_w1")
OF_SETS = ("locations", "values", "mask")


def load_reference(path: Path) -> tuple[Reference, OperatorFields, float]:
    """Read a reference file; returns it with its fields and its noise level.

    Raises
    ------
    DataError
        If the file is damaged, lacks an array or a part of its header, or has no posteriors.
    """
    found, operator_fields, noise_std = load_sets(path)
    if not isinstance(found, Reference):
        raise DataError(f"{path}: holds observation sets alone, no reference posteriors")
    return found, operator_fields, noise_std


def load_sets(path: Path) -> tuple[ObservationSets, OperatorFields, float]:
    """Read a reference file, which is a `Reference` if it has posteriors.

    Returns and errors are otherwise those of `load_reference`.
    """
    with ArrayFile(path, "reference") as file, readable(path, "header cannot be read"):
        operator_fields, noise_std = file.fields(), float(file.meta["noise_std"])
        data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
    own = {f.name for f in fields(Reference)} - {"observations"}
    posteriors = own & set(data) != {"function"}
    expected = {*OF_SETS, *(own - set(OPTIONAL) if posteriors else {"function"})}
    if wrong := sorted((expected - set(data)) | (set(data) - expected - set(OPTIONAL))):
        raise DataError(f"{path}: arrays {', '.join(wrong)} are missing or unknown")
    x, y, mask = (data.pop(name) for name in OF_SETS)
    observations = Sensors(x, y, mask)
    if not posteriors:
        return ObservationSets(observations, **data), operator_fields, noise_std
    optional: dict[str, Any] = {name: data.pop(name, None) for name in OPTIONAL}
    return Reference(observations, **data, **optional), operator_fields, noise_std
