"""Tables in LaTeX (booktabs): cells, merged headings, floats, and a document for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from uqsonet_study.report.tables.cells import Cell, Column, Panel, Table
from uqsonet_study.report.tables.fitting import pages
from uqsonet_study.report.tables.text import Text

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

    `uqsonet_study.report.tables.fitting` chose panels that fit; one that is wider all the same (a single
    group of columns with very long names) is shrunk, and the log says by how much.
    """
    return "\n".join(
        [
            rf"\par\medskip\textit{{{panel.title.latex}}}\par\smallskip",
            rf"\sbox0{{{tabular(panel)}}}%",
            r"\typeout{uqsonet: panel \the\wd0 on \the\linewidth}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        ]
    )


def _value(cell: Cell) -> str:
    if isinstance(cell.value, Text):
        return rf"\textbf{{{cell.value.latex}}}" if cell.bold else cell.value.latex
    if cell.value is None:
        return NOTHING
    return rf"$\mathbf{{{cell.head}}}$" if cell.bold else f"${cell.head}$"


def _tail(cell: Cell) -> str:
    tail = "" if math.isnan(cell.pm) else rf"${{}}\pm {cell.number(cell.pm)}$"
    if cell.interval is not None:
        low, high = (cell.number(end) for end in cell.interval)
        tail += rf"\,{{\scriptsize$[{low},\,{high}]$}}"
    return tail + cell.mark.latex


def _span(column: Column) -> int:
    """Return the columns of the tabular that it takes: two where something follows a value."""
    return 2 if any(cell.has_tail for cell in column.cells) else 1


def _spec(column: Column) -> str:
    if _span(column) == 2:
        return "r@{}l"
    return "c" if any(isinstance(cell.value, Text) for cell in column.cells) else "r"


def _text(column: Column, row: int) -> str:
    cell = column.cells[row]
    if _span(column) == 1:
        return _value(cell)
    # Nothing to align: centre the dash over both columns.
    if cell.value is None:
        return rf"\multicolumn{{2}}{{c}}{{{NOTHING}}}"
    return f"{_value(cell)} & {_tail(cell)}"


def _merge(panel: Panel, level: int) -> tuple[str, str]:
    """Return the headings of one level, equal neighbours merged, and the rules below them."""
    is_last = level == len(panel.columns[0].heads) - 1
    cells = [head.latex if is_last else "" for head in panel.corner]
    rules, position = [], len(cells) + 1
    for heads, members in groupby(panel.columns, key=lambda c: c.heads[: level + 1]):
        below = list(members)
        width = sum(_span(column) for column in below)
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{heads[level].latex}}}")
        if not is_last and any(column.heads[level + 1] for column in below):
            rules.append(rf"\cmidrule(lr){{{position}-{position + width - 1}}}")
        position += width
    return " & ".join(cells) + r" \\", "".join(rules)


def tabular(panel: Panel) -> str:
    """Return the tabular of a panel."""
    # Row labels of several columns are words, those of one column numbers.
    stubs = "l" * len(panel.corner) if len(panel.corner) > 1 else "r"
    lines = [
        rf"\begin{{tabular}}{{{stubs}{''.join(_spec(column) for column in panel.columns)}}}",
        r"\toprule",
    ]
    levels = len(panel.columns[0].heads)
    for level in range(levels):
        heading, rules = _merge(panel, level)
        lines += [heading, r"\midrule" if level == levels - 1 else rules]
    for row, labels in enumerate(panel.labels):
        words = [label.latex for label in labels]
        lines.append(" & ".join([*words, *(_text(c, row) for c in panel.columns)]) + r" \\")
    return "\n".join([*filter(None, lines), r"\bottomrule", r"\end{tabular}"])


def render(table: Table) -> str:
    """Return a table as one or more floats, each no longer than a page."""
    floats = []
    for i, panels in enumerate(pages(table.panels, table.caption)):
        parts = {
            "continued": "\\ContinuedFloat\n" if i else "",
            # What stands before the title, the note of smoke scale, is said on every page.
            "caption": table.caption.latex.partition(r"\textbf")[0] + "Continued."
            if i
            else table.caption.latex,
            "label": "" if i else f"\n\\label{{tab:{table.name}}}",
            "panels": "\n".join(_panel(panel) for panel in panels),
        }
        floats.append(FLOAT % parts)
    return "\n".join([NEEDS, *floats]) + "\n"


def document(bodies: Sequence[str]) -> str:
    """Return a document that compiles by itself and holds rendered tables."""
    return DOCUMENT % {"tables": "\n\\clearpage\n".join(body.strip() for body in bodies)}
