"""Section 4.1 from runs of which a few points were read, log k and u, with noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uqsonet.fitting.fit import fit
from uqsonet.gauss.metrics import relative_error
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import Runs
from uqsonet_study.jobs import log_rows
from uqsonet_study.problems.diffusion1d import Diffusion1D
from uqsonet_study.settings import Gaps

PROBLEM, KIND = Diffusion1D(), "gaps"
STRIDE = 2  # of the grid: 201 of its 401 points
COUNTS = (1, 4, 10)  # exact sensors of k
NOISE = 0.02  # standard deviation of readings over that of their field
GRID = PROBLEM.grid.points()[::STRIDE]

Moments = tuple[Tensor, Tensor]
"""Mean and std (sets, M) of u."""


class Known(NamedTuple):
    """Sensors of some sets, and the reference law of u given them."""

    places: Tensor  # (sets, m), of the whole grid
    values: Tensor  # (sets, m), of log k
    mean: Tensor  # (sets, M)
    std: Tensor  # (sets, M)


def references(config: Gaps, seed: int) -> Iterator[Known]:
    """Yield reference laws for each number of sensors: solves with samples of the exact law."""
    generator, prior = numpy_generator(seed, KIND, "reference"), PROBLEM.gaussian_prior
    for count in COUNTS:
        found = []
        for _ in range(config.sets):
            kappa, _ = PROBLEM.sample(generator, 1)
            at = np.sort(generator.choice(PROBLEM.grid.size, count, replace=False))
            values = kappa[0, at].log()
            law = prior.condition(PROBLEM.grid.points()[at], values)
            normals = torch.from_numpy(generator.standard_normal((config.samples, prior.rank)))
            u = PROBLEM.solve(prior.field(law.coordinates(normals)).exp())[:, ::STRIDE]
            found.append((torch.from_numpy(at), values, u.mean(0), u.std(0)))
        yield Known(*(torch.stack(part) for part in zip(*found, strict=True)))


def thinned(
    values: np.ndarray, seen: int, level: float, generator: np.random.Generator
) -> np.ndarray:
    """Return runs (N, n) at so many random points each, with noise, NaN elsewhere."""
    at = np.argsort(generator.random(values.shape), 1)[:, :seen]
    found = np.full(values.shape, np.nan)
    read = np.take_along_axis(values, at, 1) + level * generator.standard_normal(at.shape)
    np.put_along_axis(found, at, read, 1)
    return found


def cokriging(log_k: Tensor, u: Tensor, known: Known) -> Moments:
    """Return mean and std (sets, M) of u by the moments of complete runs, on the whole grid."""
    mean, std = [], []
    for at, read in zip(known.places, known.values, strict=True):
        usual = log_k[:, at].mean(0)
        k, off = log_k[:, at] - usual, u - u.mean(0)
        gain = torch.linalg.solve(k.T @ k, k.T @ off)
        mean.append(u.mean(0) + (read - usual) @ gain)
        std.append((off - k @ gain).std(0))
    return torch.stack(mean), torch.stack(std)


def learned(log_k: Tensor, u: Tensor, seen: int, seed: int) -> Callable[[Known], Moments]:
    """Return the answers of a model that learned from so many points of each run and side."""
    generator = numpy_generator(seed, KIND, "thin", seen)
    fields = {"k": log_k[:, ::STRIDE].numpy(), "u": u.numpy()}
    noise = {name: NOISE * float(values.std(0).mean()) for name, values in fields.items()}
    read = {name: thinned(values, seen, noise[name], generator) for name, values in fields.items()}
    x = GRID.numpy()
    runs = Runs(
        {"k": FieldRuns.of(np.exp(read["k"]), x, "log", missing="model")},
        {"u": FieldRuns.of(read["u"], x, missing="model")},
    )
    model = fit(runs, sensors=list(COUNTS), noise_std=noise, rng=seed)

    def answer(known: Known) -> Moments:
        places = PROBLEM.grid.points()[known.places].numpy()
        found = model.condition(places, known.values.exp().numpy(), noise_std=0.0)
        return torch.from_numpy(found.mean(x)), torch.from_numpy(found.std(x))

    return answer


def answer_from_gaps(seen: str, config: Gaps, seed: int, out: Path) -> None:
    """Write errors of mean and std of u in percent (CSV), with standard errors over sets.

    Runs are seen at `seen` points on each side; ``all`` is cokriging with complete runs.
    """
    kappa, u = PROBLEM.sample(numpy_generator(seed, KIND, "runs"), config.training)
    log_k, u, rows = kappa.log(), u[:, ::STRIDE], []
    complete = partial(cokriging, log_k, u)
    answer = complete if seen == "all" else learned(log_k, u, int(seen), seed)
    for count, known in zip(COUNTS, references(config, seed), strict=True):
        for metric, found, true in zip(("mean", "std"), answer(known), known[2:], strict=True):
            off = 100 * relative_error(found, true)
            number = {"value": float(off.mean()), "pm": float(off.std()) / len(off) ** 0.5}
            where = {"seen": seen, "sensors": count, "metric": metric, "unit": "percent"}
            rows.append(where | number)
    log_rows(out, rows)
