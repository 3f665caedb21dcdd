"""How a method is trained in a recipe: by itself, or as an ensemble of another method."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from uqsonet.config import KarhunenLoeveNetwork, MethodConfig, Name, Section, TrainingConfig


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


def for_own_data(pairs: int) -> MethodConfig:
    """Return the method `uqsonet` for own data without an entry in the recipe.

    A training takes no more modes than its data have points and pairs.
    """
    return MethodConfig(
        network=KarhunenLoeveNetwork(input_modes=64, output_modes=64, branch=[128]),
        training=TrainingConfig(
            iterations=1500,
            max_passes=200,
            batch_size=min(100, pairs),
            learning_rate=5e-4,
            schedule="cosine",
            weight_decay=1e-2,
            validate_every=250,
        ),
    )
