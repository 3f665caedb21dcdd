"""Text of tables as LaTeX and as HTML, and how panels are cut to the width of a page."""

from __future__ import annotations

from xml.etree import ElementTree

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet_study.report.names import METRICS
from uqsonet_study.report.printing import (
    FORMULA,
    HTML,
    LATEX,
    TEX,
    Panel,
    cut,
    html_table,
    integer,
    to_words,
)
from uqsonet_study.report.tables.networks import ATTENTION, KRIGING, TRAINING, power

CHARACTERS = st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters="$")


@settings(max_examples=50)
@given(st.text().filter(lambda found: not FORMULA.search(found)))
def test_escaped_text_has_no_special_characters(found: str) -> None:
    latex = TEX.text(found)
    assert latex.isascii()
    for piece in sorted(LATEX.values(), key=len, reverse=True):
        latex = latex.replace(piece, "")
    assert not set(latex) & set(LATEX)


@settings(max_examples=50)
@given(st.text(CHARACTERS, max_size=30))
def test_text_survives_html(name: str) -> None:
    cells = pd.DataFrame({name: [name]}, index=pd.Index([name], name="$m$"))
    table = html_table(Panel("", cells, words=True)).replace("&nbsp;", "")
    assert "".join(ElementTree.fromstring(table).itertext()).count(name) >= 3


def test_formulas_stand_between_dollar_signs() -> None:
    found = "given $m$ sensors & a_b, $\\mathrm{err}_{\\sigma[u]}$ ± 5\u202f%"
    assert TEX.text(found) == r"given $m$ sensors \& a\_b, $\mathrm{err}_{\sigma[u]}$ $\pm$ 5\,\%"
    html = "err<sub><var>σ</var>[<var>u</var>]</sub> ± 5\u202f%"
    assert HTML.text(found) == f"given <var>m</var> sensors &amp; a_b, {html}"
    assert to_words(found) == "given m sensors & a_b, errσ[u] ± 5%"
    assert (TEX.text("5 $"), HTML.text("5 $")) == (r"5 \$", "5 $")  # a single one is a character
    powers = [power(number) for number in (1e-4, 2e-3, 0.01, 0.0)]
    assert list(map(TEX.text, powers)) == ["$10^{-4}$", r"$2\cdot 10^{-3}$", "0.01", "0"]
    assert list(map(to_words, powers)) == ["10^-4", "2·10^-3", "0.01", "0"]
    assert TEX.text(integer(80000)) == r"80\,000"
    for heading in (ATTENTION | KRIGING | TRAINING | METRICS).values():
        assert not set(HTML.text(heading)) & set("\\${}^_"), heading


def test_numbers_have_bold_parts_minus_signs_and_small_intervals() -> None:
    cell = "**-1.5** [-2.0, 0.1]†"
    assert TEX.number(cell) == r"\textbf{$-$1.5}\,{\scriptsize [$-$2.0, 0.1]}$^\dagger$"
    assert HTML.number(cell) == "<strong>−1.5</strong> <small>[−2.0, 0.1]</small>†"
    assert (TEX.number("1 ± 0.2"), HTML.number("1 ± 0.2")) == (
        r"1 $\pm$ 0.2",
        "1 <small>± 0.2</small>",
    )
    assert TEX.number("") == "--"


@settings(max_examples=50)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), st.integers(100, 500))
def test_cut_panels_keep_their_columns_in_order(groups: list[str], line: int) -> None:
    heads = pd.MultiIndex.from_tuples([(group, str(k)) for k, group in enumerate(groups)])
    index = pd.Index(["1", "2"], name="$m$")
    whole = pd.DataFrame([["1.00 ± 0.10"] * len(heads), [""] * len(heads)], index, heads)
    parts = cut(whole, float(line))
    pd.testing.assert_frame_equal(pd.concat(parts, axis=1), whole)
    # A column takes 55 points, row labels some twelve.
    assert all(part.shape[1] <= max(1, (line - 11) // 54) for part in parts)
