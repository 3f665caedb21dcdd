"""The job that computes the reference posteriors of an evaluation, part by part."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uqsonet.errors import ConfigError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import array_digest
from uqsonet.gauss.metrics import ascending
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.networks.devices import keep_freed_memory
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.beyond.distances import marginal_w1, quantile_bins
from uqsonet_study.distances import wasserstein2
from uqsonet_study.layouts import load_layouts
from uqsonet_study.parts import PartStore, Row
from uqsonet_study.priors.gaussian_process import GaussianField
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.reference.affine import ClosedForm, OperatorMoments
from uqsonet_study.reference.moments import Moments, SampleMoments, bures_basis
from uqsonet_study.reference.sampling import (
    ControlledSampler,
    plain_draws,
    posterior,
    posterior_law,
)
from uqsonet_study.settings import EvaluationName, ReferenceConfig
from uqsonet_study.storage import load_functions, write_arrays

TOLERANCE = 1e-4
"""Relative error of solutions behind references: a tenth of what sampling leaves open, or less."""


def evaluation_observations(
    fields: OperatorFields,
    functions: Tensor,
    layouts: dict[int, Tensor],
    noise_std: float,
    seed: int,
    split: str,
) -> Sensors:
    """Return the observation sets of a split: set s at count m sees function s.

    Sets are ordered by count, then by function; shape (counts * S, largest m), float64.
    """
    sets, widest, parts = len(functions), max(layouts), []
    for m, indices in layouts.items():
        generator = numpy_generator(seed, fields.name, split, "noise", m)
        noise = torch.from_numpy(generator.standard_normal((len(indices), m)))[:sets] * noise_std
        x, y = fields.input.read(functions.double(), indices[:sets], noise if noise_std else None)
        mask = torch.ones_like(y, dtype=torch.bool)
        padding = (0, widest - m)
        parts.append((pad(x, (0, 0, *padding)), pad(y, padding, value=1.0), pad(mask, padding)))
    x, y, mask = (torch.cat(part) for part in zip(*parts, strict=True))
    return Sensors(x, y, mask)


def compute_reference(
    functions: Path,
    sensors: Path,
    split: str,
    label: EvaluationName,
    config: ReferenceConfig,
    noise_std: float,
    seed: int,
    path: Path,
    *,
    state: Path | None = None,
    code: str = "",
    workers: int = 1,
) -> None:
    """Compute and store the reference posteriors of one evaluation.

    With ``estimator: none`` observation sets alone are stored.

    Parameters
    ----------
    functions, sensors : Path
        Data and layouts.
    split : {"validation", "test"}
    label : {"validation", "paper", "precise"}
        The evaluation, a branch of the seed tree.
    path : Path
        HDF5 file to write.
    state : Path, optional
        Folder for finished parts, by default beside `path`. A killed job continues from it; at the
        end it is removed.
    code : str
        Digest of the source that determines the result; parts of another are not used.
    workers : int
        Processes at a time where sets are sampled one by one; the result does not depend on it.
    """
    keep_freed_memory()
    data = load_functions(functions, split)
    layouts, kappa = load_layouts(sensors, split), data.kappa[: config.sets]
    o = evaluation_observations(data.fields, kappa, layouts, noise_std, seed, split)
    meta = {
        "problem": data.fields.name,
        "fields": data.fields.as_dict(),
        "split": split,
        "evaluation": label,
        "noise_std": noise_std,
        "seed": seed,
        "config": config.model_dump(),
    }
    sets = {
        "locations": o.locations,
        "values": o.values,
        "mask": o.mask,
        "function": torch.arange(len(kappa)).repeat(len(layouts)),
    }
    if config.estimator == "none":
        write_arrays(path, "reference", meta, {k: [v.numpy()] for k, v in sets.items()})
        return
    problem = for_sampling(get_problem(data.fields.name))
    if config.estimator == "reduced" and not isinstance(problem.prior, GaussianField):
        raise ConfigError(
            f"evaluations.{label}.estimator is reduced, and the input of {problem.name} is no "
            "Gaussian field; monte_carlo or none is possible"
        )
    vectors = bures_basis(data.u, problem.grid.quadrature())
    folder = path.with_name(f".{path.name}.parts") if state is None else state
    seen = [array_digest(t.numpy()) for t in (vectors, o.locations, o.values, o.mask)]
    parts = PartStore(folder, meta | {"code": code, "sets": seen}, workers)
    sampling = _Sampling(
        problem,
        vectors,
        config,
        partial(numpy_generator, seed, problem.name, split, label, "reference"),
        parts,
        given=_sets(o, noise_std),
    )
    rows = ESTIMATORS[config.estimator](sampling)
    arrays = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    arrays |= {"mode_vectors": vectors, **sets}
    write_arrays(path, "reference", meta, {k: [v.numpy()] for k, v in arrays.items()})
    parts.remove()


def for_sampling(problem: Problem) -> Problem:
    """Return the problem solved no more finely than sampling needs, where that can be chosen."""
    if not problem.tolerance:
        return problem
    found = copy(problem)
    found.tolerance = max(problem.tolerance, TOLERANCE)
    return found


Rows = list[Row]

Given = tuple[Tensor, Tensor, float]
"""Locations (m, d), values (m,) and noise of one observation set."""

BINS = 200  # bins of stored quantiles at most
BIN_SAMPLES = 10  # samples in each bin at least


def _sets(sensors: Sensors, noise_std: float) -> list[Given]:
    """Return observation sets one by one, without padding."""
    sets = zip(sensors.locations, sensors.values, sensors.mask, strict=True)
    return [(places[used], values[used], noise_std) for places, values, used in sets]


@dataclass(frozen=True)
class _Sampling:
    """What reference posteriors are computed from."""

    problem: Problem
    vectors: Tensor  # (n, k), the test vectors of the modes
    config: ReferenceConfig
    stream: Callable[..., np.random.Generator]  # of a path below the evaluation's branch
    parts: PartStore
    given: list[Given]


def _monte_carlo(of: _Sampling) -> Rows:
    """Return moments from two independent draws for each set, the paper's way.

    Laws of inputs that are not Gaussian are more than their moments: quantiles are kept, too.
    """
    problem, config, (grid, kept) = of.problem, of.config, of.problem.training_grid()
    gaussian = isinstance(problem.prior, GaussianField)
    bins = max(1, min(BINS, config.samples // BIN_SAMPLES))

    def row(s: int) -> Row:
        generator, law = of.stream(s), posterior(problem, *of.given[s])
        found, stored = [], []
        for _ in range(2):
            moments = SampleMoments(of.vectors)
            blocks = []
            for u in plain_draws(problem, law, generator, config.samples):
                moments.add(u)
                if config.wasserstein or not gaussian:
                    blocks.append(u[:, kept] if gaussian else u[:, kept].float())
            found.append(moments.finish())
            stored.append(blocks)
        result = _row(found[0], found[1])
        if config.wasserstein:
            first, second = (torch.cat(blocks) for blocks in stored)
            floor = wasserstein2(first, second, grid.quadrature())
            result |= {"samples": first.float(), "floor_w2": torch.tensor(floor)}
        if not gaussian:
            ours, theirs = (quantile_bins(ascending(torch.cat(b)), bins) for b in stored)
            floor = marginal_w1(ours, theirs, result["std"][kept])
            result |= {"quantiles": ours.float(), "floor_w1": torch.tensor(floor)}
        return result

    return of.parts.rows(len(of.given), row)


def _reduced(of: _Sampling) -> Rows:
    """Return moments by the best estimator that the problem allows, with their own error."""
    problem, vectors = of.problem, of.vectors
    if problem.affine == "kappa" and problem.unobserved is None:
        exact = ClosedForm(problem, vectors)
        found = (exact.moments(posterior_law(problem, *one)) for one in of.given)
        return [_row(moments, moments) for moments in found]
    laws = [posterior_law(problem, *one) for one in of.given]
    half = -(-of.config.samples // 2)
    if problem.affine == "kappa":
        halves = [
            OperatorMoments(problem, vectors, of.stream("operator", part), half).moments(laws)
            for part in range(2)
        ]
        return [_average(*pair) for pair in zip(*halves, strict=True)]
    samples = 2 * half * len(laws)
    sampler = ControlledSampler(problem, vectors, of.stream("control"), samples)

    def row(s: int) -> Row:
        halves = (sampler.moments(laws[s], of.stream(s, part), half) for part in range(2))
        return _average(*halves)

    return of.parts.rows(len(laws), row)


ESTIMATORS = {"monte_carlo": _monte_carlo, "reduced": _reduced}


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
