"""Training steps against the eager baseline, in one run, with the share of the GEMM peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import torch

from benchmarks.eager import EagerTraining, EagerUQSONet
from benchmarks.rows import Row, not_run
from benchmarks.timing import gemm_peak, hardware, medians, threads
from benchmarks.workloads import Workload, flops, workload
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.config import KarhunenLoeveNetwork

UNBLOCKED = 5000
"""Batches from here on are tried without blocks on one thread only: they are slow, and take GiB."""


def engine_pass(work: Workload) -> Callable[[], None]:
    """Return an action: one step on the batch of each count."""
    optimiser = work.optimiser()

    def run() -> None:
        for batch in work.batches:
            optimiser.step(0, batch, work.normals())

    return run


def eager_pass(work: Workload, batched: bool, rows: int, number: int = 1) -> Callable[[], None]:
    """Return an action: one step of the baseline on the batch of each count.

    Parameters
    ----------
    work : Workload
    batched : bool
        Heads as one batched product a layer, not one after another.
    rows : int
        Samples of a gradient block; 0: the whole batch.
    number : int
        Threads.
    """
    network, model = work.method.network, work.model
    assert isinstance(network, AttentionNetwork)
    torch.manual_seed(0)
    points, factor = model.get_buffer("points"), model.get_buffer("factor")
    rate = work.method.training.learning_rate
    eager = EagerUQSONet(network, points, factor, batched).to(points.device)
    training = EagerTraining(eager, rate, rows)

    def run() -> None:
        with threads(number):
            for batch, u in zip(work.batches, work.plain, strict=True):
                training.step(batch["locations"], batch["values"], u, work.normals())

    return run


def paper_rows(
    name: str, work: Workload, blocks: list[int], cores: list[int], repeats: int
) -> list[Row]:
    """Return the rows of one paper recipe: the engine against the fastest eager variant."""
    network, model = work.method.network, work.model
    assert isinstance(network, AttentionNetwork)
    size, dim = work.method.training.batch_size, model.fields.input.grid.dim
    operations = mean(
        flops(network, dim, len(model.get_buffer("points")), size, batch["values"].shape[1])
        for batch in work.batches
    )
    found = []
    for number in cores:
        with threads(number):
            engine = engine_pass(work)
            variants = {
                f"eager PyTorch, heads {'batched' if batched else 'separate'}, "
                + (f"blocks of {rows}" if rows else "unblocked")
                + (f", {used} thread{'s' * (used > 1)}" if number > 1 else ""): (
                    batched,
                    rows,
                    used,
                )
                for batched in (True, False)
                for rows in blocks
                for used in range(1, number + 1)
                if rows or size < UNBLOCKED or used == 1
            }
            # the fastest variant, by the batch in the middle
            middle = replace(work, batches=[work.batches[len(work.batches) // 2]])
            middle.plain = [work.plain[len(work.plain) // 2]]
            tried = medians({k: eager_pass(middle, *v) for k, v in variants.items()}, 1)
            best = min(tried, key=lambda variant: tried[variant])
            taken = medians({"engine": engine, best: eager_pass(work, *variants[best])}, repeats)
            floor = operations / gemm_peak()
        steps = len(work.batches)
        found.append(
            Row(
                f"{name}, batch {size}",
                hardware(number),
                taken["engine"] / steps,
                "s/iteration",
                best,
                taken[best] / steps,
                floor,
            )
        )
    return found


def karhunen_loeve_row(name: str, work: Workload, repeats: int) -> Row:
    """Return the row of a tuned recipe: its floor is the products of its own perceptron."""
    network = work.method.network
    assert isinstance(network, KarhunenLoeveNetwork)
    widths = [network.input_modes, *network.branch, network.output_modes]
    weights = sum(a * b for a, b in pairwise(widths))
    # one linear map that is trained, one that is not, no gradient with respect to the input
    weights += 2 * network.input_modes * network.output_modes
    size = work.method.training.batch_size
    unneeded = network.input_modes * (network.branch[0] + 3 * network.output_modes)
    operations = size * (6.0 * weights - 2.0 * unneeded)
    taken = medians({"engine": engine_pass(work)}, repeats * 5)["engine"]
    return Row(
        f"{name}, batch {size}", hardware(1), taken, "s/iteration", floor=operations / gemm_peak()
    )


def synchronised(action: Callable[[], None]) -> Callable[[], None]:
    """Return an action that ends when a GPU has done what it was given."""

    def run() -> None:
        action()
        torch.cuda.synchronize()

    return run


def gpu_rows(quick: bool) -> list[Row]:
    """Return the rows of a GPU: the engine against the fastest eager variant, float32 products."""
    names = {"1D": "diffusion1d", "2D": "poisson2d"}
    batches = {"1D": 1000, "2D": 400 if quick else 20_000}
    if not torch.cuda.is_available():
        return [
            not_run(f"training, {label}, recipe paper, batch {size}", "GPU", "s/iteration", "none")
            for label, size in batches.items()
        ]
    card, found = torch.cuda.get_device_name(), []
    for label, size in batches.items():
        work = workload(names[label], "paper", batch_size=size).on("cuda")
        actions: dict[str, Callable[[], object]] = {"engine": synchronised(engine_pass(work))}
        for batched in (True, False):
            name = f"eager PyTorch, heads {'batched' if batched else 'separate'}"
            actions[name] = synchronised(eager_pass(work, batched, 0))
        taken = {name: value / len(work.batches) for name, value in medians(actions, 5).items()}
        engine = taken.pop("engine")
        best = min(taken, key=lambda name: taken[name])
        name = f"training, {label}, recipe paper, batch {size}"
        found.append(Row(name, card, engine, "s/iteration", best, taken[best]))
    for label, problem in names.items():
        work = workload(problem, "tuned").on("cuda")
        engine = medians({"engine": synchronised(engine_pass(work))}, 25)["engine"]
        name = f"training, {label}, recipe tuned, batch {work.method.training.batch_size}"
        found.append(Row(name, card, engine, "s/iteration"))
    return found


def rows(quick: bool) -> list[Row]:
    """Return the rows of training."""
    first = workload("diffusion1d", "paper", counts=[2, 5] if quick else None)
    found = paper_rows(
        "training, 1D, recipe paper",
        first,
        [0] if quick else [0, 250],
        [1] if quick else [1, 2],
        3 if quick else 7,
    )
    size = 400 if quick else 20_000
    second = workload("poisson2d", "paper", batch_size=size, counts=[2] if quick else None)
    blocks = [0] if quick else [1000, 0]
    found += paper_rows(
        "training, 2D, recipe paper", second, blocks, [1] if quick else [1, 2], 1 if quick else 2
    )
    for problem, label in (("diffusion1d", "1D"), ("poisson2d", "2D")):
        work = workload(problem, "tuned")
        found.append(
            karhunen_loeve_row(f"training, {label}, recipe tuned", work, 1 if quick else 5)
        )
    return found + gpu_rows(quick)
