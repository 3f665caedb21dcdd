"""Cuts wide panels into several that fit the width of a printed page, and long tables into pages.

Widths are estimated from the number of characters in the sizes of `latex.py`, so that HTML and
LaTeX show the same panels. Nothing has to be shrunk, hence all text stays readable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from uqsonet_study.report.tables.cells import Cell, Column, Panel
from uqsonet_study.report.tables.text import EMPTY, Text, text

LINE = 500.0
"""Width of the text on A4 with margins of 15 mm, in points, less a little."""

PAGE = 720.0
"""Height that a float may have, in points."""

CHARACTER = 4.3
"""Width of a digit at 8 points."""

SMALL = 3.9
"""The same at 7 points, in which intervals are set."""

GAP = 7.0
ROW = 9.6
HEADING = 14.0
"""Height of a line of headings with the rule below it."""

TITLE = 27.0
Part = TypeVar("Part")


def _cell(cell: Cell) -> float:
    if isinstance(cell.value, Text):
        return CHARACTER * cell.value.length
    width = CHARACTER * (len(cell.head) * (1.15 if cell.bold else 1) + cell.mark.length)
    if not math.isnan(cell.pm):
        width += CHARACTER * (len(cell.number(cell.pm)) + 2.6)
    if cell.interval is not None:
        width += SMALL * (sum(len(cell.number(end)) for end in cell.interval) + 3)
    return width


def width(columns: Sequence[Column], level: int = 0) -> float:
    """Return the width of neighbouring columns with their headings, in points."""
    if level == len(columns[0].heads):
        return sum(max(_cell(cell) for cell in column.cells) + GAP for column in columns)
    return sum(
        max(width(members, level + 1), CHARACTER * members[0].heads[level].length + GAP)
        for members in _groups(columns, level)
    )


def _groups(columns: Sequence[Column], level: int) -> list[list[Column]]:
    return [list(found) for _, found in groupby(columns, key=lambda c: c.heads[: level + 1])]


def _blocks(columns: Sequence[Column], limit: float, level: int = 0) -> Iterator[list[Column]]:
    """Yield the largest groups under a common heading that fit."""
    for members in _groups(columns, level):
        if width(members) <= limit or level + 1 == len(members[0].heads):
            yield members
        else:
            yield from _blocks(members, limit, level + 1)


def pack(parts: Sequence[Part], size: Callable[[Part], float], limit: float) -> list[list[Part]]:
    """Return the parts in order in as few groups as fit the limit, of sizes as even as can be."""

    def greedy(bound: float) -> list[list[Part]]:
        found: list[list[Part]] = []
        room = 0.0
        for part in parts:
            if not found or size(part) > room:
                found.append([])
                room = bound
            found[-1].append(part)
            room -= size(part)
        return found

    fewest = len(greedy(limit))
    sizes = [size(part) for part in parts]
    bounds = {sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)}
    # A little room for rounding: sums are taken in another order above.
    even = (greedy(b + 1e-6) for b in sorted({b for b in bounds if b <= limit} | {limit}))
    return next(found for found in even if len(found) == fewest)


def fit(panel: Panel, line: float = LINE) -> list[Panel]:
    """Return a panel in as many parts as its width takes, cut between groups of columns."""
    stubs = sum(
        CHARACTER * max(head.length, *(labels[i].length for labels in panel.labels)) + GAP
        for i, head in enumerate(panel.corner)
    )
    parts = pack(list(_blocks(panel.columns, line - stubs)), width, line - stubs)
    again = text(" (continued)")
    return [
        _without_empty_levels(
            panel.with_columns(
                [column for block in part for column in block],
                panel.title + (again if i else EMPTY),
            )
        )
        for i, part in enumerate(parts)
    ]


def _without_empty_levels(panel: Panel) -> Panel:
    """Return a panel without lowest levels of headings that are empty in all its columns."""
    columns = panel.columns
    while not any(column.heads[-1] for column in columns):
        columns = tuple(Column(column.heads[:-1], column.cells) for column in columns)
    return panel.with_columns(columns, panel.title)


def pages(panels: Sequence[Panel], caption: Text) -> list[list[Panel]]:
    """Return the panels of each float of a table, the first with room for the caption."""
    room = PAGE - 11 * math.ceil(caption.length * CHARACTER / LINE) - 20

    def height(panel: Panel) -> float:
        return HEADING * len(panel.columns[0].heads) + ROW * len(panel.labels) + TITLE

    return pack(panels, height, room)
