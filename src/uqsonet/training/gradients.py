"""Loss and gradients of one trial on a CPU, in blocks that fit its cache.

What all samples share (the trunk, embedded grid points) is computed once; each block adds to the
gradient with respect to it, and one pass leads from there to the parameters. A sum over blocks
differs from the plain gradient by rounding only.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from uqsonet.nn.base import Batch, OperatorModel


def twin(
    model: OperatorModel, parameters: dict[str, Tensor], gradients: dict[str, Tensor]
) -> OperatorModel:
    """Return a copy of a model that keeps parameters and gradients in the tensors given.

    Everything else is common to the copies.
    """
    common = [*model.buffers(), model.problem, model.config]
    found = copy.deepcopy(model, {id(one): one for one in common})
    for name, parameter in found.named_parameters():
        parameter.data = parameters[name]
        parameter.grad = gradients[name]
    return found


def without_padding(batch: Batch) -> Batch:
    """Return a batch with as many sensors as its fullest set, and no mask if all have as many."""
    if "mask" not in batch:
        return batch
    mask = batch["mask"]
    width = int(mask.sum(1).max())
    cut = {name: batch[name][:, :width] for name in ("locations", "layout", "values", "mask")}
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


def add_gradients(
    model: OperatorModel, batch: Batch, normals: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add the gradient of the batch's loss to `.grad`; return the loss and its terms, detached."""
    batch = without_padding(batch)
    size, rows = len(normals), model.block_rows(batch)
    if "mask" in batch:
        batch, normals = by_count(batch, normals)
        rows = min(rows, -(-size // MIXED_PARTS))
    shared = model.shared(batch)
    leaves = {
        name: tuple(value.detach().requires_grad_() for value in values)
        for name, values in shared.items()
    }
    total: Tensor | None = None
    sums: dict[str, Tensor] = {}
    for first in range(0, size, rows):
        part = slice(first, first + rows)
        block = without_padding({name: value[part] for name, value in batch.items()})
        loss, means = model.block_loss(leaves, block, normals[part])
        share = len(normals[part]) / size
        loss = loss * share if share < 1 else loss
        loss.backward()
        total = loss.detach() if total is None else total + loss.detach()
        for name, value in means.items():
            scaled = value.detach() * share
            sums[name] = sums[name] + scaled if name in sums else scaled
    pairs = [
        (value, leaf.grad)
        for name, values in shared.items()
        for value, leaf in zip(values, leaves[name], strict=True)
        if leaf.grad is not None
    ]
    if pairs:
        torch.autograd.backward(*zip(*pairs, strict=True))
    assert total is not None
    return total, model.terms(sums)
