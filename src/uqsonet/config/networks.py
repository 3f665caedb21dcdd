"""Network sizes: the paper's (section 3, tab:NN) and those of the Karhunen-Loeve latent space."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from uqsonet.config.section import Section

Sizes = Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=12)]


class AttentionNetwork(Section):
    """The paper's networks (section 3, tab:NN). `[40, 40]` is two hidden layers of 40 neurons."""

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

    def with_latent_dim(self, size: int) -> AttentionNetwork:
        """Return the same networks with another d_z."""
        return self.model_copy(update={"latent_dim": size})


class KrigingNetwork(Section):
    """UQ-SONet on a Karhunen-Loeve latent space (docs/model.md)."""

    per_sensors: ClassVar[bool] = False
    """Sensors and noise enter when the model is conditioned: one training serves them all."""

    architecture: Literal["kriging"] = "kriging"
    input_modes: int = Field(default=56, ge=1, le=2000, description="d_z: KL modes of kappa.")
    output_modes: int = Field(default=40, ge=1, le=2000, description="p: empirical modes of u.")
    branch: Sizes = Field(default=[256] * 3, description="Hidden layers of the branch.")
    linear_skip: bool = Field(
        default=True,
        description="A linear map beside the perceptron, started at the least-squares operator "
        "(cokriging); without it the perceptron learns all of the operator.",
    )
    activation: Literal["tanh", "silu", "gelu"] = Field(default="silu", description="Activation.")

    def with_latent_dim(self, size: int) -> KrigingNetwork:
        """Return the same networks with another d_z."""
        return self.model_copy(update={"input_modes": size})


class KrigingSetNetwork(KrigingNetwork):
    """VIDON on the kriged input (docs/model.md): sensors are seen in training."""

    per_sensors: ClassVar[bool] = True

    architecture: Literal["kriging_set"] = "kriging_set"  # type: ignore[assignment]


Network = Annotated[
    AttentionNetwork | KrigingNetwork | KrigingSetNetwork, Field(discriminator="architecture")
]
