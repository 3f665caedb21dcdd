"""What a table holds, whatever it is printed in: cells, columns under headings, panels.

All texts may have formulas, as `uqsonet_study.report.tables.text` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A number with its ± or interval, a text, or nothing.

    Attributes
    ----------
    value : float, str or None
        None where there is nothing to print.
    pm : float
        Spread over trials; NaN where there is none.
    interval : tuple of float or None
    bold : bool
    mark : str
        Follows all the rest.
    digits : int
        Behind the point.
    """

    value: float | str | None = None
    pm: float = math.nan
    interval: tuple[float, float] | None = None
    bold: bool = False
    mark: str = ""
    digits: int = 2

    def number(self, value: float) -> str:
        """Return a number with the cell's digits."""
        return f"{value:.{self.digits}f}"

    @property
    def printed(self) -> str:
        """The value as text, without what follows it."""
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        return self.number(self.value)

    @property
    def has_tail(self) -> bool:
        """Whether something follows the value."""
        return not math.isnan(self.pm) or self.interval is not None or bool(self.mark)


@dataclass(frozen=True)
class Column:
    """Cells under their headings, the most general heading first.

    An empty heading at the end means that the one above it reaches down.
    """

    heads: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Panel:
    """A titled part of a table.

    Attributes
    ----------
    title : str
    corner : tuple of str
        Headings of the row labels.
    labels : tuple of tuple of str
        For each row its labels.
    columns : tuple of Column
        With as many cells each as there are rows, and as many headings each.
    """

    title: str
    corner: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """Panels under a caption, which begins with a headline in bold letters.

    `name` is the paper's label without ``tab:``.
    """

    name: str
    title: str
    headline: str
    caption: str
    panels: tuple[Panel, ...]


def merged(columns: Sequence[Column], level: int) -> list[list[Column]]:
    """Return neighbouring columns that share their headings down to a level."""
    return [list(found) for _, found in groupby(columns, key=lambda c: c.heads[: level + 1])]


def columns_of(
    records: pd.DataFrame,
    titles: Mapping[str, Mapping[Any, str | None]],
    rows: tuple[str, Sequence[Any]],
    cell: Callable[[Any], Cell],
) -> list[Column]:
    """Pivot numbers in long form into columns.

    Parameters
    ----------
    records : DataFrame
        One row per number.
    titles : mapping of str to mapping
        What tells columns apart: fields of the records, each with its values in order and their
        headings. A value with None adds no heading. Records with other values are left out.
    rows : tuple of str and sequence
        The field that makes the rows, and its values.
    cell : callable
        Takes a record as named tuple.
    """
    chosen = records[
        records[list(titles)].isin({f: list(v) for f, v in titles.items()}).all(axis=1)
    ]
    ordered = chosen.assign(**{f: pd.Categorical(chosen[f], list(v)) for f, v in titles.items()})
    field, values = rows
    found = []
    for key, part in ordered.groupby(list(titles), observed=True):
        assert isinstance(key, tuple)
        heads = [titles[name][value] for name, value in zip(titles, key, strict=True)]
        cells = {getattr(record, field): cell(record) for record in part.itertuples()}
        column = tuple(cells.get(value, Cell()) for value in values)
        found.append(Column(tuple(head for head in heads if head is not None), column))
    return found


def value_alone(record: Any) -> Cell:
    """Return a number without its spread."""
    return Cell(record.value)


def with_spread(record: Any) -> Cell:
    """Return a number with its ± over trials."""
    return Cell(record.value, record.pm)


def with_interval(record: Any, digits: int = 2) -> Cell:
    """Return a number with its 95 % interval."""
    return Cell(record.value, interval=(record.low, record.high), digits=digits)


def marked_interval(record: Any, digits: int = 2) -> Cell:
    """Return a number with its 95 % interval, marked where that includes zero."""
    mark = "†" if record.low <= 0 <= record.high else ""
    return replace(with_interval(record, digits), mark=mark)


def digits_of(values: Sequence[float]) -> int:
    """Return how many digits show the smallest of some positive values to three places."""
    least = min(values)
    return max(2, 2 - math.floor(math.log10(least))) if least > 0 else 2
