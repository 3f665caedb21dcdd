"""What a recipe may state of a method: networks of the library and of the study, and training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from uqsonet.networks.config import AttentionNetwork, AttentionPriorNetwork, KarhunenLoeveSetNetwork
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.settings import MethodConfig as Method


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


Network = Annotated[
    AttentionNetwork
    | KarhunenLoeveNetwork
    | KarhunenLoeveSetNetwork
    | KarhunenLoeveFieldNetwork
    | AttentionPriorNetwork,
    Field(discriminator="architecture"),
]


class MethodConfig(Method):
    """A method within a recipe: its networks and its training."""

    network: Network  # type: ignore[assignment]

    def of_size(self, pairs: int, latent_dim: int | None, swept: bool) -> MethodConfig:
        """Return the same method for N pairs and another d_z, if there is one.

        Where N varies, a batch is never larger than the training set, and there are no more
        iterations than `max_passes` over it.
        """
        network, training = self.network, self.training
        if latent_dim is not None:
            name = "latent_dim" if isinstance(network, AttentionNetwork) else "input_modes"
            network = network.model_copy(update={name: latent_dim})
        batch, iterations = training.batch_size, training.iterations
        if swept:
            batch = min(batch, pairs)
        if training.max_passes is not None:
            iterations = min(iterations, max(1, round(training.max_passes * pairs / batch)))
        training = training.model_copy(update={"batch_size": batch, "iterations": iterations})
        return self.model_copy(update={"network": network, "training": training})

    @model_validator(mode="after")
    def _whole_groups(self) -> MethodConfig:
        group, size = getattr(self.network, "group", 1), self.training.batch_size
        if size % group or (group > 1 and self.training.protocol == "fixed_batches"):
            raise ValueError(
                f"network.group: {group} functions share their sensors, so training.batch_size has "
                "to be a multiple of it and training.protocol redraw or batch_shared; found "
                f"{size} and {self.training.protocol}"
            )
        return self
