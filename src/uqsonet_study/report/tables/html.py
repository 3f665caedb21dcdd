"""Tables in HTML: merged headings, scopes for screen readers, classes and no styles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from uqsonet_study.report.tables.cells import Cell, Column, Panel
from uqsonet_study.report.tables.text import Text

NOTHING = '<td class="nothing">–</td>'


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _cell(cell: Cell) -> str:
    if cell.value is None:
        return NOTHING
    is_text = isinstance(cell.value, Text)
    value = cell.value.html if isinstance(cell.value, Text) else _minus(cell.head)
    parts = [f"<strong>{value}</strong>" if cell.bold else value]
    if not math.isnan(cell.pm):
        parts.append(f' <span class="spread">± {cell.number(cell.pm)}</span>')
    if cell.interval is not None:
        low, high = (_minus(cell.number(end)) for end in cell.interval)
        parts.append(f' <span class="interval">[{low}, {high}]</span>')
    return f'<td class="{"text" if is_text else "number"}">{"".join(parts)}{cell.mark.html}</td>'


def _reaches_down(column: Column, level: int) -> bool:
    """Return whether all headings below a level are empty."""
    return not any(column.heads[level + 1 :])


def _headings(panel: Panel, level: int) -> Iterator[str]:
    levels = len(panel.columns[0].heads)
    if level == 0:
        for head in panel.corner:
            yield f'<th scope="col" rowspan="{levels}">{head.html}</th>'
    for heads, found in groupby(panel.columns, key=lambda c: c.heads[: level + 1]):
        members = list(found)
        if level and not heads[level]:
            continue  # the heading above reaches down to here
        rows = levels - level if all(_reaches_down(c, level) for c in members) else 1
        spans = (f' colspan="{len(members)}"' if len(members) > 1 else "") + (
            f' rowspan="{rows}"' if rows > 1 else ""
        )
        scope = "col" if len(members) == 1 and rows == levels - level else "colgroup"
        yield f'<th scope="{scope}"{spans}>{heads[level].html}</th>'


def table(panel: Panel) -> str:
    """Return the `<table>` of a panel."""
    levels = len(panel.columns[0].heads)
    head = "\n".join(f"<tr>{''.join(_headings(panel, level))}</tr>" for level in range(levels))
    rows = []
    for i, labels in enumerate(panel.labels):
        names = "".join(f'<th scope="row">{label.html}</th>' for label in labels)
        rows.append(
            f"<tr>{names}{''.join(_cell(column.cells[i]) for column in panel.columns)}</tr>"
        )
    body = "\n".join(rows)
    return f'<table class="scores">\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>'
