"""How a method is made in a recipe: trained, an ensemble of another one, or another one's law."""

from __future__ import annotations

from typing import Annotated, Literal, TypeGuard

from pydantic import Discriminator, Field, Tag

from uqsonet.operator.config import LOCAL, KarhunenLoeveNetwork, Name, Section
from uqsonet.operator.settings import TrainingConfig
from uqsonet_study.config.networks import MethodConfig

AUTO = "auto"  # the law that is chosen among all


def has_law(network: object) -> TypeGuard[KarhunenLoeveNetwork]:
    """Tell whether a network stands for an operator that serves any law of the input."""
    return isinstance(network, KarhunenLoeveNetwork) and not network.per_sensors


class EnsembleConfig(Section):
    """A method whose law is the spread of independent trainings of another one."""

    ensemble_of: Name = Field(description="Method of the same recipe and problem.")
    members: int = Field(
        default=5, ge=2, le=100, description="Trainings: trials 0, 1, ... of that method."
    )


Law = Literal[
    "auto",
    "gaussian",
    "mixture",
    "family",
    "thresholded",
    "facies",
    "bounded",
    "copula",
    "analogue",
    "exact",
]


class LawConfig(Section):
    """A method with the trained operator of another one, and a law of the input of its own."""

    law_of: Name = Field(description="Method of the same recipe and problem, `karhunen_loeve`.")
    law: Law = Field(
        default="auto",
        description="What is fitted to the training inputs. `auto`: the simplest law that "
        "held-out pairs do not reject. `exact`: the law of the problem itself, for comparison.",
    )
    nearest: int = Field(
        default=0,
        ge=0,
        le=LOCAL,
        description="Outputs are those of so many validation pairs with the nearest answers, as "
        "`uqsonet.fit` may choose for fronts; 0: they are the operator's answers.",
    )


KINDS = {"ensemble_of": "<ensemble>", "law_of": "<law>"}


def _kind(value: object) -> str:
    for key, kind in KINDS.items():
        if key in value if isinstance(value, dict) else hasattr(value, key):
            return kind
    return "<trained>"


AnyMethodConfig = Annotated[
    Annotated[MethodConfig, Tag("<trained>")]
    | Annotated[EnsembleConfig, Tag("<ensemble>")]
    | Annotated[LawConfig, Tag("<law>")],
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
