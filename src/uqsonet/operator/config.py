"""Networks as a configuration or the header of a weight file states them.

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


Sizes = Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=12)]


class AttentionNetwork(Section):
    """The paper's networks (section 3, tab:NN). `[40, 40]` is two hidden layers of 40 neurons."""

    later = ("initialisation", "latent_samples", "transform_inputs")
    per_sensors: ClassVar[bool] = True
    """Trained for the counts, layouts and noise of one experiment."""

    architecture: Literal["attention"] = "attention"
    embedding_dim: int = Field(default=2, ge=1, le=1024, description="d_emb.")
    heads: int = Field(default=4, ge=1, le=64, description="Attention heads H.")
    head_width: int = Field(default=32, ge=1, le=1024, description="Output width q of a head.")
    location_embedding: Sizes = Field(default=[40, 40], description="Hidden layers of Lambda_x.")
    value_embedding: Sizes = Field(default=[40, 40], description="Hidden layers of Lambda_kappa.")
    attention: Sizes = Field(default=[32] * 4, description="Hidden layers of each w_l and v_l.")
    branch: Sizes = Field(default=[64] * 4, description="Hidden layers of the branch B.")
    trunk: Sizes = Field(default=[64] * 4, description="Hidden layers of the trunk T.")
    encoder: Sizes = Field(default=[64] * 4, description="Hidden layers of the encoder E.")
    latent_dim: int = Field(default=10, ge=1, le=1024, description="d_z.")
    truncation: int = Field(default=100, ge=1, le=4096, description="p, terms of the expansion.")
    activation: Literal["tanh", "silu", "gelu"] = Field(default="tanh", description="Activation.")
    noise_variance: float = Field(default=1e-3, gt=0, le=1e3, description="sigma_u^2.")
    standardise_inputs: bool = Field(
        default=False,
        description="Feed (transformed kappa - mean) / std with training statistics, and "
        "locations scaled to [-1, 1], instead of raw values.",
    )
    count_feature: bool = Field(
        default=False, description="Append 1/m to h(O): a pooled average cannot see m."
    )
    transform_inputs: bool = Field(
        default=False, description="Feed transformed kappa (log kappa), not standardised."
    )
    latent_samples: int = Field(default=1, ge=1, le=256, description="Draws of z for each pair.")
    initialisation: Literal["torch", "xavier"] = Field(
        default="torch", description="`xavier`: Glorot's normal weights and zero biases."
    )

    def with_latent_dim(self, size: int) -> AttentionNetwork:
        """Return the same networks with another d_z."""
        return self.model_copy(update={"latent_dim": size})


class KarhunenLoeveNetwork(Section):
    """UQ-SONet on a Karhunen-Loeve latent space (docs/model.md)."""

    later = ("held_out_residuals", "law")
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
    law: Literal["gaussian", "mixture", "thresholded", "bounded", "analogue"] = Field(
        default="gaussian",
        description="Law of the input's coefficients (docs/model.md). The operator is trained "
        "without it; `uqsonet.fit` and methods with `law_of` set it.",
    )

    @model_validator(mode="after")
    def _some_branch(self) -> KarhunenLoeveNetwork:
        if not (self.branch or self.linear_skip):
            raise ValueError("a branch without hidden layers needs linear_skip: true")
        return self

    def with_latent_dim(self, size: int) -> KarhunenLoeveNetwork:
        """Return the same networks with another d_z."""
        return self.model_copy(update={"input_modes": size})


class KarhunenLoeveSetNetwork(KarhunenLoeveNetwork):
    """VIDON on Karhunen-Loeve coefficients (docs/model.md): sensors are seen in training."""

    per_sensors: ClassVar[bool] = True
    architecture: Literal["karhunen_loeve_set"] = "karhunen_loeve_set"  # type: ignore[assignment]


class KarhunenLoeveFieldNetwork(KarhunenLoeveNetwork):
    """UQ-SONet whose branch is a neural operator on whole input fields (docs/model.md)."""

    architecture: Literal["karhunen_loeve_field"] = "karhunen_loeve_field"  # type: ignore[assignment]
    branch: list[Annotated[int, Field(ge=1, le=512)]] = Field(
        default=[24] * 4, min_length=1, max_length=12, description="Channels of each layer."
    )
    linear_skip: bool = Field(
        default=False, description="The least-squares operator beside the network, as it is."
    )
    frequencies: int = Field(default=10, ge=1, le=64, description="Cosines and sines an axis.")
    patch: int = Field(default=4, ge=1, le=16, description="Points of a patch along each axis.")
    symmetries: Literal["none", "square"] = Field(
        default="none",
        description="Training shows each pair turned and mirrored, where the operator allows it.",
    )


class AttentionPriorNetwork(KarhunenLoeveNetwork):
    """UQ-SONet with a learned set embedding and prior of z (docs/model.md)."""

    held_out_residuals: Literal[False] = False  # type: ignore[assignment]
    law: Literal["gaussian"] = Field(  # type: ignore[assignment]
        default="gaussian", description="Learned: none can be asked."
    )
    per_sensors: ClassVar[bool] = True
    architecture: Literal["attention_prior"] = "attention_prior"  # type: ignore[assignment]
    waves: int = Field(default=16, ge=1, le=256, description="Sines and cosines of a coordinate.")
    width: int = Field(default=128, ge=4, le=1024, description="Features of a sensor.")
    heads: int = Field(default=4, ge=1, le=64, description="Attention heads H.")
    head_width: int = Field(default=32, ge=1, le=1024, description="Output width q of a head.")
    pooling: Literal["sum", "softmax"] = Field(default="sum", description="softmax: eq:pooling.")
    averages: bool = Field(default=True, description="The linear part is trained on all pairs.")
    reading_heads: int = Field(default=64, ge=1, le=4096, description="Heads that read values.")
    correction: Sizes = Field(default=[128] * 2, description="Hidden layers of what they correct.")
    group: int = Field(default=8, ge=1, le=1024, description="Functions with the same sensors.")


Network = Annotated[
    AttentionNetwork
    | KarhunenLoeveNetwork
    | KarhunenLoeveSetNetwork
    | KarhunenLoeveFieldNetwork
    | AttentionPriorNetwork,
    Field(discriminator="architecture"),
]
