"""docs/reproduction.md holds the tables of `readings.csv`."""

from pathlib import Path

import pytest

from uqsonet.errors import DataError
from uqsonet_study.report.page.readings import KINDS, load_readings, markdown_table, updated

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reproduction.md"


def test_the_document_shows_the_readings() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert updated(text, load_readings()) == text


def test_numbers_count_up_within_each_kind() -> None:
    readings = load_readings()
    for kind in KINDS:
        numbers = readings[readings["kind"] == kind]["number"].tolist()
        assert numbers == list(range(1, len(numbers) + 1)) != []


def test_every_difference_says_why() -> None:
    readings = load_readings()
    assert readings[readings["kind"] == "difference"]["why"].str.len().gt(0).all()
    assert readings[["paper", "reading"]].map(len).gt(0).all(axis=None)


def test_a_bar_stays_in_its_cell() -> None:
    readings = load_readings().head(1).assign(paper="|u|")
    assert r"| \|u\| |" in markdown_table(readings, "reading")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DataError, match=r"readings\.csv.*poem"):
        updated("", load_readings().assign(kind="poem"))


def test_missing_markers_are_named() -> None:
    with pytest.raises(DataError, match="<!-- readings -->"):
        updated("# Reproduction", load_readings())
