"""Loss and gradients: on a CPU in blocks that fit its cache, on a GPU by recorded graphs.

What all samples share (the trunk, embedded grid points) is computed once; each block adds to the
gradient with respect to it, and one pass leads from there to the parameters. A sum over blocks
differs from the plain gradient by rounding only. Whoever cuts batches into blocks (`block_rows`)
takes parameters from `shared` only: blocks, and parts of what is shared, may be worked on side by
side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from uqsonet.operator.base import Batch, OperatorModel, Shared
from uqsonet.operator.settings import TrainingConfig
from uqsonet.operator.train import Optimiser, one_thread

S = TypeVar("S")
T = TypeVar("T")

GROUPS = 4
"""Sums over blocks are formed in so many groups, however many threads share them, so that no bit of
a sum depends on threads."""


def without_padding(batch: Batch) -> Batch:
    """Return a batch with as many sensors as its fullest set, and no mask if all have as many."""
    if "mask" not in batch:
        return batch
    mask = batch["mask"]
    width = int(mask.sum(1).max())
    cut = {name: batch[name][:, :width] for name in ("locations", "index", "values", "mask")}
    if bool(cut["mask"].all()):
        del cut["mask"]
    rest = {name: value for name, value in batch.items() if name not in ("mask", *cut)}
    return rest | cut


MIXED_PARTS = 5
"""Least number of blocks where counts differ: each is padded to its own fullest set only."""


def by_count(batch: Batch, normals: Tensor) -> tuple[Batch, Tensor]:
    """Return the samples of a batch in the order of their sensor counts."""
    order = batch["mask"].sum(1).argsort(stable=True)
    return {name: value[order] for name, value in batch.items()}, normals[order]


NORMALS = "normals"
"""Name of a batch's standard normals among the inputs of a recorded graph."""


@dataclass
class _Recorded:
    """A CUDA graph of loss and gradients, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Batch
    loss: Tensor
    terms: dict[str, Tensor]


class Workers:
    """Threads that take the groups of a batch; if there is only one, the caller does it all.

    Each works with one of torch's own threads, and so should the caller. Threads that share blocks
    wait for one another once a step, those that share each operation hundreds of times.

    Parameters
    ----------
    number : int, optional
        By default as many as torch uses.
    """

    def __init__(self, number: int | None = None) -> None:
        number = min(number or torch.get_num_threads(), GROUPS)
        one = {"initializer": torch.set_num_threads, "initargs": (1,)}
        self._pool = ThreadPoolExecutor(number, **one) if number > 1 else None

    def map(self, function: Callable[[T], S], items: Sequence[T]) -> list[S]:
        """Return the function's values, in the order of the items."""
        if self._pool is None or len(items) == 1:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))


