"""Matrices that are read in row blocks, from memory or from disk, as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

BLOCK_VALUES = 1 << 23
"""Values of a block where the caller does not say: 64 MiB in float64."""


class RowBlocks:
    """A matrix as a repeatable stream of row blocks.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns.
    open_blocks : callable
        Given a number of rows, starts a pass: yields the matrix in blocks of so many rows.
    """

    def __init__(
        self, shape: tuple[int, int], open_blocks: Callable[[int], Iterator[Tensor]]
    ) -> None:
        self.shape = shape
        self._open = open_blocks
        self._whole: Tensor | None = None

    @classmethod
    def of(cls, matrix: Tensor | RowBlocks) -> RowBlocks:
        """Return a tensor (N, n) as a stream of views of it; a stream as it is."""
        if isinstance(matrix, RowBlocks):
            return matrix
        found = cls((matrix.shape[0], matrix.shape[1]), lambda rows: iter(matrix.split(rows)))
        found._whole = matrix
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def default_rows(self) -> int:
        """Return the number of rows that `BLOCK_VALUES` allows, at least one."""
        return max(1, BLOCK_VALUES // max(1, self.shape[1]))

    def blocks(self, rows: int | None = None) -> Iterator[Tensor]:
        """Yield blocks (rows, n); the last may have fewer rows."""
        rows = rows or self.default_rows()
        return self._open(rows) if self._whole is None else iter(self._whole.split(rows))

    def map(self, function: Callable[[Tensor], Tensor]) -> RowBlocks:
        """Return the matrix with a function applied that works row by row and keeps the shape."""
        return RowBlocks(self.shape, lambda rows: map(function, self.blocks(rows)))

    def head(self, size: int) -> RowBlocks:
        """Return the first `size` rows.

        A pass still reads to the end, where a file's digest is checked.
        """

        def first(rows: int) -> Iterator[Tensor]:
            left = size
            for block in self.blocks(rows):
                if left > 0:
                    yield block[:left]
                left -= len(block)

        return RowBlocks((min(size, self.shape[0]), self.shape[1]), first)

    def whole(self) -> Tensor:
        """Return the matrix, read once and kept."""
        if self._whole is None:
            matrix, first = torch.empty(0), 0
            for block in self.blocks():
                matrix = block.new_empty(self.shape) if first == 0 else matrix
                matrix[first : first + len(block)] = block
                first += len(block)
            self._whole = matrix.reshape(self.shape)
        return self._whole


def column_moments(matrix: RowBlocks) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column, float64, in one pass."""
    size, points = matrix.shape
    total, squares = torch.zeros(2, points, dtype=torch.float64)
    shift: Tensor | None = None
    for block in matrix.blocks():
        values = block.double()
        total += values.sum(0)
        # Near the mean nothing cancels when its square is taken away below.
        shift = values.mean(0) if shift is None else shift
        squares += (values - shift).square().sum(0)
    mean = total / size
    offset = mean - (mean if shift is None else shift)
    return mean, ((squares - size * offset**2) / (size - 1)).clamp_min(0).sqrt()
