"""One way to print: a table is panels, a panel a DataFrame of texts, in LaTeX and in HTML.

All texts are plain, with formulas between dollar signs (``given $m$ sensors``), bold parts between
double asterisks and an interval in brackets after a number. `text_of` makes one from numbers.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from pandas.io.formats.style import Styler

FORMULA = re.compile(r"\$([^$]+)\$")
BOLD = re.compile(r"\*\*([^*]+)\*\*")
TAIL = re.compile(r"( ± [\d.]+)|( \[[^\]]*\d\])")  # what follows a number: its ± or its interval
PERCENT = "\u202f%"
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "†": r"$^\dagger$",
    "–": "--",
    "“": "``",
    "”": "''",
    "\u202f": r"\,",
}
"""What LaTeX prints for a character outside formulas."""

SYMBOLS = {
    r"\sigma": "σ",
    r"\kappa": "κ",
    r"\Lambda": "Λ",
    r"\mathcal{E}": "E",
    r"\times": "×",
    r"\cdot ": "·",
    "-": "−",
}
"""Characters of LaTeX's commands in formulas."""

LINE = 500.0  # width of the text on A4 with margins of 15 mm, in points, less a little

CHARACTER, SMALL, GAP = 4.3, 3.9, 7.0
"""Width of a digit at 8 and at 7 points, and of the gap between columns."""


@dataclass(frozen=True)
class Panel:
    """A titled part of a table."""

    title: str
    # texts, NaN or empty where there is nothing. Index names are the headings of the row labels.
    # Columns have one or more levels of headings; an empty one continues the one above it.
    cells: pd.DataFrame
    words: bool = False  # whether cells are words, not numbers


@dataclass(frozen=True)
class Table:
    """Panels under a caption, which begins with a headline in bold letters.

    `name` is the paper's label without ``tab:``.
    """

    name: str
    headline: str
    caption: str
    panels: tuple[Panel, ...]


def text_of(
    value: float,
    pm: float = math.nan,
    *,
    interval: tuple[float, float] | None = None,
    digits: int = 2,
    bold: bool = False,
) -> str:
    """Return a number with its ± over trials or its interval; nothing where there is no number."""
    if math.isnan(value):
        return ""
    found = f"**{value:.{digits}f}**" if bold else f"{value:.{digits}f}"
    found += "" if math.isnan(pm) else f" ± {pm:.{digits}f}"
    if interval is not None:
        found += f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return found


def digits_of(values: Sequence[float]) -> int:
    """Return how many digits show the smallest of some positive values to three places."""
    least = min(values)
    return max(2, 2 - math.floor(math.log10(least))) if least > 0 else 2


