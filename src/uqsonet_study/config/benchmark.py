"""The comparison with published figures (`config/benchmark.yaml`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from uqsonet.operator.config import Name, Section
from uqsonet_study.config.section import require_distinct

Direction = Literal["forward", "inverse", "both"]
Pairs = Annotated[list[Annotated[int, Field(ge=20)]], Field(min_length=1)]

AUTO = "auto"  # method of an experiment whose law is chosen: it may answer in the comparison


class CorrectionConfig(Section):
    """A network that corrects linear answers about an input of two values."""

    iterations: int = Field(ge=1, description="Of training.")
    symmetries: Literal["none", "square"] = Field(
        default="none",
        description="Training shows each pair turned and mirrored, where the operator allows it.",
    )


class BenchmarkProblem(Section):
    """One problem of the comparison."""

    problem: Name
    pairs: Pairs = Field(description="Sizes of training sets; a larger one begins with a smaller.")
    directions: Annotated[list[Direction], Field(min_length=1)] = Field(
        default=["forward", "inverse", "both"],
        description="Sensors of the input, of the output, or half of them of each.",
    )
    modes: int = Field(default=800, ge=1, le=2000, description="KL modes of either field, at most.")
    regression: int = Field(
        default=4000, ge=0, description="Pairs up to which regression on them is scored, too."
    )
    exact: bool = Field(default=False, description="Score the exact answer, too.")
    kernel: int = Field(
        default=0,
        ge=0,
        description="Pairs that a correction of the linear operator is fitted to, at most.",
    )
    symmetric: int = Field(
        default=0,
        ge=0,
        description="Pairs that an operator which knows the symmetries of the equation is fitted "
        "to, at most; a row of its own.",
    )
    correction: CorrectionConfig | None = Field(
        default=None,
        description="A network may answer sensors of the output, for an input of two values.",
    )
    experiment: Name | None = Field(
        default=None,
        description="The operator and the law `auto` of an experiment may answer sensors of the "
        "input, where it was trained with as many pairs.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> BenchmarkProblem:
        require_distinct(self.pairs, "number of pairs")
        require_distinct(self.directions, "direction")
        return self


class BenchmarkConfig(Section):
    """Sparse sensors of one field, the whole of the other, beside published figures."""

    sensors: int = Field(default=500, ge=2, description="Random grid points, others each time.")
    functions: int = Field(default=100, ge=2, description="Test functions.")
    held_out: int = Field(
        default=500, ge=2, description="Pairs that choices are made on; at most a tenth of all."
    )
    samples: int = Field(default=100, ge=1, description="Of each posterior.")
    published: str = Field(description="CSV file of published figures with their sources.")
    problems: dict[Name, BenchmarkProblem] = Field(min_length=1)
