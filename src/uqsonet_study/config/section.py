"""What blocks of the configuration have in common besides `uqsonet.operator.config.Section`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

OutputName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
"""Of a table or a figure: the paper's label without its kind, e.g. `1d-pde-error`."""


def require_distinct(values: list, what: str) -> None:
    """Refuse a list that names something twice."""
    if len({repr(value) for value in values}) != len(values):
        raise ValueError(f"each {what} may stand once")
