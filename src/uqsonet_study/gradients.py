"""Loss and gradients: on a CPU in chunks that bound its memory, on a GPU by recorded graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Optimiser, one_thread
from uqsonet.operator.base import Batch, OperatorModel, on_cpu

CHUNK = 2000
"""Samples, at most, whose loss is computed at a time on a CPU. In section 4.2 the states of so many
sets of ten sensors take 0.3 GiB; chunks half as long compute the trunk on the grid too often."""


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


NORMALS = "normals"  # name of a batch's standard normals among the inputs of a recorded graph


@dataclass
class _Recorded:
    """A CUDA graph of loss and gradients, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Batch
    loss: Tensor
    terms: dict[str, Tensor]


class ChunkOptimiser(Optimiser):
    """An optimiser whose gradients on a CPU are sums over chunks of the batch.

    On a GPU a step of the paper's networks is hundreds of small kernels, and starting them takes
    longer than running them. There the kernels of each shape of batch are recorded once, as a CUDA
    graph, and started together from then on.
    """

    def __init__(self, model: OperatorModel, config: TrainingConfig) -> None:
        super().__init__(model, config)
        self._recorded: dict[tuple[object, ...], _Recorded] = {}

    def gradients(self, batch: Batch, normals: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradients of a batch; return the loss and its terms, detached."""
        if not on_cpu(normals):
            with torch.cuda.device(normals.device):  # streams and graphs are the current device's
                return self._replayed(batch | {NORMALS: normals})
        size, sums = len(normals), dict[str, Tensor]()
        rows = max(CHUNK // self.model.group, 1) * self.model.group
        with one_thread():
            for first in range(0, size, rows):
                part = slice(first, first + rows)
                chunk = without_padding({name: value[part] for name, value in batch.items()})
                loss, terms = self.model.loss(chunk, normals[part])
                share = len(normals[part]) / size
                (loss * share).backward()
                for name, value in ({"loss": loss} | terms).items():
                    sums[name] = sums.get(name, 0.0) + value.detach() * share
        return sums.pop("loss"), sums

    def _replayed(self, inputs: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Add the gradients of a batch by the graph of its shapes."""
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        if shapes not in self._recorded:
            # Gradients of convolutions that repeat bit for bit, of whole float32 numbers.
            with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
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
                super().gradients(batch, inputs[NORMALS])
        torch.cuda.current_stream().wait_stream(stream)
        graph, earlier = torch.cuda.CUDAGraph(), next(iter(self._recorded.values()), None)
        with torch.cuda.graph(graph, pool=earlier.graph.pool() if earlier else None):
            loss, terms = super().gradients(batch, inputs[NORMALS])
        return _Recorded(graph, inputs, loss, terms)
