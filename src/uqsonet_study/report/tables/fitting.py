"""Cuts wide panels into several that fit the width of a printed page, and long tables into pages.

Widths are estimated from the number of characters in the sizes of `latex.py`, so that HTML and
LaTeX show the same panels. Nothing has to be shrunk, hence all text stays readable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from uqsonet_study.report.tables.cells import Cell, Column, Panel, merged
from uqsonet_study.report.tables.text import to_words

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


def _length(text: str) -> float:
    return CHARACTER * len(to_words(text))


def _cell(cell: Cell) -> float:
    width = _length(cell.printed) * (1.15 if cell.bold else 1) + _length(cell.mark)
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
        max(width(members, level + 1), _length(members[0].heads[level]) + GAP)
        for members in merged(columns, level)
    )


def _blocks(columns: Sequence[Column], limit: float, level: int = 0) -> Iterator[list[Column]]:
    """Yield the largest groups under a common heading that fit."""
    for members in merged(columns, level):
        if width(members) <= limit or level + 1 == len(members[0].heads):
            yield members
        else:
            yield from _blocks(members, limit, level + 1)


def pack(parts: Sequence[Part], size: Callable[[Part], float], limit: float) -> list[list[Part]]:
    """Return the parts in order in as few groups as fit the limit, of sizes as even as can be."""
    sizes = [size(part) for part in parts]

    def greedy(bound: float) -> list[list[Part]]:
        found: list[list[Part]] = []
        room = 0.0
        for part, needed in zip(parts, sizes, strict=True):
            if not found or needed > room:
                found.append([])
                room = bound
            found[-1].append(part)
            room -= needed
        return found

    fewest = len(greedy(limit))
    bounds = {sum(sizes[i:j]) for i in range(len(sizes)) for j in range(i + 1, len(sizes) + 1)}
    # A little room for rounding: sums are taken in another order above.
    even = (greedy(b + 1e-6) for b in sorted({b for b in bounds if b <= limit} | {limit}))
    return next(found for found in even if len(found) == fewest)


def fit(panel: Panel, line: float = LINE) -> list[Panel]:
    """Return a panel in as many parts as its width takes, cut between groups of columns."""
    labels = zip(panel.corner, *panel.labels, strict=True)
    room = line - sum(max(map(_length, column)) + GAP for column in labels)
    found = []
    for part in pack(list(_blocks(panel.columns, room)), width, room):
        columns = [column for block in part for column in block]
        # The lowest headings are empty in all columns where the others went to another part.
        while not any(column.heads[-1] for column in columns):
            columns = [Column(column.heads[:-1], column.cells) for column in columns]
        title = panel.title + (" (continued)" if found else "")
        found.append(replace(panel, columns=tuple(columns), title=title))
    return found


def pages(panels: Sequence[Panel], caption: str) -> list[list[Panel]]:
    """Return the panels of each float of a table, the first with room for the caption."""
    room = PAGE - 11 * math.ceil(_length(caption) / LINE) - 20

    def height(panel: Panel) -> float:
        return HEADING * len(panel.columns[0].heads) + ROW * len(panel.labels) + TITLE

    return pack(panels, height, room)
