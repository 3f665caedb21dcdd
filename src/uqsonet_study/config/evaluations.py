"""How posteriors are compared with references."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from uqsonet.operator.config import Section

Evaluation = Literal["validation", "paper", "precise"]
TestEvaluation = Literal["paper", "precise"]
Estimator = Literal["monte_carlo", "reduced", "none"]


class ReferenceConfig(Section):
    """Reference posteriors of an evaluation."""

    sets: int = Field(ge=1, description="Observation sets per sensor count.")
    reference_samples: int = Field(ge=2, description="Samples of the reference posterior.")
    wasserstein: bool = Field(default=False, description="Exact empirical W2 on stored samples.")
    estimator: Estimator = Field(
        default="monte_carlo",
        description="`monte_carlo`: plain posterior samples, the paper's way. `reduced`: closed "
        "form, Rao-Blackwellised or with a control variate, whichever the problem allows. `none`: "
        "observation sets alone, scored against true functions; own data always have it.",
    )

    @model_validator(mode="after")
    def _samples_for_distance(self) -> ReferenceConfig:
        if self.wasserstein and self.estimator != "monte_carlo":
            raise ValueError("wasserstein needs plain samples: estimator must be monte_carlo")
        return self


class EvaluationConfig(ReferenceConfig):
    """How a posterior is compared with its reference."""

    model_samples: int = Field(
        ge=2,
        description="Samples of the model's posterior; quasi-random "
        "ones for its moments, unless the estimator is monte_carlo.",
    )
