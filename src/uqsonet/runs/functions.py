"""Pairs of functions: training, validation and test data, read when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.gauss.blocks import RowBlocks

SPLITS = ("training", "validation", "test")  # in the order in which they are drawn


class Functions:
    """Pairs of one split, in memory or read from disk when asked for.

    Inputs `kappa` (N, n) are on the full grid, outputs `u` (N, M) on the training grid for
    ``training``, else on the full grid, float32. `kappa_rows` and `u_rows` are the same as streams
    of row blocks, for whoever needs no whole array. A `keeper` fits Karhunen-Loeve bases to these
    pairs in place of the function that it gets.
    """

    def __init__(
        self, fields: OperatorFields, split: str, kappa: Tensor | RowBlocks, u: Tensor | RowBlocks
    ) -> None:
        self.fields, self.split = fields, split
        self.keeper: Callable[[Callable[..., None], Any, Functions, bool], None] | None = None
        self._kept: tuple[Tensor, int, dict[str, Tensor]] | None = None
        self.kappa_rows, self.u_rows = RowBlocks.of(kappa), RowBlocks.of(u)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.u_rows)

    def keep(self, basis: Tensor, coefficients: dict[str, Tensor]) -> None:
        """Keep the coefficients of these pairs in a basis."""
        self._kept = basis, basis._version, coefficients

    def kept(self, basis: Tensor) -> dict[str, Tensor] | None:
        """Return what is kept of a basis that has not changed since."""
        if self._kept is None or self._kept[0] is not basis or self._kept[1] != basis._version:
            return None
        return self._kept[2]

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
