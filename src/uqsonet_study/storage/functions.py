"""Pairs of functions in files of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.gauss.blocks import RowBlocks
from uqsonet.runs.functions import Functions
from uqsonet_study.storage.reading import ArrayFile


def load_functions(path: Path, split: str, first: int | None = None) -> Functions:
    """Open one split of a functions file; values are read, and checked, when they are used.

    Parameters
    ----------
    path : Path
    split : str
    first : int, optional
        Take that many pairs from the start: the data set of that size. By default all.

    Raises
    ------
    DataError
        If the file is damaged, its shapes disagree with its fields or it has too few pairs; where
        values are read, if they are damaged, not finite, or not positive in a coefficient.
    """
    with ArrayFile(path, "functions") as file:
        fields = file.fields()
        shapes = {name: file.shape(f"{split}/{name}") for name in ("kappa", "u")}
    points = fields.output.grid.size if split != "training" else fields.training_grid()[0].size
    columns = {"kappa": fields.input.grid.size, "u": points}
    size = shapes["kappa"][0] if shapes["kappa"] else 0
    for name, wanted in columns.items():
        if shapes[name] != (size, wanted):
            expected = f"expected ({size}, {wanted})"
            raise DataError(f"{path}: {split}/{name} has shape {shapes[name]}, {expected}")
    if first is not None and first > size:
        raise DataError(f"{path}: has {size} {split} pairs, asked for {first}")

    def stream(name: str, positive: bool) -> Callable[[int], Iterator[Tensor]]:
        def blocks(rows: int) -> Iterator[Tensor]:
            with ArrayFile(path, "functions") as file:
                for block in file.blocks(f"{split}/{name}", rows):
                    if positive and not (block > 0).all():
                        least = f"must be positive, found {block.min()}"
                        raise DataError(f"{path}: {split}/{name} {least}")
                    yield torch.from_numpy(block)

        return blocks

    kappa = RowBlocks((size, columns["kappa"]), stream("kappa", fields.input.transform.positive))
    u = RowBlocks((size, points), stream("u", False))
    if first is None or first == size:
        return Functions(fields, split, kappa, u)
    return Functions(fields, split, kappa.head(first), u.head(first))