class BlockOptimiser(Optimiser):
    """An optimiser whose gradients on a CPU are sums over blocks.

    On a GPU a step of the paper's networks is hundreds of small kernels, and starting them takes
    longer than running them. There the kernels of each shape of batch are recorded once, as a CUDA
    graph, and started together from then on.
    """

    def __init__(self, model: OperatorModel, config: TrainingConfig) -> None:
        super().__init__(model, config)
        self._workers = Workers()
        self._recorded: dict[tuple[object, ...], _Recorded] = {}

    def gradients(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradients of a batch; return the loss and its terms, detached."""
        if normals.device.type != "cpu":
            return self._replayed(batch | {NORMALS: normals})
        batch = without_padding(batch)
        if (blocks := block_count(self.model, batch)) == 1:
            # The one part of a step whose last bits may depend on the number of torch's threads.
            return self._of_whole(batch, normals)
        with one_thread():
            return add_gradients(self.model, batch, normals, blocks, self._workers)

    def _replayed(self, inputs: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradients of a batch by the graph of its shapes."""
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        if shapes not in self._recorded:
            self._recorded[shapes] = self._record(inputs)
            self._gradient.zero_()  # recording ran the kernels, too
        recorded = self._recorded[shapes]
        for name, value in inputs.items():
            recorded.inputs[name].copy_(value)
        recorded.graph.replay()
        return recorded.loss.clone(), {name: v.clone() for name, v in recorded.terms.items()}

    def _record(self, inputs: Batch) -> _Recorded:
        """Record loss and gradients of a batch; kernels are tried before, as PyTorch asks."""
        inputs = {name: value.contiguous().clone() for name, value in inputs.items()}
        batch = {name: value for name, value in inputs.items() if name != NORMALS}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._of_whole(batch, inputs[NORMALS])
        torch.cuda.current_stream().wait_stream(stream)
        graph, earlier = torch.cuda.CUDAGraph(), next(iter(self._recorded.values()), None)
        with torch.cuda.graph(graph, pool=earlier.graph.pool() if earlier else None):
            loss, terms = self._of_whole(batch, inputs[NORMALS])
        return _Recorded(graph, inputs, loss, terms)


def block_count(model: OperatorModel, batch: Batch) -> int:
    """Return the number of blocks that a batch is cut into."""
    rows = len(next(iter(batch.values())))
    blocks = -(-rows // model.block_rows(batch))
    if "mask" in batch and model.group == 1:
        blocks = max(blocks, MIXED_PARTS)
    # As many for each group: no thread waits for another's last one.
    return min(blocks if blocks <= GROUPS else blocks + -blocks % GROUPS, rows)


def add_gradients(
    model: OperatorModel, batch: Batch, normals: Tensor, blocks: int, workers: Workers
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add the gradient of the batch's loss to `.grad`; return the loss and its terms, detached."""
    if "mask" in batch and model.group == 1:
        batch, normals = by_count(batch, normals)
    size = len(normals)
    rows = -(-size // blocks)
    parts = workers.map(lambda part: part(), model.shared_parts(batch))
    shared = {name: values for part in parts for name, values in part.items()}

    def group(starts: list[int]) -> _Sums:
        found = _Sums.of(shared)
        for first in starts:
            part = slice(first, first + rows)
            block = without_padding({name: value[part] for name, value in batch.items()})
            loss, means = model.block_loss(found.leaves, block, normals[part])
            share = len(normals[part]) / size
            (loss * share if share < 1 else loss).backward()
            found.add({"": loss.detach()} | means, share)
        return found

    starts = list(range(0, size, rows))
    groups = [starts[k::GROUPS] for k in range(min(GROUPS, len(starts)))]
    # Without shared parts all blocks add to the same gradients: one after another, in this order.
    first, *others = workers.map(group, groups) if parts else [group(some) for some in groups]
    for other in others:
        first.add(other.means, 1.0)
    leaves = [found.leaves for found in (first, *others)]
    workers.map(lambda part: _lead_back(part, leaves), parts)
    loss = first.means.pop("")
    return loss, model.terms(first.means)


def _lead_back(part: Shared, leaves: Sequence[Shared]) -> None:
    """Lead the gradients that groups collected on their copies of a part to its parameters."""
    ends: list[Tensor] = []
    slopes_of_ends: list[Tensor] = []
    for name, values in part.items():
        for k, value in enumerate(values):
            slopes = [own[name][k].grad for own in leaves]
            known = [slope for slope in slopes if slope is not None]
            if known:
                ends.append(value)
                slopes_of_ends.append(sum(known[1:], known[0]))
    if ends:
        torch.autograd.backward(ends, slopes_of_ends)


@dataclass
class _Sums:
    """What one group of blocks adds up."""

    leaves: Shared
    means: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, shared: Shared) -> _Sums:
        """Begin with copies of the shared tensors that collect gradients of their own."""
        return cls(
            {
                name: tuple(value.detach().requires_grad_() for value in values)
                for name, values in shared.items()
            }
        )

    def add(self, means: dict[str, Tensor], share: float) -> None:
        for name, value in means.items():
            scaled = value.detach() * share
            self.means[name] = self.means[name] + scaled if name in self.means else scaled
