"""How a model is trained, as a configuration or the header of a weight file states it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from uqsonet.operator.config import KarhunenLoeveNetwork, Section

Protocol = Literal["fixed_batches", "batch_shared", "redraw"]


class TrainingConfig(Section):
    """One training run: Adam on minibatches."""

    later = ("beta1", "beta2", "epsilon", "precision")
    iterations: int = Field(ge=1, le=10_000_000, description="Adam steps.")
    max_passes: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="At most so many passes over the training pairs: "
        "fewer `iterations` where N is small, so that no pair is seen too often; null: no limit.",
    )
    batch_size: int = Field(default=1000, ge=1, le=1_000_000, description="Samples per step.")
    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="Adam step size (peak).")
    schedule: Literal["constant", "cosine"] = Field(
        default="constant", description="`cosine`: linear warm-up over 5 %, then cosine to zero."
    )
    beta1: float = Field(default=0.9, ge=0, lt=1, description="Adam's decay of the mean gradient.")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="Adam's decay of its square.")
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="Adam's least denominator.")
    precision: Literal["float32", "float64"] = Field(
        default="float32", description="Numbers of training; weights are stored as float32."
    )
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="Decoupled weight decay.")
    gradient_clip: float | None = Field(
        default=None, gt=0, description="Largest gradient norm per trial; null leaves it free."
    )
    average_decay: float | None = Field(
        default=None, gt=0, lt=1, description="Decay of the exponential weight average; null: none."
    )
    protocol: Protocol = Field(
        default="redraw",
        description="How sensors meet training functions: `fixed_batches` (section 4.1: one fixed "
        "layout per function, one count per batch), `batch_shared` (the VIDON comparison: one "
        "count and one layout per batch, drawn anew), `redraw` (drawn anew for each function).",
    )
    validate_every: int = Field(
        default=1000, ge=1, description="Iterations between validations (and log lines)."
    )


class MethodConfig(Section):
    """Networks and training of a Karhunen-Loeve model."""

    network: KarhunenLoeveNetwork
    training: TrainingConfig
