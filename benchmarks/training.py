"""Training steps against the eager baseline, in one run, with the share of the GEMM peak."""

from __future__ import annotations

import torch

from benchmarks.eager import EagerTraining, EagerUQSONet
from benchmarks.rows import Row
from benchmarks.timing import gemm_peak, hardware, medians, threads
from benchmarks.workloads import Workload, flops, workload
from uqsonet.config import AttentionNetwork

EAGER = "eager PyTorch"


def eager_of(work: Workload, batched: bool, rows: int) -> EagerTraining:
    """Return the baseline with the networks of a workload."""
    network, model = work.method.network, work.model
    assert isinstance(network, AttentionNetwork)
    torch.manual_seed(0)
    points, factor = model.get_buffer("points"), model.get_buffer("factor")
    rate = work.method.training.learning_rate
    return EagerTraining(EagerUQSONet(network, points, factor, batched), rate, rows)


def engine_pass(work: Workload) -> object:
    """Return an action: one step on the batch of each count."""
    optimiser = work.optimiser()
    stacks = [{k: v[None] for k, v in batch.items()} for batch in work.batches]

    def run() -> None:
        for stack in stacks:
            optimiser.step(0, stack, work.normals()[None])

    return run


def eager_pass(work: Workload, batched: bool, rows: int) -> object:
    """Return an action: one step of the baseline on the batch of each count."""
    training = eager_of(work, batched, rows)

    def run() -> None:
        for batch, u in zip(work.batches, work.plain, strict=True):
            training.step(batch["locations"], batch["values"], u, work.normals())

    return run
