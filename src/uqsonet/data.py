"""Pairs of functions: training, validation and test data, read when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.blocks import RowBlocks
from uqsonet.errors import DataError
from uqsonet.operator_fields import OperatorFields
from uqsonet.storage.reading import ArrayFile

SPLITS = ("training", "validation", "test")


class Functions:
    """Pairs of one split, in memory or read from disk when asked for.

    Parameters
    ----------
    fields : OperatorFields
    split : str
    kappa : Tensor or RowBlocks, shape (N, n)
        Inputs on the full grid, float32.
    u : Tensor or RowBlocks, shape (N, M)
        Outputs: on the training grid for ``training``, else on the full grid, float32.

    Attributes
    ----------
    kappa_rows, u_rows : RowBlocks
        The same as streams of row blocks, for whoever needs no whole array.
    keeper : callable, optional
        Fits Karhunen-Loeve bases to these pairs in place of `KarhunenLoeveBases.fit`.
    """

    def __init__(
        self, fields: OperatorFields, split: str, kappa: Tensor | RowBlocks, u: Tensor | RowBlocks
    ) -> None:
        self.fields, self.split = fields, split
        self.keeper: Callable[[Any, Functions, bool], None] | None = None
        self.kappa_rows, self.u_rows = RowBlocks.of(kappa), RowBlocks.of(u)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.u_rows)

    @property
    def kappa(self) -> Tensor:
        """Inputs (N, n) as a whole, read at first use and kept."""
        return self.kappa_rows.whole()

    @property
    def u(self) -> Tensor:
        """Outputs (N, M) as a whole, read at first use and kept."""
        return self.u_rows.whole()

    def transformed_inputs(self) -> RowBlocks:
        """Return the transformed inputs, float64, as row blocks."""
        forward = self.fields.input.transform.forward
        return self.kappa_rows.map(lambda kappa: forward(kappa.double()))

    def blocks(self, rows: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (kappa, u) in blocks of `rows` pairs; the last may have fewer."""
        rows = rows or self.kappa_rows.default_rows()
        return zip(self.kappa_rows.blocks(rows), self.u_rows.blocks(rows), strict=True)


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
