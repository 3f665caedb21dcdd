"""Tables in LaTeX (booktabs): cells, merged headings, floats, and a document for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table, merged
from uqsonet_study.report.tables.fitting import pages
from uqsonet_study.report.tables.text import to_latex

NOTHING = "--"

DOCUMENT = r"""%% Every table of a run: `pdflatex all.tex` needs nothing but this file.
\documentclass[10pt,a4paper]{article}
\usepackage[margin=15mm]{geometry}
\usepackage{amsmath}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[font=small,labelfont=bf]{caption}
\begin{document}
%(tables)s
\end{document}
"""

NEEDS = "% Written by uqsonet; needs amsmath, booktabs, caption and graphicx."

FLOAT = r"""\begin{table}[!htp]
%(continued)s\centering
\caption{%(caption)s}%(label)s
\footnotesize
\setlength{\tabcolsep}{3.5pt}
%(panels)s
\end{table}"""


def _panel(panel: Panel) -> str:
    """Return a titled part of a float.

    `uqsonet_study.report.tables.fitting` chose panels that fit; one that is wider all the same (a
    single group of columns with very long names) is shrunk, and the log says by how much.
    """
    return "\n".join(
        [
            rf"\par\medskip\textit{{{to_latex(panel.title)}}}\par\smallskip",
            rf"\sbox0{{{tabular(panel)}}}%",
            r"\typeout{uqsonet: panel \the\wd0 on \the\linewidth}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        ]
    )


def _value(cell: Cell) -> str:
    if cell.value is None:
        return NOTHING
    if isinstance(cell.value, str):
        return to_latex(cell.value)
    return rf"$\mathbf{{{cell.printed}}}$" if cell.bold else f"${cell.printed}$"


def _tail(cell: Cell) -> str:
    tail = "" if math.isnan(cell.pm) else rf"${{}}\pm {cell.number(cell.pm)}$"
    if cell.interval is not None:
        low, high = (cell.number(end) for end in cell.interval)
        tail += rf"\,{{\scriptsize$[{low},\,{high}]$}}"
    return tail + to_latex(cell.mark)


def _span(column: Column) -> int:
    """Return the columns of the tabular that it takes: two where something follows a value."""
    return 2 if any(cell.has_tail for cell in column.cells) else 1


def _spec(column: Column) -> str:
    if _span(column) == 2:
        return "r@{}l"
    return "c" if any(isinstance(cell.value, str) for cell in column.cells) else "r"


def _text(column: Column, row: int) -> str:
    cell = column.cells[row]
    if _span(column) == 1:
        return _value(cell)
    # Nothing to align: centre the dash over both columns.
    return _merge(2, NOTHING) if cell.value is None else f"{_value(cell)} & {_tail(cell)}"


def _merge(width: int, latex: str) -> str:
    return rf"\multicolumn{{{width}}}{{c}}{{{latex}}}"


def _headings(panel: Panel, level: int) -> str:
    """Return the headings of one level, equal neighbours merged, and the rules below them."""
    is_last = level == len(panel.columns[0].heads) - 1
    cells = [to_latex(head) if is_last else "" for head in panel.corner]
    rules, position = "", len(cells) + 1
    for members in merged(panel.columns, level):
        width = sum(_span(column) for column in members)
        cells.append(_merge(width, to_latex(members[0].heads[level])))
        if not is_last and any(column.heads[level + 1] for column in members):
            rules += rf"\cmidrule(lr){{{position}-{position + width - 1}}}"
        position += width
    heading, below = " & ".join(cells) + r" \\", r"\midrule" if is_last else rules
    return "\n".join(filter(None, [heading, below]))


def tabular(panel: Panel) -> str:
    """Return the tabular of a panel."""
    # Row labels of several columns are words, those of one column numbers.
    stubs = "l" * len(panel.corner) if len(panel.corner) > 1 else "r"
    specs = stubs + "".join(_spec(column) for column in panel.columns)
    lines = [rf"\begin{{tabular}}{{{specs}}}", r"\toprule"]
    lines += [_headings(panel, level) for level in range(len(panel.columns[0].heads))]
    for row, labels in enumerate(panel.labels):
        cells = [*map(to_latex, labels), *(_text(column, row) for column in panel.columns)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def render(table: Table, note: str) -> str:
    """Return a table as one or more floats, each no longer than a page.

    The note stands before the caption on every page.
    """
    floats = []
    whole = rf"{to_latex(note)}\textbf{{{to_latex(table.headline)}}} {to_latex(table.caption)}"
    for i, panels in enumerate(pages(table.panels, f"{note}{table.headline} {table.caption}")):
        parts = {
            "continued": "\\ContinuedFloat\n" if i else "",
            "caption": f"{to_latex(note)}Continued." if i else whole,
            "label": "" if i else f"\n\\label{{tab:{table.name}}}",
            "panels": "\n".join(_panel(panel) for panel in panels),
        }
        floats.append(FLOAT % parts)
    return "\n".join([NEEDS, *floats]) + "\n"


def document(bodies: Sequence[str]) -> str:
    """Return a document that compiles by itself and holds rendered tables."""
    return DOCUMENT % {"tables": "\n\\clearpage\n".join(body.strip() for body in bodies)}
