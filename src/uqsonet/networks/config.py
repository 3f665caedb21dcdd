"""Networks of the paper's methods, as a configuration or a weight file's header states them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from uqsonet.operator.config import KarhunenLoeveNetwork, NetworkConfig

Sizes = Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=12)]


class AttentionNetwork(NetworkConfig):
    """The paper's networks (section 3, tab:NN). `[40, 40]` is two hidden layers of 40 neurons."""

    later = ("initialisation", "latent_samples", "transform_inputs")

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


class KarhunenLoeveSetNetwork(KarhunenLoeveNetwork):
    """VIDON on Karhunen-Loeve coefficients (docs/model.md): sensors are seen in training."""

    per_sensors: ClassVar[bool] = True
    architecture: Literal["karhunen_loeve_set"] = "karhunen_loeve_set"  # type: ignore[assignment]


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
