"""Text of tables as LaTeX and as HTML, and how panels are cut to the width of a page."""

from __future__ import annotations

from xml.etree import ElementTree

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from uqsonet_study.report.names import METRICS
from uqsonet_study.report.printing import (
    FORMULA,
    LATEX,
    Panel,
    cut,
    html_table,
    integer,
    to_html,
    to_latex,
    to_words,
)
from uqsonet_study.report.tables.networks import ATTENTION, KRIGING, TRAINING, power

CHARACTERS = st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters="$")
NAMES = st.text(CHARACTERS, max_size=30)


@settings(max_examples=50)
@given(st.text().filter(lambda found: not FORMULA.search(found)))
def test_escaped_text_has_no_special_characters(found: str) -> None:
    latex = to_latex(found)
    assert latex.isascii()
    for piece in sorted(LATEX.values(), key=len, reverse=True):
        latex = latex.replace(piece, "")
    assert not set(latex) & set(LATEX)


@settings(max_examples=50)
@given(NAMES)
def test_text_survives_html(name: str) -> None:
    assert ElementTree.fromstring(f"<p>{to_html(name)}</p>").text in (name, name or None)
    cells = pd.DataFrame({name: [name]}, index=pd.Index([name], name="$m$"))
    table = html_table(Panel("", cells, words=True))
    assert "".join(ElementTree.fromstring(table).itertext()).count(name) >= 3


def test_formulas_stand_between_dollar_signs() -> None:
    found = "given $m$ sensors & a_b more, $\\mathrm{err}_{\\sigma[u]}$ ± 5\u202f%"
    assert to_latex(found) == (
        r"given $m$ sensors \& a\_b more, $\mathrm{err}_{\sigma[u]}$ $\pm$ 5\,\%"
    )
    assert to_html(found) == (
        "given <var>m</var> sensors &amp; a_b more, "
        "err<sub><var>σ</var>[<var>u</var>]</sub> ± 5\u202f%"
    )
    assert to_words(found) == "given m sensors & a_b more, errσ[u] ± 5%"
    assert (to_latex("5 $"), to_html("5 $")) == (r"5 \$", "5 $")  # a single one is a character
    found = [power(number) for number in (1e-4, 2e-3, 0.01, 0.0)]
    assert list(map(to_latex, found)) == ["$10^{-4}$", r"$2\cdot 10^{-3}$", "0.01", "0"]
    assert list(map(to_words, found)) == ["10^-4", "2·10^-3", "0.01", "0"]
    assert to_latex(integer(80000)) == r"80\,000"


def test_every_formula_has_a_form_in_html() -> None:
    for heading in (ATTENTION | KRIGING | TRAINING | METRICS).values():
        printed = to_html(heading)
        ElementTree.fromstring(f"<p>{printed}</p>")
        assert not set(printed) & set("\\${}^_"), heading


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
