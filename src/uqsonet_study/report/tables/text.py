"""Text with a few mathematical symbols, once as LaTeX and once as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter

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


def escape(value: object) -> str:
    """Return a text as LaTeX prints it; characters outside ASCII are shown as ``?``."""
    words = " ".join(str(value).split())
    return "".join(SPECIAL.get(c, c if c.isascii() else "?") for c in words)


@dataclass(frozen=True)
class Text:
    """A piece of text in both forms, each ready to be printed."""

    latex: str
    html: str

    def __add__(self, other: Text) -> Text:
        return Text(self.latex + other.latex, self.html + other.html)

    def __bool__(self) -> bool:
        return bool(self.latex or self.html)

    @property
    def words(self) -> str:
        """What a reader sees, without markup, thin spaces and signs of print: for CSV files."""
        raised = re.sub("<sup>([^<]*)</sup>", r"^\1", self.html)
        bare = html.unescape(re.sub("<[^>]*>", "", raised))
        return bare.replace("\u202f", "").replace("−", "-")

    @property
    def length(self) -> int:
        """Characters that a reader sees."""
        return len(self.words)


def plain(value: object) -> Text:
    """Return any text with everything special escaped."""
    return Text(escape(value), html.escape(str(value)))


def text(template: str, **parts: object) -> Text:
    """Fill a plain template: ``text("given {m} sensors", m=M)``.

    Parameters
    ----------
    template : str
        Plain text, escaped, with names in braces.
    **parts : Text or object
        What stands for the names; everything but a Text is escaped.
    """
    found = EMPTY
    for words, name, _, _ in Formatter().parse(template):
        # `escape` drops outer blanks, which here separate a symbol from its neighbours.
        lead, tail = (" " if words[:1] == " " else ""), (" " if words[-1:] == " " else "")
        middle = escape(words)
        found += Text(lead + middle + (tail if middle else ""), html.escape(words))
        if name is not None:
            part = parts[name]
            found += part if isinstance(part, Text) else plain(part)
    return found


def join(separator: str, parts: Iterable[Text]) -> Text:
    """Return the parts in a row with a separator of plain text between them."""
    found = EMPTY
    for i, part in enumerate(parts):
        found += Text(separator, html.escape(separator)) + part if i else part
    return found


def bold(part: Text) -> Text:
    """Return a text in bold letters."""
    return Text(rf"\textbf{{{part.latex}}}", f"<strong>{part.html}</strong>")


def quoted(value: object) -> Text:
    """Return a text in quotation marks."""
    return Text(f"``{escape(value)}''", f"“{html.escape(str(value))}”")


def integer(number: int) -> Text:
    """Return a whole number with thin spaces between thousands."""
    grouped = f"{number:,}"
    return Text(grouped.replace(",", r"\,"), grouped.replace(",", "\u202f"))


def power(number: float) -> Text:
    """Return a small number as a multiple of a power of ten; zero and 0.01 to 999 as they are."""
    if number == 0 or 0.01 <= abs(number) < 1000:
        return plain(f"{number:g}")
    factor, exponent = f"{number:e}".split("e")
    mantissa, exponent = f"{float(factor):g}", str(int(exponent))
    head = ("", "") if mantissa == "1" else (rf"{mantissa}\cdot ", f"{mantissa}·")
    return Text(
        rf"${head[0]}10^{{{exponent}}}$", f"{head[1]}10<sup>{exponent.replace('-', '−')}</sup>"
    )


EMPTY = Text("", "")
M = Text("$m$", "<var>m</var>")
N = Text("$N$", "<var>N</var>")
U = Text("$u$", "<var>u</var>")
SIGMA = Text(r"$\sigma$", "<var>σ</var>")
MEAN = Text("$E[u]$", "<var>E</var>[<var>u</var>]")
STD = Text(r"$\sigma[u]$", "<var>σ</var>[<var>u</var>]")
ERR_MEAN = Text(r"$\mathrm{err}_{E[u]}$", f"err<sub>{MEAN.html}</sub>")
ERR_STD = Text(r"$\mathrm{err}_{\sigma[u]}$", f"err<sub>{STD.html}</sub>")
PLUS_MINUS = Text(r"$\pm$", "±")
TIMES = Text(r"$\times$", "×")
DAGGER = Text(r"$^\dagger$", "<sup>†</sup>")
DASH = Text(" -- ", " – ")
SPACE = Text("~", "\u00a0")
L2 = Text("$L_2$", "<var>L</var><sub>2</sub>")
HUNDREDTHS = Text(r"$\times 10^{-2}$", "× 10<sup>−2</sup>")
PERCENT = Text(r"\,\%", "\u202f%")
