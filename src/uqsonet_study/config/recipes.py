"""How a method is trained in a recipe: by itself, or as an ensemble of another method."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from uqsonet.config import MethodConfig, Name, Section


class EnsembleConfig(Section):
    """A method whose law is the spread of independent trainings of another one."""

    ensemble_of: Name = Field(description="Method of the same recipe and problem.")
    members: int = Field(
        default=5, ge=2, le=100, description="Trainings: trials 0, 1, ... of that method."
    )


def _kind(value: object) -> str:
    found = "ensemble_of" in value if isinstance(value, dict) else hasattr(value, "ensemble_of")
    return "<ensemble>" if found else "<trained>"


AnyMethodConfig = Annotated[
    Annotated[MethodConfig, Tag("<trained>")] | Annotated[EnsembleConfig, Tag("<ensemble>")],
    Discriminator(_kind),
]
