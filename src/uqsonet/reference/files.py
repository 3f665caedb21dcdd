"""The reference file of an evaluation: observation sets with the posterior of u given each.

Stored are statistics, with a second value of each that tells their error, and samples only where
the exact Wasserstein distance wants them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.errors import ConfigError, DataError
from uqsonet.gaussian_process import GaussianLaw
from uqsonet.layouts import load_layouts
from uqsonet.metrics import wasserstein2
from uqsonet.problems import Problem, get_problem
from uqsonet.reference.affine import ClosedForm, OperatorMoments
from uqsonet.reference.moments import Moments, SampleMoments, bures_basis
from uqsonet.reference.sampling import ControlledSampler, plain_draws, posterior_law
from uqsonet.seeds import numpy_generator
from uqsonet.sensors import Observations, evaluation_observations
from uqsonet.simulation import load_functions
from uqsonet.storage import ArrayFile, array_digest, write_arrays
from uqsonet_study.config import ReferenceConfig
from uqsonet_study.parts import PartStore, Row


@dataclass(frozen=True)
class Reference:
    """Observation sets of one evaluation with their reference posteriors.

    Attributes
    ----------
    observations : Observations
        S sets, ordered by sensor count; float64.
    function : Tensor, shape (S,)
        Index of the function observed in its split.
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
    """

    observations: Observations
    function: Tensor
    mean: Tensor
    std: Tensor
    repeat_mean: Tensor
    repeat_std: Tensor
    mode_vectors: Tensor
    mode_mean: Tensor
    mode_covariance: Tensor
    samples: Tensor | None
    floor_w2: Tensor | None


def compute_reference(
    functions: Path,
    sensors: Path,
    split: str,
    label: str,
    config: ReferenceConfig,
    noise_std: float,
    seed: int,
    path: Path,
    *,
    state: Path | None = None,
    code: str = "",
    workers: int = 1,
    bar: bool = False,
) -> None:
    """Compute and store the reference posteriors of one evaluation.

    Parameters
    ----------
    functions, sensors : Path
        Data and layouts.
    split : {"validation", "test"}
    label : str
        Name of the evaluation, a branch of the seed tree.
    config : ReferenceConfig
    noise_std : float
    seed : int
    path : Path
        HDF5 file to write.
    state : Path, optional
        Folder for finished parts, by default beside `path`. A killed job continues from it; at the
        end it is removed.
    code : str
        Digest of the source that determines the result; parts of another are not used.
    workers : int
        Processes at a time where sets are sampled one by one; the result does not depend on it.
    bar : bool
        Draw a progress bar on a terminal.
    """
    data = load_functions(functions, split)
    problem = data.problem
    layouts = load_layouts(sensors, split)
    kappa = data.kappa[: config.sets]
    observations = evaluation_observations(problem, kappa, layouts, noise_std, seed, split)
    vectors = bures_basis(data.u, problem.grid.quadrature())
    o = observations
    laws = [
        posterior_law(problem, o.locations[s], o.values[s], o.mask[s], noise_std)
        for s in range(len(o.values))
    ]
    meta = {
        "problem": problem.name,
        "split": split,
        "evaluation": label,
        "noise_std": noise_std,
        "seed": seed,
        "config": config.model_dump(),
    }
    folder = path.with_name(f".{path.name}.parts") if state is None else state
    seen = [array_digest(t.numpy()) for t in (vectors, o.locations, o.values, o.mask)]
    parts = PartStore(folder, meta | {"code": code, "sets": seen}, workers, bar)
    stream = _Stream(seed, (problem.name, split, label))
    estimate = _reduced if config.estimator == "reduced" else _monte_carlo
    rows = estimate(problem, vectors, laws, config, stream, parts)
    arrays = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    arrays |= {
        "mode_vectors": vectors,
        "locations": observations.locations,
        "values": observations.values,
        "mask": observations.mask,
        "function": torch.arange(len(kappa)).repeat(len(layouts)),
    }
    write_arrays(path, "reference", meta, {k: [v.numpy()] for k, v in arrays.items()})
    parts.remove()


@dataclass(frozen=True)
class _Stream:
    """The branch of the seed tree that one reference draws from."""

    seed: int
    path: tuple[str | int, ...]

    def __call__(self, *path: str | int) -> np.random.Generator:
        return numpy_generator(self.seed, *self.path, "reference", *path)


Rows = list[Row]


def _monte_carlo(
    problem: Problem,
    vectors: Tensor,
    laws: list[GaussianLaw],
    config: ReferenceConfig,
    stream: _Stream,
    parts: PartStore,
) -> Rows:
    """Return moments from two independent draws for each set, the paper's way."""
    grid, kept = problem.training_grid()

    def row(s: int) -> Row:
        generator = stream(s)
        found, stored = [], []
        for _ in range(2):
            moments = SampleMoments(vectors)
            blocks = []
            for u in plain_draws(problem, laws[s], generator, config.reference_samples):
                moments.add(u)
                if config.wasserstein:
                    blocks.append(u[:, kept])
            found.append(moments.finish())
            stored.append(blocks)
        result = _row(found[0], found[1])
        if config.wasserstein:
            first, second = (torch.cat(blocks) for blocks in stored)
            floor = wasserstein2(first, second, grid.quadrature())
            result |= {"samples": first.float(), "floor_w2": torch.tensor(floor)}
        return result

    return parts.rows(len(laws), row)


