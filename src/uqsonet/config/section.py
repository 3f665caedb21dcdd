"""What every block of the configuration has in common: closed to unknown keys, and immutable."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
"""Of a problem, an experiment, a method or a recipe."""

OutputName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
"""Of a table or a figure: the paper's label without its kind, e.g. `1d-pde-error`."""


class Section(BaseModel):
    """A block of the configuration: immutable, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def require_distinct(values: list, what: str) -> None:
    """Refuse a list that names something twice."""
    if len({repr(value) for value in values}) != len(values):
        raise ValueError(f"each {what} may stand once")
