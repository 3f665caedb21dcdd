"""Tables in HTML: merged headings, scopes for screen readers, classes and no styles."""

from __future__ import annotations

import math
from collections.abc import Iterator

from uqsonet_study.report.tables.cells import Cell, Panel, merged
from uqsonet_study.report.tables.text import to_html


def _cell(cell: Cell) -> str:
    if cell.value is None:
        return '<td class="nothing">–</td>'
    if isinstance(cell.value, str):
        return f'<td class="text">{to_html(cell.value)}</td>'
    number = _minus(cell.printed)
    value = f"<strong>{number}</strong>" if cell.bold else number
    if not math.isnan(cell.pm):
        value += f' <span class="spread">± {cell.number(cell.pm)}</span>'
    if cell.interval is not None:
        low, high = (_minus(cell.number(end)) for end in cell.interval)
        value += f' <span class="interval">[{low}, {high}]</span>'
    return f'<td class="number">{value}{to_html(cell.mark)}</td>'


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _headings(panel: Panel, level: int) -> Iterator[str]:
    levels = len(panel.columns[0].heads)
    if level == 0:
        for head in panel.corner:
            yield f'<th scope="col" rowspan="{levels}">{to_html(head)}</th>'
    for members in merged(panel.columns, level):
        head = members[0].heads[level]
        if level and not head:
            continue  # the heading above reaches down to here
        reaches_down = not any(any(column.heads[level + 1 :]) for column in members)
        rows = levels - level if reaches_down else 1
        scope = "col" if len(members) == 1 and reaches_down else "colgroup"
        colspan = f' colspan="{len(members)}"' if len(members) > 1 else ""
        rowspan = f' rowspan="{rows}"' if rows > 1 else ""
        yield f'<th scope="{scope}"{colspan}{rowspan}>{to_html(head)}</th>'


def table(panel: Panel) -> str:
    """Return the `<table>` of a panel."""
    levels = len(panel.columns[0].heads)
    head = "\n".join(f"<tr>{''.join(_headings(panel, level))}</tr>" for level in range(levels))
    rows = []
    for i, labels in enumerate(panel.labels):
        names = "".join(f'<th scope="row">{to_html(label)}</th>' for label in labels)
        cells = "".join(_cell(column.cells[i]) for column in panel.columns)
        rows.append(f"<tr>{names}{cells}</tr>")
    body = "\n".join(rows)
    return f'<table class="scores">\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>'
