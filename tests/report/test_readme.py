"""The README's numbers are those of `published/`."""

from pathlib import Path

from uqsonet.report.readme import published_tables, updated

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_shows_what_is_published() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert updated(text, published_tables(ROOT / "published")) == text
