"""Tables for documents, and the comments between which they stand."""

from __future__ import annotations

import pandas as pd

from uqsonet.errors import DataError


def markdown(table: pd.DataFrame, digits: int = 1) -> str:
    """Return a table in Markdown: whole numbers as they are, others with so many decimals."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "--" if pd.isna(value) else f"{value:,.{digits}f}"
        return f"{value:,}" if isinstance(value, int) else str(value).replace("|", r"\|")

    rows = [table.columns, *(map(cell, row) for row in table.itertuples(index=False, name=None))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * table.shape[1], *lines[1:]])


def replaced(text: str, blocks: dict[str, str], document: str) -> str:
    """Return a document with the blocks between ``<!-- name -->`` and ``<!-- /name -->`` replaced.

    Parameters
    ----------
    text : str
        The document, Markdown or HTML.
    blocks : dict of str to str
        Name -> content.
    document : str
        What to call it in an error.

    Raises
    ------
    DataError
        If markers are missing.
    """
    for name, content in blocks.items():
        first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, start, rest = text.partition(first)
        _, end, after = rest.partition(last)
        if not start or not end:
            raise DataError(f"{document}: markers {first} and {last} are missing")
        text = f"{before}{first}\n{content}\n{last}{after}"
    return text
