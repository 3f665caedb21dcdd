"""Reference posteriors of u: exact conditioning of the Gaussian field, then the same solver.

Appendix A.2 of the paper. Samples of the conditioned field (log k, where k is observed) are pushed
through the problem's own solver. Stored are statistics, and samples only where the exact
Wasserstein distance wants them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.config import ReferenceConfig
from uqsonet.layouts import load_layouts
from uqsonet.metrics import wasserstein2
from uqsonet.problems import Problem, get_problem
from uqsonet.seeds import numpy_generator
from uqsonet.sensors import Observations, evaluation_observations
from uqsonet.simulation import load_functions
from uqsonet.storage import ArrayFile, write_arrays

BLOCK = 2000
"""Samples solved at a time: they stay in cache and bound the memory."""

BURES_MODES = 32
"""Leading principal components on which the Gaussian W2 is computed."""


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
        The same from an independent draw of equal size: the Monte Carlo floor.
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


def sample_reference(
    problem: Problem,
    locations: Tensor,
    values: Tensor,
    mask: Tensor,
    noise_std: float,
    normals: Tensor,
) -> Tensor:
    """Map standard normals (n, rank) to posterior samples of u (n, grid size) for one set."""
    prior = problem.prior
    observed = problem.transform.forward(values[mask])
    law = prior.condition(locations[mask], observed, noise_std)
    field = prior.field(law.mean + normals @ law.root)
    return problem.solve(problem.transform.inverse(field))


class _Moments:
    """Running mean and covariance in a basis, plus pointwise variance, from blocks of samples."""

    def __init__(self, points: int, vectors: Tensor) -> None:
        self.size, self.vectors = 0, vectors
        self.shift: Tensor | None = None
        self.sum, self.square = torch.zeros(points).double(), torch.zeros(points).double()
        k = vectors.shape[1]
        self.modes, self.cross = torch.zeros(k).double(), torch.zeros(k, k).double()

    def add(self, u: Tensor) -> None:
        if self.shift is None:  # sums of squares about a nearby point lose no digits
            self.shift = u.mean(0)
        centred = u - self.shift
        coefficients = centred @ self.vectors
        self.size += len(u)
        self.sum += centred.sum(0)
        self.square += centred.square().sum(0)
        self.modes += coefficients.sum(0)
        self.cross += coefficients.T @ coefficients

    def finish(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        assert self.shift is not None
        mean = self.sum / self.size
        variance = (self.square - self.size * mean**2) / (self.size - 1)
        modes = self.modes / self.size
        covariance = (self.cross - self.size * torch.outer(modes, modes)) / (self.size - 1)
        mode_mean = modes + self.shift @ self.vectors
        return mean + self.shift, variance.clamp_min(0).sqrt(), mode_mean, covariance


def bures_basis(u: Tensor, quadrature: Tensor) -> Tensor:
    """Return test vectors (n, k): ``u @ vectors`` are leading coefficients in L2 of the domain."""
    root = quadrature.double().sqrt()
    centred = (u.double() - u.double().mean(0)) * root
    _, _, right = torch.linalg.svd(centred, full_matrices=False)
    return root[:, None] * right[:BURES_MODES].T


def compute_reference(
    functions: Path,
    sensors: Path,
    split: str,
    label: str,
    config: ReferenceConfig,
    noise_std: float,
    seed: int,
    path: Path,
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
    """
    data = load_functions(functions, split)
    problem = data.problem
    layouts = load_layouts(sensors, split)
    kappa = data.kappa[: config.sets]
    observations = evaluation_observations(problem, kappa, layouts, noise_std, seed, split)
    vectors = bures_basis(data.u, problem.grid.quadrature())
    grid, kept = problem.training_grid()
    results: dict[str, list[Tensor]] = {}
    for s in range(len(observations.values)):
        generator = numpy_generator(seed, problem.name, split, label, "reference", s)
        draws = []
        for prefix in ("", "repeat_"):
            moments = _Moments(problem.grid.size, vectors)
            stored = []
            for start in range(0, config.reference_samples, BLOCK):
                size = min(BLOCK, config.reference_samples - start)
                normals = torch.from_numpy(generator.standard_normal((size, problem.prior.rank)))
                o = observations
                u = sample_reference(
                    problem, o.locations[s], o.values[s], o.mask[s], noise_std, normals
                )
                moments.add(u)
                if config.wasserstein:
                    stored.append(u[:, kept])
            mean, std, mode_mean, mode_covariance = moments.finish()
            found = {f"{prefix}mean": mean, f"{prefix}std": std}
            if not prefix:
                found |= {"mode_mean": mode_mean, "mode_covariance": mode_covariance}
            if stored:
                draws.append(torch.cat(stored))
            for key, value in found.items():
                results.setdefault(key, []).append(value)
        if draws:
            floor = wasserstein2(draws[0], draws[1], grid.quadrature())
            results.setdefault("samples", []).append(draws[0].float())
            results.setdefault("floor_w2", []).append(torch.tensor(floor))
    arrays = {key: torch.stack(value) for key, value in results.items()}
    arrays |= {
        "mode_vectors": vectors,
        "locations": observations.locations,
        "values": observations.values,
        "mask": observations.mask,
        "function": torch.arange(len(kappa)).repeat(len(layouts)),
    }
    meta = {
        "problem": problem.name,
        "split": split,
        "evaluation": label,
        "noise_std": noise_std,
        "seed": seed,
        "config": config.model_dump(),
    }
    write_arrays(path, "reference", meta, {k: [v.numpy()] for k, v in arrays.items()})


def load_reference(path: Path) -> tuple[Reference, Problem, float]:
    """Read a reference file; returns it with its problem and noise level."""
    with ArrayFile(path, "reference") as file:
        data = {name: torch.from_numpy(file.read(name)) for name in file.names()}
        meta = file.meta
    observations = Observations(data.pop("locations"), data.pop("values"), data.pop("mask"))
    samples, floor = data.pop("samples", None), data.pop("floor_w2", None)
    reference = Reference(observations, samples=samples, floor_w2=floor, **data)
    return reference, get_problem(meta["problem"]), meta["noise_std"]