def _reduced(
    problem: Problem,
    vectors: Tensor,
    laws: list[GaussianLaw],
    config: ReferenceConfig,
    stream: _Stream,
    parts: PartStore,
) -> Rows:
    """Return moments by the best estimator that the problem allows, with their own error."""
    if problem.affine == "kappa" and problem.intrinsic is None:
        exact = ClosedForm(problem, vectors)
        found = [exact.moments(law) for law in laws]
        return [_row(moments, moments) for moments in found]
    half = -(-config.reference_samples // 2)
    if problem.affine == "kappa":
        halves = [
            OperatorMoments(problem, vectors, stream("operator", part), half).moments(laws)
            for part in range(2)
        ]
        return [_average(*pair) for pair in zip(*halves, strict=True)]
    samples = 2 * half * len(laws)
    sampler = ControlledSampler(problem, vectors, stream("control"), samples)
    return parts.rows(
        len(laws),
        lambda s: _average(*(sampler.moments(laws[s], stream(s, part), half) for part in range(2))),
    )


def _average(first: Moments, second: Moments) -> Row:
    """Return two halves as one row: `repeat` is the first of them."""
    return _row((first + second) * 0.5, first)


def _row(moments: Moments, repeat: Moments) -> Row:
    return {
        "mean": moments.mean,
        "std": moments.std,
        "mode_mean": moments.mode_mean,
        "mode_covariance": moments.mode_covariance,
        "repeat_mean": repeat.mean,
        "repeat_std": repeat.std,
    }


def load_reference(path: Path) -> tuple[Reference, Problem, float]:
    """Read a reference file; returns it with its problem and noise level."""
    with ArrayFile(path, "reference") as file:
        data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
        meta = file.meta
    optional = {"samples", "floor_w2"}
    expected = {field.name for field in fields(Reference)} - {"observations"}
    expected |= {"locations", "values", "mask"}
    if wrong := sorted((expected - optional - set(data)) | (set(data) - expected)):
        raise DataError(f"{path}: arrays {', '.join(wrong)} are missing or unknown")
    try:
        problem, noise_std = get_problem(meta["problem"]), float(meta["noise_std"])
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"{path}: header cannot be read ({error})") from None
    observations = Observations(data.pop("locations"), data.pop("values"), data.pop("mask"))
    samples, floor = data.pop("samples", None), data.pop("floor_w2", None)
    reference = Reference(observations, samples=samples, floor_w2=floor, **data)
    return reference, problem, noise_std
