"""One way to print: a table is panels, a panel a DataFrame of texts, and a style for each format.

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
from jinja2 import Environment, PackageLoader, StrictUndefined
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
    title: str
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
    """Turn numbers in long form into the cells of a panel.

    Parameters
    ----------
    records : DataFrame
        One row per number.
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


def to_latex(text: str) -> str:
    """Return a text as LaTeX; characters that are neither ASCII nor known become ``?``."""

    def sign(character: str) -> str:
        blank = " " if character.isspace() else character
        return LATEX.get(character, blank if blank.isascii() else "?")

    return _convert(text, lambda words: "".join(map(sign, words)), lambda tex: f"${tex}$")


def to_html(text: str) -> str:
    """Return a text as HTML."""
    return _convert(text, html.escape, _formula_html)


def to_words(text: str) -> str:
    """Return a text without markup and thin spaces, powers as ``10^-4``: for CSV files."""
    raised = re.sub("<sup>([^<]*)</sup>", r"^\1", to_html(text))
    bare = html.unescape(re.sub("<[^>]*>", "", raised))
    return bare.replace("\u202f", "").replace("−", "-")


def _convert(text: str, words: Callable[[str], str], formula: Callable[[str], str]) -> str:
    """Convert the parts outside and inside of formulas, which alternate."""
    parts = FORMULA.split(text)
    return "".join((formula if i % 2 else words)(part) for i, part in enumerate(parts))


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


def _number_latex(cell: str) -> str:
    """Return a cell as LaTeX: bold parts, minus signs, intervals in small print."""
    found = BOLD.sub(r"\\textbf{\1}", to_latex(re.sub(r"(?<![\w.{])-(?=\d)", "−", cell)))
    return TAIL.sub(lambda m: m[1] or rf"\,{{\scriptsize {m[2].strip()}}}", found)


def _number_html(cell: str) -> str:
    """Return a cell as HTML: bold parts, minus signs, ± and intervals in small print."""
    found = BOLD.sub(r"<strong>\1</strong>", to_html(re.sub(r"(?<![\w.{])-(?=\d)", "−", cell)))
    small = r' <span class="{}">{}</span>'
    return TAIL.sub(lambda m: small.format("spread" if m[1] else "interval", m[0].strip()), found)


@cache
def environment() -> Environment:
    """Return the templates of the report. HTML is escaped unless a template says otherwise."""
    return Environment(
        loader=PackageLoader("uqsonet_study.report", "templates"),
        autoescape=lambda name: name is not None and ".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


class _Styler(Styler):
    """A Styler whose HTML is the template `panel.html.j2`."""

    template_html_table = environment().get_template("panel.html.j2")


def _styled(panel: Panel, text: Callable[[str], str], cell: Callable[[str], str]) -> Styler:
    """Return a panel with its texts in one format; row labels are its first columns."""
    cells = panel.cells.fillna("")
    depth, labels = cells.columns.nlevels, cells.index.nlevels
    flat = cells.reset_index(col_level=depth - 1) if depth > 1 else cells.reset_index()
    # Headings may repeat, by which a style cannot tell columns apart: it counts them instead.
    heads = [[text(str(head)) for head in flat.columns.get_level_values(k)] for k in range(depth)]
    flat.columns = range(flat.shape[1])
    printed = flat.apply(lambda column: column.map(text if column.name < labels else cell))
    printed.columns = pd.MultiIndex.from_arrays(heads) if depth > 1 else pd.Index(heads[0])
    return _Styler(printed).hide(axis="index")


def html_table(panel: Panel) -> str:
    """Return the `<table>` of a panel."""
    return _styled(panel, to_html, _number_html).to_html(
        exclude_styles=True,
        table_attributes='class="scores"',
        labels=panel.cells.index.nlevels,
        kind="text" if panel.words else "number",
    )


def tabular(panel: Panel) -> str:
    """Return the tabular of a panel in LaTeX."""
    labels = panel.cells.index.nlevels
    # Row labels of several columns are words, those of one column numbers.
    columns = ("l" * labels if labels > 1 else "r") + "rc"[panel.words] * panel.cells.shape[1]
    cells = _styled(panel, to_latex, lambda cell: _number_latex(cell or "–"))
    found = cells.to_latex(hrules=True, multicol_align="c", column_format=columns).strip()
    head, rule, body = found.partition("\n\\midrule")
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


def latex(table: Table, note: str) -> str:
    """Return a table for a LaTeX document; the note stands before the caption."""
    return (
        environment()
        .get_template("table.tex.j2")
        .render(
            table=table,
            caption=rf"{to_latex(note)}\textbf{{{to_latex(table.headline)}}} "
            f"{to_latex(table.caption)}",
            panels=[(to_latex(panel.title), tabular(panel)) for panel in table.panels],
        )
    )


def document(bodies: Sequence[str]) -> str:
    """Return a LaTeX document that compiles by itself and holds printed tables."""
    return environment().get_template("document.tex.j2").render(bodies=bodies)


def markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown: whole numbers as they are, others with one decimal."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "--" if pd.isna(value) else f"{value:,.1f}"
        return f"{value:,}" if isinstance(value, int) else str(value).replace("|", r"\|")

    rows = [table.columns, *(map(cell, row) for row in table.itertuples(index=False, name=None))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * table.shape[1], *lines[1:]])


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
