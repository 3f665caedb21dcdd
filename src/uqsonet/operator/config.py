"""Settings of the Karhunen-Loeve model, as the header of its weight file states them.

Unknown keys are refused, so a misspelt key is an error and never a silent default.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
"""Name of a problem, an experiment, a method or a recipe."""


KEPT = 8192
"""Number of standardised residuals in a model; fewer pairs are repeated."""


LOCAL = 512
"""Number of held-out pairs in a model that answers with outputs of the nearest of them."""


class Section(BaseModel):
    """A block of the configuration: immutable, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    later: ClassVar[tuple[str, ...]] = ()
    """Keys that are written down only where they differ from their default: names and headers of
    results are what they were before there were these keys."""

    @model_serializer(mode="wrap")
    def _without_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found, fields = dump(self), type(self).model_fields
        defaults = {k: fields[k].get_default(call_default_factory=True) for k in self.later}
        return {k: v for k, v in found.items() if k not in defaults or v != defaults[k]}


class NetworkConfig(Section):
    """Settings of one model's networks."""

    per_sensors: ClassVar[bool] = True
    """Trained for the counts, layouts and noise of one experiment."""

    architecture: Any


class KarhunenLoeveNetwork(NetworkConfig):
    """UQ-SONet on a Karhunen-Loeve latent space (docs/model.md)."""

    later = ("held_out_residuals", "law", "nearest", "kernel")
    per_sensors: ClassVar[bool] = False
    """Sensors and noise enter when the model is conditioned: one training serves them all."""
    architecture: Literal["karhunen_loeve"] = "karhunen_loeve"
    input_modes: int = Field(default=56, ge=1, le=2000, description="d_z: KL modes of kappa.")
    output_modes: int = Field(default=40, ge=1, le=2000, description="p: empirical modes of u.")
    branch: list[Annotated[int, Field(ge=1, le=4096)]] = Field(
        default=[256] * 3,
        max_length=12,
        description="Hidden layers of the branch's perceptron; none leave the linear map alone.",
    )
    linear_skip: bool = Field(
        default=True,
        description="A linear map beside the perceptron, started at the least-squares operator "
        "(cokriging); without it the perceptron learns all of the operator.",
    )
    activation: Literal["tanh", "silu", "gelu"] = Field(default="silu", description="Activation.")
    held_out_residuals: bool = Field(
        default=False,
        description="What the operator leaves over of held-out pairs is part of the law "
        "(`uqsonet.fit` sets it).",
    )
    law: Literal["gaussian", "mixture", "latent", "bounded"] = Field(
        default="gaussian",
        description="Law of the input's coefficients (docs/model.md). The operator is trained "
        "without it; `uqsonet.fit` and methods with `law_of` set it.",
    )
    nearest: int = Field(
        default=0,
        ge=0,
        le=LOCAL,
        description="Outputs are those of so many held-out pairs with the nearest answers; 0: they "
        "are the answers, and what is left over of all pairs (`uqsonet.fit` sets it).",
    )

    kernel: int = Field(
        default=0,
        ge=0,
        le=20_000,
        description="Centres of a kernel in place of the perceptron (`uqsonet.fit` sets it).",
    )

    @model_validator(mode="after")
    def _some_branch(self) -> KarhunenLoeveNetwork:
        if not (self.branch or self.linear_skip):
            raise ValueError("a branch without hidden layers needs linear_skip: true")
        return self
