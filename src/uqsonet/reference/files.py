"""The reference file of an evaluation: observation sets with the posterior of u given each.

Where nobody knows that posterior (own data), the file holds the observation sets alone.
Stored are statistics, with a second value of each that tells their error, and samples only where
the exact Wasserstein distance wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.fields import Observations
from uqsonet.operator_fields import OperatorFields
from uqsonet.storage.reading import ArrayFile


@dataclass(frozen=True)
class ObservationSets:
    """Observation sets of one evaluation.

    Attributes
    ----------
    observations : Observations
        S sets, ordered by sensor count; float64.
    function : Tensor, shape (S,)
        Index of the function observed in its split.
    """

    observations: Observations
    function: Tensor


@dataclass(frozen=True)
class Reference(ObservationSets):
    """Observation sets of one evaluation with their reference posteriors.

    Attributes
    ----------
    mean, std : Tensor, shape (S, n)
        On the full grid.
    repeat_mean, repeat_std : Tensor, shape (S, n)
        What tells the error of `mean` and `std`. For `monte_carlo` the same from an independent
        draw of equal size (the floor under any comparison); for `reduced` the first of two
        independent halves, as far from their average as that is from the truth, on average.
    mode_vectors : Tensor, shape (n, k)
        Orthonormal (in quadrature) basis for the Gaussian W2.
    mode_mean : Tensor, shape (S, k)
    mode_covariance : Tensor, shape (S, k, k)
    samples : Tensor, shape (S, n_samples, M), or None
        Sample functions on the training grid.
    floor_w2 : Tensor, shape (S,), or None
        Exact W2 between the two independent draws.
    quantiles : Tensor, shape (S, bins, M), or None
        Means of equal bins of the ascending samples at each point of the training grid.
    floor_w1 : Tensor, shape (S,), or None
        `marginal_w1` between the quantiles of the two independent draws.
    """

    mean: Tensor
    std: Tensor
    repeat_mean: Tensor
    repeat_std: Tensor
    mode_vectors: Tensor
    mode_mean: Tensor
    mode_covariance: Tensor
    samples: Tensor | None
    floor_w2: Tensor | None
    quantiles: Tensor | None = None
    floor_w1: Tensor | None = None


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
    with ArrayFile(path, "reference") as file:
        operator_fields, noise_std = file.fields(), file.meta.get("noise_std")
        data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
    optional = {"samples", "floor_w2", "quantiles", "floor_w1"}
    expected = {field.name for field in fields(Reference)} - {"observations"}
    expected |= {"locations", "values", "mask"}
    sets_alone = {"locations", "values", "mask", "function"}
    if set(data) == sets_alone:
        expected = sets_alone
    if wrong := sorted((expected - optional - set(data)) | (set(data) - expected)):
        raise DataError(f"{path}: arrays {', '.join(wrong)} are missing or unknown")
    if not isinstance(noise_std, int | float):
        raise DataError(f"{path}: header cannot be read (noise_std is {noise_std!r})")
    observations = Observations(data.pop("locations"), data.pop("values"), data.pop("mask"))
    if expected is sets_alone:
        return ObservationSets(observations, data["function"]), operator_fields, float(noise_std)
    samples, floor = data.pop("samples", None), data.pop("floor_w2", None)
    quantiles, floor_w1 = data.pop("quantiles", None), data.pop("floor_w1", None)
    reference = Reference(
        observations,
        samples=samples,
        floor_w2=floor,
        quantiles=quantiles,
        floor_w1=floor_w1,
        **data,
    )
    return reference, operator_fields, float(noise_std)
