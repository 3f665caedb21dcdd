"""UQ-SONet against a convolutional neural process (neuralprocesses, PyPI) at equal data and time.

Both see the same 10,000 pairs of 1D diffusion and train for the same number of seconds of one core:
the tuned recipe with its cosine schedule cut to the iterations that fit, and a ConvCNP with a
Gaussian at each point (`het`; with its low-rank covariance it becomes singular on functions as
smooth as these), its defaults, Adam at 3e-4, and batches of 16 functions with 1 to 10 sensors of
log k as context and u on the training grid as target. Scored are posterior mean and std at 1, 4
and 10 sensors, against 4,000 exact samples.

    make peers    # neuralprocesses is in no environment otherwise
    python -m benchmarks --only neural_process
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from benchmarks.rows import Row
from benchmarks.timing import hardware
from benchmarks.workloads import functions, workload
from uqsonet.gauss.metrics import relative_error
from uqsonet.operator.train import Optimiser
from uqsonet.runs.functions import Functions
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem

COUNTS, SETS, DRAWS = (1, 4, 10), 20, 4000
MINUTES = (5.0, 20.0)

Sensors = tuple[Tensor, Tensor]
"""Locations (sets, m, 1) and values (sets, m)."""

Moments = tuple[Tensor, Tensor]
"""Mean and std (sets, points)."""


def _truth(data: Functions, sensors: int) -> tuple[Sensors, Moments]:
    """Return sensors (locations, values), and the posterior mean and std of some test functions."""
    problem, generator = get_problem(data.fields.name), np.random.default_rng(5)
    kept = problem.training_grid()[1]
    kappa, _ = problem.sample(generator, SETS)
    layouts = uniform_layouts(generator, problem.grid.size, sensors, SETS)
    x, y = data.fields.input.read(kappa, torch.from_numpy(layouts).long())
    means, stds, prior = [], [], problem.gaussian_prior
    for places, values in zip(x, y.log(), strict=True):
        law = prior.condition(places, values)
        normals = torch.from_numpy(generator.standard_normal((DRAWS, prior.rank)))
        u = problem.solve(prior.field(law.coordinates(normals[None])[0]).exp())[:, kept]
        means.append(u.mean(0))
        stds.append(u.std(0))
    return (x, y), (torch.stack(means), torch.stack(stds))


def _errors(found: Moments, exact: Moments) -> list[float]:
    pairs = zip(found, exact, strict=True)
    return [100 * float(relative_error(a.double(), b).mean()) for a, b in pairs]


def _ours(data: Functions, seconds: float, given: Sequence[Sensors]) -> list[Moments]:
    work = workload("diffusion1d", "tuned", pairs=data.size)
    targets = work.model.targets(data)
    generator, size = torch.Generator().manual_seed(0), work.method.training.batch_size

    def step(optimiser: Optimiser, iteration: int) -> None:
        rows = torch.randint(data.size, (size,), generator=generator)
        batch = {name: value[rows] for name, value in targets.items()}
        optimiser.step(iteration, batch, torch.zeros(size, 0))

    trial = work.optimiser()
    start = time.process_time()
    for iteration in range(50):
        step(trial, iteration)
    iterations = int(50 * seconds / (time.process_time() - start))
    training = work.method.training.model_copy(update={"iterations": max(iterations, 1)})
    work.method = work.method.model_copy(update={"training": training})
    optimiser = work.optimiser()
    for iteration in range(training.iterations):
        step(optimiser, iteration)
    queries = data.fields.training_grid()[0].points()
    posteriors = [optimiser.model.condition(x, y) for x, y in given]
    return [(one.mean(queries), one.std(queries)) for one in posteriors]


def _theirs(
    data: Functions, seconds: Sequence[float], given: Sequence[Sensors]
) -> Iterator[list[Moments]]:
    """Yield the laws after each time, of one training without a schedule."""
    # lab is the array library of neuralprocesses; importing it makes the torch backend known
    import neuralprocesses.torch as nps  # pyright: ignore[reportMissingImports]

    torch.manual_seed(0)
    model = nps.construct_convgnp(dim_x=1, dim_y=1, likelihood="het", points_per_unit=32)
    grid = data.fields.input.grid.points().float()
    targets = data.fields.training_grid()[0].points().float().T[None]
    inner = slice(1, -1)  # u is zero at both ends, where a density would have no bound
    generator = np.random.default_rng(0)

    def log_density() -> Tensor:
        rows = torch.from_numpy(generator.integers(data.size, size=16))
        drawn = uniform_layouts(generator, len(grid), int(generator.integers(1, 11)), 16)
        layout = torch.from_numpy(drawn).long()
        context = grid[layout].transpose(1, 2), data.kappa[rows].gather(1, layout).log()[:, None]
        law = model(*context, targets[..., inner].expand(16, -1, -1))
        return law.logpdf(data.u[rows][:, None, inner]).mean()

    log_density()  # creates the parameters
    adam, used = torch.optim.Adam(model.parameters(), 3e-4), 0.0
    for until in seconds:
        start = time.process_time()
        while used + time.process_time() - start < until:
            adam.zero_grad()
            (-log_density()).backward()
            adam.step()
        used += time.process_time() - start
        with torch.no_grad():
            contexts = [(x.float().transpose(1, 2), y.float().log()[:, None]) for x, y in given]
            laws = [model(*one, targets.expand(len(one[0]), -1, -1)) for one in contexts]
        yield [(law.mean[:, 0], law.var[:, 0].sqrt()) for law in laws]


def rows(quick: bool) -> list[Row]:
    """Return the errors of mean and std, the neural process as the peer."""
    seconds, pairs = ((2.0,), 500) if quick else ([60 * m for m in MINUTES], 10_000)
    data = functions("diffusion1d", pairs)
    given, exact = zip(*(_truth(data, m) for m in COUNTS), strict=True)
    peer = None if find_spec("neuralprocesses") is None else _theirs(data, seconds, given)
    found = []
    for duration in seconds:
        ours = _ours(data, duration, given)
        theirs = next(peer) if peer else None
        for k, m in enumerate(COUNTS):
            mine = _errors(ours[k], exact[k])
            other = _errors(theirs[k], exact[k]) if theirs else [None, None]
            reason = "neuralprocesses is not installed"
            for what, value, beside in zip(("mean", "std"), mine, other, strict=True):
                name = (
                    f"error of the {what} after {duration:.0f} s of training, 1D diffusion, "
                    f"{m} sensor{'s' * (m > 1)}"
                )
                told = ("ConvCNP (neuralprocesses)", beside) if theirs else (reason, None)
                found.append(Row(name, hardware(1), value, "%", *told))
    return found
