"""Text of tables: plain text with formulas between dollar signs, printed as LaTeX or as HTML.

``given $m$ sensors`` has one formula, written in LaTeX. Signs such as ± or † need no formula.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

FORMULA = re.compile(r"\$([^$]+)\$")
PERCENT = "\u202f%"
SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_"},
    "=": "$=$",
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

COMMANDS = {
    r"\sigma": "σ",
    r"\kappa": "κ",
    r"\Lambda": "Λ",
    r"\mathcal{E}": "E",
    r"\times": "×",
    r"\cdot ": "·",
    "-": "−",
}
"""Characters of LaTeX's commands in formulas."""


def to_latex(text: str) -> str:
    """Return a text as LaTeX; characters that are neither ASCII nor known become ``?``."""

    def sign(character: str) -> str:
        blank = " " if character.isspace() else character
        return SIGNS.get(character, blank if blank.isascii() else "?")

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
    found = latex
    for command, character in COMMANDS.items():
        found = found.replace(command, character)
    letters = r"\\mathrm\{(\w+)\}|([^\W\d_])"
    found = re.sub(letters, lambda m: m[1] or f"<var>{m[2]}</var>", found)
    for sign, tag in (("_", "sub"), (r"\^", "sup")):
        group = sign + r"(?:\{([^{}]*)\}|(<var>.</var>|\w+))"
        found = re.sub(group, lambda m, tag=tag: f"<{tag}>{m[1] or m[2]}</{tag}>", found)
    return found


def integer(number: int) -> str:
    """Return a whole number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def power(number: float) -> str:
    """Return a small number as a multiple of a power of ten; zero and 0.01 to 999 as they are."""
    if number == 0 or 0.01 <= abs(number) < 1000:
        return f"{number:g}"
    factor, exponent = f"{number:e}".split("e")
    mantissa = f"{float(factor):g}"
    head = "" if mantissa == "1" else rf"{mantissa}\cdot "
    return f"${head}10^{{{int(exponent)}}}$"
