"""What a table holds, whatever it is printed in: cells, columns under headings, panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from uqsonet_study.report.tables.text import EMPTY, Text, text


@dataclass(frozen=True)
class Cell:
    """A number with its ± or interval, a text, or nothing.

    Attributes
    ----------
    value : float, Text or None
        None where there is nothing to print.
    pm : float
        Spread over trials; NaN where there is none.
    interval : tuple of float or None
    bold : bool
    mark : Text
        Follows all the rest.
    digits : int
        Behind the point.
    """

    value: float | Text | None = None
    pm: float = math.nan
    interval: tuple[float, float] | None = None
    bold: bool = False
    mark: Text = EMPTY
    digits: int = 2

    def number(self, value: float) -> str:
        """Return a number with the cell's digits."""
        return f"{value:.{self.digits}f}"

    @property
    def head(self) -> str:
        """The number itself as plain text, up to what is aligned."""
        return self.number(self.value) if isinstance(self.value, int | float) else ""

    @property
    def has_tail(self) -> bool:
        """Whether something follows the value."""
        return not math.isnan(self.pm) or self.interval is not None or bool(self.mark)


@dataclass(frozen=True)
class Column:
    """Cells under their headings, the most general heading first.

    An empty heading at the end means that the one above it reaches down.
    """

    heads: tuple[Text, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Panel:
    """A titled part of a table.

    Attributes
    ----------
    title : Text
    corner : tuple of Text
        Headings of the row labels.
    labels : tuple of tuple of Text
        For each row its labels.
    columns : tuple of Column
        With as many cells each as there are rows, and as many headings each.
    """

    title: Text
    corner: tuple[Text, ...]
    labels: tuple[tuple[Text, ...], ...]
    columns: tuple[Column, ...]

    def with_columns(self, columns: Sequence[Column], title: Text) -> Panel:
        """Return the same rows with other columns."""
        return replace(self, columns=tuple(columns), title=title)


@dataclass(frozen=True)
class Table:
    """A caption and its panels; `name` is the paper's label without ``tab:``."""

    name: str
    title: str
    caption: Text
    panels: tuple[Panel, ...]


def digits_of(values: Sequence[float]) -> int:
    """Return how many digits show the smallest of some positive values to three places."""
    least = min(values)
    return max(2, 2 - math.floor(math.log10(least))) if least > 0 else 2


def lettered(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """Return panels with (a), (b), ... before their titles, a single one as it is."""
    if len(panels) < 2:
        return tuple(panels)
    return tuple(
        replace(panel, title=text(f"({chr(ord('a') + i)}) ") + panel.title)
        for i, panel in enumerate(panels)
    )
