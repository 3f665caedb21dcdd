"""The job that scores where sensors stand: greedy, random, space-filling and worst places.

A layout is scored by the reference posterior given its sensors: the standard deviation of u,
averaged over points and test functions. Greedy and worst places are chosen by a trained operator,
which sees no test function; of every strategy, the first m places are those for m sensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from uqsonet.emulator.emulator import Emulator, load
from uqsonet.emulator.place import SAME_REDUCTION, Search
from uqsonet.files import file_digest, write_text
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.laws.latent import farthest_points
from uqsonet_study.layouts import candidates
from uqsonet_study.parts import PartStore, Row
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.reference.affine import ClosedForm, OperatorMoments
from uqsonet_study.reference.sampling import ControlledSampler, posterior_law
from uqsonet_study.references import Given
from uqsonet_study.storage import load_functions

LABEL = "placement"  # branch of the seed tree


@dataclass(frozen=True)
class PlacementJob:
    """Everything that defines the scores of one problem."""

    counts: list[int]  # numbers of sensors
    margin: float  # least distance of sensors from the boundary, for every strategy
    # random layouts, and test functions
    random: int
    functions: int
    samples: int  # of a reference posterior
    noise_std: float
    seed: int
    # functions, and the trained operator
    data: Path
    weights: Path
    code: str = ""  # digest of the source that determines the result


def score_places(
    job: PlacementJob, path: Path, *, state: Path | None = None, workers: int = 1
) -> None:
    """Write a row for every layout, number of sensors and function, with the mean std of u there.

    Parameters
    ----------
    path : Path
        CSV file to write.
    state : Path, optional
        Folder for finished parts; a killed job continues from it.
    workers : int
        Processes at a time; the result does not depend on it.
    """
    data = load_functions(job.data, "test")
    field, name = data.fields.input, data.fields.name
    allowed = candidates(field.grid, job.margin)
    points, most = field.grid.points()[allowed], max(job.counts)
    emulator = load(job.weights)
    noise, middle = job.noise_std, (points.amin(0) + points.amax(0)) / 2
    layouts = [
        ("greedy", 0, emulator.place(most, points, noise_std=noise).chosen),
        ("worst", 0, worst_places(emulator, most, points, noise)),
        ("space_filling", 0, farthest_points(points, most, middle, decimals=9).numpy()),
    ]
    generator = numpy_generator(job.seed, name, LABEL, "random")
    for k in range(job.random):
        layouts.append(("random", k, generator.choice(len(allowed), most, replace=False)))
    cases = [(*one, m) for one in layouts for m in job.counts]
    kappa, given = data.kappa[: job.functions].double(), []
    for s, function in enumerate(kappa):
        # A function's noise is that of its sensors in their order, whatever the strategy.
        draw = numpy_generator(job.seed, name, LABEL, "noise", s).standard_normal(most)
        for _, _, chosen, m in cases:
            index = torch.from_numpy(allowed[chosen[:m]].astype(np.int64))[None]
            level = torch.from_numpy(draw[None, :m]) * job.noise_std if job.noise_std else None
            x, y = field.read(function[None], index, level)
            given.append((x[0], y[0], job.noise_std))
    folder = path.with_name(f".{path.name}.parts") if state is None else state
    places = np.concatenate([allowed[chosen] for _, _, chosen in layouts]).tolist()
    identity = {
        "functions": file_digest(job.data),
        "places": places,
        "counts": job.counts,
        "sizes": [job.functions, job.samples],
        "noise_std": job.noise_std,
        "seed": job.seed,
        "code": job.code,
    }
    parts = PartStore(folder, identity, workers)
    std = _mean_std(get_problem(name), given, job, parts)
    table = [
        {
            "problem": name,
            "sensors": m,
            "strategy": strategy,
            "layout": k,
            "function": s,
            "std": one,
        }
        for s, values in enumerate(std.view(len(kappa), len(cases)).tolist())
        for (strategy, k, _, m), one in zip(cases, values, strict=True)
    ]
    write_text(path, pd.DataFrame(table).to_csv(index=False, float_format="%.6g"))
    parts.remove()


def _mean_std(problem: Problem, given: list[Given], job: PlacementJob, parts: PartStore) -> Tensor:
    """Return the mean over all points of the exact std of u, for each observation set.

    The estimator is that of evaluations: the best that the problem allows.
    """
    laws, none = [posterior_law(problem, *one) for one in given], torch.zeros(problem.grid.size, 0)
    size = job.samples

    def stream(*path: str | int) -> np.random.Generator:
        return numpy_generator(job.seed, problem.name, LABEL, *path)

    if problem.affine == "kappa" and problem.unobserved is None:
        # The spread does not depend on what sensors read: one function stands for all.
        exact, few = ClosedForm(problem, none.double()), len(laws) // job.functions
        return torch.stack([exact.moments(law).std.mean() for law in laws[:few]]).repeat(
            job.functions
        )
    if problem.affine == "kappa":
        moments = OperatorMoments(problem, none.double(), stream("operator"), size).moments(laws)
        return torch.stack([one.std.mean() for one in moments])
    sampler = ControlledSampler(problem, none.double(), stream("control"), size * len(laws))

    def row(s: int) -> Row:
        return {"std": sampler.moments(laws[s], stream("set", s), size).std.mean()}

    return torch.stack([found["std"] for found in parts.rows(len(laws), row)])


def worst_places(emulator: Emulator, size: int, points: Tensor, noise_std: float) -> np.ndarray:
    """Return numbers of points (n, d) of which each tells least of the output after those before.

    They are what `Emulator.place` chooses by the smallest reduction instead of the largest.
    """
    search = Search(emulator, points, noise_std=noise_std)
    chosen: list[int] = []
    for _ in range(size):
        reduction = search.reductions()
        reduction[chosen] = np.inf
        chosen.append(search.first(reduction <= (1 + SAME_REDUCTION) * reduction.min()))
        search.choose(chosen[-1])
    return np.array(chosen)
