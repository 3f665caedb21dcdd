"""Blocks of a document that are made by the program, between two comments that name them."""

from __future__ import annotations

from uqsonet.errors import DataError


def replaced(text: str, name: str, content: str, document: str) -> str:
    """Return a document with the block between ``<!-- name -->`` and ``<!-- /name -->`` replaced.

    Parameters
    ----------
    text : str
        The document, Markdown or HTML.
    name : str
    content : str
    document : str
        What to call it in an error.

    Raises
    ------
    DataError
        If the markers are missing.
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, start, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not start or not end:
        raise DataError(f"{document}: markers {first} and {last} are missing")
    return f"{before}{first}\n{content}\n{last}{after}"
