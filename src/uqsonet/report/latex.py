"""Tabular layout in LaTeX: escaping, cells, merged headings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_"},
}
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

FLOAT = r"""%% Written by uqsonet; needs amsmath, booktabs and graphicx.
\begin{table}[!ht]
\centering
\caption{%(caption)s}
\label{%(label)s}
\footnotesize
\setlength{\tabcolsep}{3.5pt}
%(panels)s
\end{table}
"""


def escape(text: str) -> str:
    """Return text as LaTeX prints it; characters outside ASCII are shown as ``?``."""
    plain = " ".join(str(text).split())
    return "".join(SPECIAL.get(c, c if c.isascii() else "?") for c in plain)


def panel(title: str, content: str) -> str:
    """Return a titled part of a float; content wider than the page is shrunk to fit."""
    return "\n".join(
        [
            rf"\par\medskip\textit{{{title}}}\par\smallskip",
            rf"\sbox0{{{content}}}%",
            r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
        ]
    )


@dataclass(frozen=True)
class Cell:
    """What stands before and after the alignment point: a value, and its ± or interval."""

    value: str = NOTHING
    tail: str = ""


def with_spread(value: float, pm: float, bold: bool = False) -> Cell:
    """Return ``1.23 ± 0.45``, without ± if that is NaN (one trial)."""
    number = f"{value:.2f}"
    tail = "" if math.isnan(pm) else rf"${{}}\pm {pm:.2f}$"
    return Cell(rf"$\mathbf{{{number}}}$" if bold else f"${number}$", tail)


def with_interval(value: float, low: float, high: float, mark: str = "") -> Cell:
    """Return ``1.23 [0.98, 1.51]`` with an optional mark."""
    return Cell(f"${value:.2f}$", rf"\,{{\scriptsize$[{low:.2f},\,{high:.2f}]$}}{mark}")


@dataclass(frozen=True)
class Column:
    """One column of cells under its headings, the most general heading first."""

    heads: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def width(self) -> int:
        """Columns of the tabular that it takes: two where something follows the value."""
        return 2 if any(cell.tail for cell in self.cells) else 1

    @property
    def spec(self) -> str:
        """Alignment of those columns."""
        return "r@{}l" if self.width == 2 else "r"

    def text(self, row: int) -> str:
        """Return one cell as LaTeX."""
        cell = self.cells[row]
        if self.width == 1:
            return cell.value
        # Nothing to align: centre the dash over both columns.
        if cell.value == NOTHING:
            return rf"\multicolumn{{2}}{{c}}{{{NOTHING}}}"
        return f"{cell.value} & {cell.tail}"


def _merge(columns: Sequence[Column], level: int) -> tuple[str, str]:
    """Return the headings of one level, equal neighbours merged, and the rules below them."""
    cells, rules, position = [""], [], 2
    for heads, members in groupby(columns, key=lambda c: c.heads[: level + 1]):
        below = list(members)
        width = sum(column.width for column in below)
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{heads[level]}}}")
        if any(column.heads[level + 1 : level + 2] != ("",) for column in below):
            rules.append(rf"\cmidrule(lr){{{position}-{position + width - 1}}}")
        position += width
    return " & ".join(cells) + r" \\", "".join(rules)


def tabular(first: str, labels: Sequence[str], columns: Sequence[Column]) -> str:
    """Return a tabular (booktabs) with a column of row labels and the given columns.

    Parameters
    ----------
    first : str
        Heading of the row labels.
    labels : sequence of str
    columns : sequence of Column
        With as many cells each as there are labels, and as many headings each.
    """
    spec = "r" + "".join(column.spec for column in columns)
    lines = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule"]
    levels = len(columns[0].heads)
    for level in range(levels):
        heading, rules = _merge(columns, level)
        is_last = level == levels - 1
        lines.append((first if is_last else "") + heading)
        lines.append(r"\midrule" if is_last else rules)
    for row, label in enumerate(labels):
        lines.append(" & ".join([label, *(column.text(row) for column in columns)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])