def integer(number: int) -> str:
    """Return a whole number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def pivot(
    records: pd.DataFrame,
    titles: Mapping[str, Mapping[Any, str | None]],
    rows: Mapping[Any, str],
    text: Callable[[Any], str],
    corner: str,
    field: str = "sensors",
) -> pd.DataFrame:
    """Turn numbers in long form, a record each, into the cells of a panel.

    Parameters
    ----------
    titles : mapping of str to mapping
        Fields of the records that tell columns apart, each with its values in order and their
        headings. Records with other values are left out; a level of empty headings, too.
    rows : mapping
        Values of `field` that make the rows, with their labels.
    text : callable
        Prints a record, a named tuple.
    corner : str
        Heading of the row labels.
    """
    known = {name: list(values) for name, values in titles.items()}
    chosen = records[records[list(known)].isin(known).all(axis=1)]
    chosen = chosen.assign(**{name: pd.Categorical(chosen[name], v) for name, v in known.items()})
    printed = [text(record) for record in chosen.itertuples()]
    wide = chosen.assign(text=printed).pivot(index=field, columns=list(known), values="text")
    wide = wide.sort_index(axis=1).reindex(list(rows))
    levels = [
        [titles[name][value] or "" for value in wide.columns.get_level_values(name)]
        for name in known
    ]
    wide.columns = pd.MultiIndex.from_arrays([level for level in levels if any(level)] or levels)
    wide.index = pd.Index(list(rows.values()), name=corner)
    return wide


def side_by_side(*parts: pd.DataFrame) -> pd.DataFrame:
    """Return cells of equal rows beside each other; headings of fewer levels reach down."""
    parts = tuple(part for part in parts if part.shape[1])
    depth = max((part.columns.nlevels for part in parts), default=1)
    filled = []
    for part in parts:
        heads = [(*key, *[""] * (depth - len(key))) for key in map(tuple, part.columns)]
        filled.append(part.set_axis(pd.MultiIndex.from_tuples(heads), axis=1))
    return pd.concat(filled, axis=1) if filled else pd.DataFrame()


@dataclass(frozen=True)
class Format:
    """How texts and the numbers of cells are written: in LaTeX or in HTML."""

    words: Callable[[str], str]  # what is outside of formulas
    formula: Callable[[str], str]  # what is between dollar signs
    bold: str  # template of `re.sub`
    small: Callable[[re.Match[str]], str]  # what follows a number

    def text(self, text: str) -> str:
        """Return a text in this format; words and formulas alternate."""
        parts = FORMULA.split(text)
        return "".join(
            (self.formula if i % 2 else self.words)(part) for i, part in enumerate(parts)
        )

    def number(self, cell: str) -> str:
        """Return a cell: bold parts, minus signs, what follows a number in small print."""
        found = self.text(re.sub(r"(?<![\w.{])-(?=\d)", "−", cell or "–"))
        return TAIL.sub(self.small, BOLD.sub(self.bold, found))

    def cells(self, panel: Panel) -> pd.DataFrame:
        """Return the cells of a panel with their headings."""
        cells = panel.cells.fillna("").map(self.number)
        for axis, index in enumerate(panel.cells.axes):
            labels = [tuple(map(self.text, key)) for key in _keys(index)]
            names = [self.text(str(name or "")) for name in index.names]
            found = pd.MultiIndex.from_tuples(labels, names=names)
            one = found if found.nlevels > 1 else found.get_level_values(0)
            cells = cells.set_axis(one, axis=axis)
        return cells


def _words_latex(text: str) -> str:
    """Return words as LaTeX; characters that are neither ASCII nor known become ``?``."""
    return "".join(LATEX.get(c, " " if c.isspace() else c if c.isascii() else "?") for c in text)


def _formula_html(latex: str) -> str:
    """Return a formula as HTML: letters in italics, indices and powers where they belong."""
    for command, character in SYMBOLS.items():
        latex = latex.replace(command, character)
    letters = r"\\mathrm\{(\w+)\}|([^\W\d_])"
    found = re.sub(letters, lambda m: m[1] or f"<var>{m[2]}</var>", latex)
    for sign, tag in (("_", "sub"), (r"\^", "sup")):
        group = sign + r"(?:\{([^{}]*)\}|(<var>.</var>|\w+))"
        found = re.sub(group, lambda m, tag=tag: f"<{tag}>{m[1] or m[2]}</{tag}>", found)
    return found


TEX = Format(
    words=_words_latex,
    formula="${}$".format,
    bold=r"\\textbf{\1}",
    small=lambda m: m[1] or rf"\,{{\scriptsize {m[2].strip()}}}",
)
HTML = Format(
    words=html.escape,
    formula=_formula_html,
    bold=r"<strong>\1</strong>",
    small=lambda m: f" <small>{m[0].strip()}</small>",
)


def to_words(text: str) -> str:
    """Return a text without markup and thin spaces, powers as ``10^-4``: for CSV files."""
    raised = re.sub("<sup>([^<]*)</sup>", r"^\1", HTML.text(text))
    bare = html.unescape(re.sub("<[^>]*>", "", raised))
    return bare.replace("\u202f", "").replace("−", "-")


def html_table(panel: Panel) -> str:
    """Return the `<table>` of a panel."""
    return Styler(HTML.cells(panel)).to_html(exclude_styles=True)


def tabular(panel: Panel) -> str:
    """Return the tabular of a panel in LaTeX."""
    cells = TEX.cells(panel)
    labels = cells.index.nlevels
    # Row labels of several columns are words, those of one column numbers.
    columns = ("l" * labels if labels > 1 else "r") + "rc"[panel.words] * cells.shape[1]
    style = Styler(cells.reset_index(col_level=cells.columns.nlevels - 1)).hide(axis="index")
    found = style.to_latex(hrules=True, multicol_align="c", column_format=columns)
    head, rule, body = found.strip().partition("\n\\midrule")
    return "\n".join(line + _rules(line) for line in head.split("\n")) + rule + body


def _rules(line: str) -> str:
    """Return the rules below headings of several columns."""
    position, rules = 1, ""
    for cell in line.split(" & "):
        spanned = re.match(r"\s*\\multicolumn\{(\d+)\}\{c\}\{([^}]?)", cell)
        width = int(spanned[1]) if spanned else 1
        if spanned and spanned[2]:  # empty ones have no rule
            rules += rf"\cmidrule(lr){{{position}-{position + width - 1}}}"
        position += width
    return "\n" * bool(rules) + rules


@cache
def template(name: str) -> Template:
    """Return a template; the texts that it is given are LaTeX or HTML already."""
    loader = PackageLoader("uqsonet_study.report", "templates")
    found = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return found.get_template(name)


KINDS: dict[str, tuple[str, Format, Callable[[Panel], str]]] = {
    "tex": ("table.tex.j2", TEX, tabular),
    "html": ("table.html.j2", HTML, html_table),
}
"""Kind of a file -> its template, the format of its texts, and what prints a panel."""


def page(table: Table, note: str, kind: str) -> str:
    """Return a table for a LaTeX document (`tex`), or as a page of its own (`html`).

    The note stands before the caption.
    """
    name, form, panel = KINDS[kind]
    return template(name).render(
        name=table.name,
        note=form.text(note),
        headline=form.text(table.headline),
        caption=form.text(table.caption),
        panels=[(form.text(one.title), panel(one)) for one in table.panels],
    )


def document(bodies: Sequence[str]) -> str:
    """Return a LaTeX document that compiles by itself and holds printed tables."""
    return template("document.tex.j2").render(bodies=bodies)


def fitted(table: Table) -> Table:
    """Return a table none of whose panels is too wide, with (a), (b), ... where it has several.

    Widths are estimated from the number of characters, so that HTML and LaTeX show the same panels
    and nothing has to be shrunk.
    """
    panels = []
    for i, panel in enumerate(table.panels):
        title = f"({chr(ord('a') + i)}) {panel.title}" if len(table.panels) > 1 else panel.title
        for k, cells in enumerate(cut(panel.cells, LINE)):
            panels.append(replace(panel, title=title + " (continued)" * bool(k), cells=cells))
    return replace(table, panels=tuple(panels))


def cut(cells: pd.DataFrame, line: float) -> list[pd.DataFrame]:
    """Return cells in parts that are no wider than a line, halved where a high heading ends."""
    keys = _keys(cells.columns)
    labels = zip(cells.index.names, zip(*_keys(cells.index), strict=True), strict=True)
    width = sum(_width([str(name), *texts]) for name, texts in labels)
    width += sum(_width([key[-1], *cells.iloc[:, k].fillna("")]) for k, key in enumerate(keys))
    if width <= line or len(keys) == 1:
        # Lowest headings that are all empty belong to the others, which went elsewhere.
        while cells.columns.nlevels > 1 and not any(cells.columns.get_level_values(-1)):
            cells = cells.set_axis(cells.columns.droplevel(-1), axis=1)
        return [cells]
    ends = [
        [k for k in range(1, len(keys)) if keys[k][:level] != keys[k - 1][:level]]
        for level in range(1, len(keys[0]) + 1)
    ]
    highest = next(filter(None, ends), [len(keys) // 2])
    middle = min(highest, key=lambda k: abs(2 * k - len(keys)))
    return cut(cells.iloc[:, :middle], line) + cut(cells.iloc[:, middle:], line)


def _keys(index: pd.Index) -> list[tuple[str, ...]]:
    """Return the labels of an index as tuples, whatever its number of levels."""
    return [tuple(map(str, key)) if isinstance(key, tuple) else (str(key),) for key in index]


def _width(texts: Sequence[str]) -> float:
    """Return the width of a column in points; intervals are in small print."""
    widest = GAP
    for text in texts:
        words = to_words(text.replace("**", ""))
        small = sum(len(tail[2] or "") for tail in TAIL.finditer(words))
        widest = max(widest, CHARACTER * (len(words) - small) + SMALL * small + GAP)
    return widest
