"""UQ-SONet against a convolutional neural process (neuralprocesses, PyPI) at equal data and time.

Both see the same 10,000 pairs of 1D diffusion and train for the same number of seconds on one core:
the tuned recipe with its cosine schedule cut to the iterations that fit, and a ConvCNP with a
Gaussian at each point (`het`; with its low-rank covariance it becomes singular on functions as
smooth as these), its defaults, Adam at 3e-4, and batches of 16 functions with 1 to 10 sensors of
log k as context and u on the training grid as target. Scored are posterior mean and std at 4
sensors, against 4,000 exact samples.
"""

from __future__ import annotations

import time
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from benchmarks.rows import Row
from benchmarks.timing import hardware
from benchmarks.workloads import functions, workload
from uqsonet.data import Functions
from uqsonet.metrics import relative_error
from uqsonet.problems import get_problem
from uqsonet.training.optimiser import StackedOptimiser
from uqsonet.training.validation import load_trial
from uqsonet_study.layouts import uniform_layouts

SENSORS, SETS, DRAWS = 4, 20, 4000


def _truth(data: Functions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return locations, values, and the posterior mean and std of some test functions."""
    problem, generator = get_problem(data.fields.name), np.random.default_rng(5)
    kept = problem.training_grid()[1]
    kappa, _ = problem.sample(generator, SETS)
    layouts = uniform_layouts(generator, problem.grid.size, SENSORS, SETS)
    x, y = data.fields.input.read(kappa, torch.from_numpy(layouts).long())
    means, stds, prior = [], [], problem.gaussian_prior
    for places, values in zip(x, y.log(), strict=True):
        law = prior.condition(places, values)
        normals = torch.from_numpy(generator.standard_normal((DRAWS, prior.rank)))
        u = problem.solve(prior.field(law.coordinates(normals[None])[0]).exp())[:, kept]
        means.append(u.mean(0))
        stds.append(u.std(0))
    return x, y, torch.stack(means), torch.stack(stds)


def _errors(found: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> tuple[float, float]:
    mean, std = (
        100 * float(relative_error(a.double(), b).mean()) for a, b in zip(found, exact, strict=True)
    )
    return mean, std


def _ours(data: Functions, seconds: float, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    work = workload("diffusion1d", "tuned", pairs=data.size)
    targets = work.model.targets(data)
    generator, size = torch.Generator().manual_seed(0), work.method.training.batch_size

    def step(optimiser: StackedOptimiser, iteration: int) -> None:
        rows = torch.randint(data.size, (size,), generator=generator)
        batch = {name: value[rows][None] for name, value in targets.items()}
        optimiser.step(iteration, batch, torch.zeros(1, size, 0))

    trial = work.optimiser()
    start = time.perf_counter()
    for iteration in range(50):
        step(trial, iteration)
    iterations = int(50 * seconds / (time.perf_counter() - start))
    training = work.method.training.model_copy(update={"iterations": max(iterations, 1)})
    work.method = work.method.model_copy(update={"training": training})
    optimiser = work.optimiser()
    for iteration in range(training.iterations):
        step(optimiser, iteration)
    load_trial(work.model, optimiser.weights(), 0)
    posterior = work.model.condition(x, y)
    queries = data.fields.training_grid()[0].points()
    return posterior.mean(queries), posterior.std(queries)


def _theirs(data: Functions, seconds: float, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
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
    adam, start = torch.optim.Adam(model.parameters(), 3e-4), time.perf_counter()
    while time.perf_counter() - start < seconds:
        adam.zero_grad()
        (-log_density()).backward()
        adam.step()
    with torch.no_grad():
        context = x.float().transpose(1, 2), y.float().log()[:, None]
        law = model(*context, targets.expand(len(x), -1, -1))
        return law.mean[:, 0], law.var[:, 0].sqrt()


def rows(quick: bool) -> list[Row]:
    """Return the error of mean and std, the neural process as the peer."""
    seconds, pairs = (2.0, 500) if quick else (60.0, 10_000)
    names = [
        f"error of the {what} after {seconds:.0f} s of training, 1D diffusion, {SENSORS} sensors"
        for what in ("mean", "std")
    ]
    data = functions("diffusion1d", pairs)
    x, y, *exact = _truth(data)
    ours = _errors(_ours(data, seconds, x, y), (exact[0], exact[1]))
    if find_spec("neuralprocesses") is None:
        reason = "neuralprocesses is not installed"
        return [
            Row(name, hardware(1), value, "%", reason)
            for name, value in zip(names, ours, strict=True)
        ]
    theirs = _errors(_theirs(data, seconds, x, y), (exact[0], exact[1]))
    return [
        Row(name, hardware(1), value, "%", "ConvCNP (neuralprocesses)", other)
        for name, value, other in zip(names, ours, theirs, strict=True)
    ]
