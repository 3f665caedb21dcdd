"""Matrices that are read in row blocks, from memory or from disk, as often as needed.

Their moments and least-squares fits are computed block by block, too.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

BLOCK_VALUES = 1 << 23  # default number of values in a block: 64 MiB in float64
MAX_KEPT_MATRIX = 1 << 26  # values of a matrix that is kept in memory
Columns = slice | Tensor  # some columns of a matrix: a slice, or their numbers (k,)


class RowBlocks:
    """A matrix of this shape as a repeatable stream of row blocks.

    `open_blocks`, given a number of rows, starts a pass: it yields the matrix in blocks of so many
    rows. `read_columns` returns some columns (N, k) without a pass, where the matrix can be read
    so.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        open_blocks: Callable[[int], Iterable[Tensor]],
        read_columns: Callable[[Columns], Tensor] | None = None,
    ) -> None:
        self.shape = shape
        self._open, self._read_columns = open_blocks, read_columns
        self._whole: Tensor | None = None
        self.kept: dict[str, Any] = {}
        """What is worked out of the matrix and needed more than once."""

    @classmethod
    def of(cls, matrix: Tensor | RowBlocks) -> RowBlocks:
        """Return a tensor (N, n) as a stream of views of it; a stream as it is."""
        if isinstance(matrix, RowBlocks):
            return matrix
        shape = matrix.shape[0], matrix.shape[1]
        found = RowBlocks(shape, matrix.split, partial(_some_columns, matrix))
        found._whole = matrix
        return found

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def by_columns(self) -> bool:
        """Whether columns can be read without a pass over the matrix."""
        return self._read_columns is not None

    @property
    def large(self) -> bool:
        """Whether it has too many values to be kept in memory."""
        return self.shape[0] * self.shape[1] > MAX_KEPT_MATRIX

    @property
    def wide(self) -> bool:
        """Whether few rows are so long that they are better read by their columns."""
        many = self.shape[0] * self.shape[1] > BLOCK_VALUES
        return self.by_columns and many and self.shape[0] < self.shape[1]

    def default_rows(self) -> int:
        """Return the number of rows that `BLOCK_VALUES` allows, at least one."""
        return max(1, BLOCK_VALUES // max(1, self.shape[1]))

    def blocks(self, rows: int | None = None) -> Iterator[Tensor]:
        """Yield blocks (rows, n); the last may have fewer rows."""
        rows = rows or self.default_rows()
        return iter(self._open(rows) if self._whole is None else self._whole.split(rows))

    def columns(self, columns: Columns) -> Tensor:
        """Return some columns (N, k), by their numbers or as a slice."""
        if self._read_columns is None:
            return torch.cat([block[:, columns] for block in self.blocks()])
        return self._read_columns(columns)

    def column_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of the columns with the columns (N, k)."""
        step = max(1, BLOCK_VALUES // max(1, self.shape[0]))
        for first in range(0, self.shape[1], step):
            part = slice(first, min(first + step, self.shape[1]))
            yield part, self.columns(part)

    def map(self, function: Callable[[Tensor], Tensor]) -> RowBlocks:
        """Return the matrix with a function applied to its values, one by one."""
        read = self._read_columns and (lambda columns: function(self.columns(columns)))
        return RowBlocks(self.shape, lambda rows: map(function, self.blocks(rows)), read)

    def times(self, factors: Tensor) -> RowBlocks:
        """Return the matrix, float64, with its columns multiplied by numbers (n,)."""
        read = self._read_columns and (lambda k: self.columns(k).double() * factors[k])
        rows = lambda size: (block.double() * factors for block in self.blocks(size))  # noqa: E731
        return RowBlocks(self.shape, rows, read)

    def take(self, index: np.ndarray) -> RowBlocks:
        """Return some rows, by their numbers."""
        return RowBlocks.of(self.whole()[index])

    def whole(self) -> Tensor:
        """Return the matrix, read once and kept."""
        if self._whole is None:
            matrix, first = torch.empty(self.shape), 0
            for block in self.blocks():
                matrix = block.new_empty(self.shape) if first == 0 else matrix
                matrix[first : first + len(block)] = block
                first += len(block)
            self._whole = matrix
        return self._whole


class ArrayRows(RowBlocks):
    """Arrays side by side whose values are changed when they are read: they may be on disk.

    Parts are arrays (M, n_k), each with what is done to its values (float64), one by one. The rows
    that are meant are those of `index` (N,), by default all.
    """

    def __init__(
        self,
        parts: Sequence[tuple[np.ndarray, Callable[[Tensor], Tensor]]],
        dtype: torch.dtype,
        index: np.ndarray | None = None,
    ) -> None:
        self._parts, self._dtype = parts, dtype
        self._index = np.arange(len(parts[0][0])) if index is None else index
        self._starts = np.cumsum([0, *(array.shape[1] for array, _ in parts)])
        shape = len(self._index), int(self._starts[-1])
        super().__init__(shape, self._row_blocks, partial(self._read, self._index))

    def take(self, index: np.ndarray) -> RowBlocks:
        """Return some rows, by their numbers; few are read at once."""
        key = np.asarray(index).tobytes().hex()
        found = self.kept.get(key) or ArrayRows(self._parts, self._dtype, self._index[index])
        if not found.large:
            return RowBlocks.of(found.whole())
        return self.kept.setdefault(key, found)

    def _row_blocks(self, rows: int) -> Iterator[Tensor]:
        for first in range(0, len(self), rows):
            yield self._read(self._index[first : first + rows], slice(0, self.shape[1]))

    def _read(self, rows: np.ndarray, columns: Columns) -> Tensor:
        """Return rows and columns; a slice of columns has an end."""
        many = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
        found = torch.empty(len(rows), many, dtype=self._dtype)
        for k, (array, change) in enumerate(self._parts):
            low, high = int(self._starts[k]), int(self._starts[k + 1])
            if isinstance(columns, slice):
                first, last = max(columns.start, low), min(columns.stop, high)
                if first < last:
                    values = array[rows, first - low : last - low]
                    place = slice(first - columns.start, last - columns.start)
                    found[:, place] = change(torch.from_numpy(values).double())
            else:
                here = (columns >= low) & (columns < high)
                values = array[rows[:, None], (columns[here] - low).numpy()[None]]
                found[:, here] = change(torch.from_numpy(values).double()).to(self._dtype)
            release(array)
        return found


def _some_columns(matrix: Tensor, columns: Columns) -> Tensor:
    return matrix[:, columns]


def release(array: np.ndarray) -> None:
    """Let go of the memory through which a mapped file was read; its values stay on disk."""
    root: Any = array
    while isinstance(root, np.ndarray) and not isinstance(root, np.memmap):
        root = root.base
    if isinstance(root, np.memmap) and root.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        root._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


class RunningMoments:
    """Mean and second moments of rows that come in blocks, float64.

    Sums of squares are taken about the mean of the first block, which is close to the mean of all
    rows. So little cancels when they are moved to the mean at the end.

    `covariance` is made of `product`: it maps centred rows (B, n) to a sum over the rows of
    something quadratic in each of them, for example ``rows.T @ rows``.
    """

    def __init__(self, product: Callable[[Tensor], Tensor] | None = None) -> None:
        self._product, self._size = product, 0
        self._shift = self._sum = self._squares = self._products = torch.zeros(()).double()

    def add(self, rows: Tensor) -> None:
        """Take in a block of rows (B, n)."""
        values = rows.double()
        if self._size == 0:
            self._shift = values.mean(0)
        centred = values - self._shift
        self._size += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + centred.square().sum(0)
        if self._product is not None:
            self._products = self._products + self._product(centred).double()

    def add_all(self, blocks: Iterable[Tensor]) -> Self:
        """Take in blocks of rows, and return the moments themselves."""
        for block in blocks:
            self.add(block)
        return self

    @property
    def mean(self) -> Tensor:
        """Mean of the rows, shape (n,)."""
        return self._sum / self._size

    @property
    def variance(self) -> Tensor:
        """Unbiased variance of each column, shape (n,)."""
        offset = self.mean - self._shift
        return (self._squares - self._size * offset**2) / (self._size - 1)

    @property
    def covariance(self) -> Tensor:
        """The product of the rows less their mean, divided by their number less one."""
        assert self._product is not None
        offset = self.mean - self._shift
        surplus = self._size * self._product(offset[None]).double()
        return (self._products - surplus) / (self._size - 1)


def column_moments(matrix: RowBlocks) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column, float64, in one pass."""
    moments = RunningMoments().add_all(matrix.blocks())
    return moments.mean, moments.variance.clamp_min(0).sqrt()


def least_squares(pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the weights W (c, k) for which ``inputs @ W`` is nearest to the outputs.

    Pairs are row blocks of inputs (B, c) and outputs (B, k). One block is solved as it is. Several
    are summed to normal equations, which squares the condition number of the inputs. Inputs that
    are zero in every row get zero weights.
    """
    stream = iter(pairs)
    left, right = next(stream)
    for k, (inputs, outputs) in enumerate(stream):
        if k == 0:
            left, right = left.T @ left, left.T @ right
        left, right = left + inputs.T @ inputs, right + inputs.T @ outputs
    # Not torch's default driver, gelsy: it starts from uninitialised pivots, and where columns are
    # zero these decide what it takes the rank to be.
    return torch.linalg.lstsq(left, right, driver="gelsd").solution


def projected(matrix: RowBlocks, mean: Tensor, basis: Tensor) -> Tensor:
    """Return ``(matrix - mean) @ basis``, shape (N, k), float64, in blocks of columns."""
    total = torch.zeros(len(matrix), basis.shape[1], dtype=torch.float64)
    for part, values in matrix.column_blocks():
        total += (values.double() - mean[part]) @ basis[part].double()
    return total
