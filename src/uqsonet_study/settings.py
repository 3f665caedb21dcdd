"""Settings that jobs are given: how layouts, references, trainings and evaluations are made.

They are apart from the rest of the configuration, so that a new kind of table trains nothing again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from uqsonet.networks.config import AttentionNetwork, AttentionPriorNetwork, KarhunenLoeveSetNetwork
from uqsonet.networks.settings import MethodConfig
from uqsonet.operator.config import KarhunenLoeveNetwork, Section

Count = Annotated[int, Field(ge=1, le=1000)]
EvaluationName = Literal["validation", "paper", "precise"]
TestEvaluation = Literal["paper", "precise"]
Estimator = Literal["monte_carlo", "reduced", "none"]


class Jobs(Section):
    """Where and how jobs run, which changes no result."""

    checkpoint_minutes: float = Field(default=2.0, gt=0, description="Time between checkpoints.")
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Torch device.")


class Sizes(Section):
    """How many functions a problem gets. Streams of the three splits never overlap."""

    training: int = Field(ge=2, le=10_000_000, description="Training pairs that are made.")
    validation: int = Field(default=100, ge=1, le=100_000, description="Validation functions.")
    test: int = Field(default=200, ge=1, le=100_000, description="Test functions.")
    shard: int = Field(
        default=1000, ge=1, le=100_000, description="Pairs per shard of generation (one seed each)."
    )


class ReferenceConfig(Section):
    """Reference posteriors of an evaluation."""

    sets: int = Field(ge=1, description="Observation sets for each number of sensors.")
    samples: int = Field(ge=2, description="Samples of a reference posterior.")
    wasserstein: bool = Field(
        default=False, description="Exact W2 between samples; needs estimator monte_carlo."
    )
    estimator: Estimator = Field(
        default="monte_carlo",
        description="`monte_carlo`: plain posterior samples, the paper's way. `reduced`: closed "
        "form, Rao-Blackwellised or with a control variate, whichever the problem allows. `none`: "
        "observation sets alone, scored against true functions.",
    )

    @model_validator(mode="after")
    def _samples_for_distance(self) -> ReferenceConfig:
        if self.wasserstein and self.estimator != "monte_carlo":
            raise ValueError("wasserstein needs plain samples: estimator must be monte_carlo")
        return self


class Evaluation(ReferenceConfig):
    """How a posterior is compared with its reference."""

    model_samples: int = Field(
        ge=2,
        description="Samples of the model's posterior; its moments are from quasi-random ones "
        "unless the estimator is monte_carlo.",
    )


class Layout(Section):
    """Where sensors stand: pregenerated sets of grid points for each number of sensors."""

    counts: Annotated[list[Count], Field(min_length=1)] = Field(
        description="Numbers of sensors, the set M of the paper."
    )
    pool: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Training layouts for each number."
    )
    margin: float = Field(
        default=0.0,
        ge=0,
        description="Least distance of sensors from the boundary, in units of the domain.",
    )
    distances: dict[int, Annotated[float, Field(gt=0)]] = Field(
        default={},
        description="Number of sensors -> least distance d_min between them, by regular-space "
        "clustering (section 4.2); numbers without an entry are uniform.",
    )
    backend: Literal["deeptime", "pyemma"] = Field(
        default="deeptime",
        description="Library that clusters, with the same layouts; pyemma has to be installed.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Layout:
        if sorted(set(self.counts)) != self.counts:
            raise ValueError(f"counts must be distinct and ascending, found {self.counts}")
        if extra := sorted(set(self.distances) - (set(self.counts) - {1})):
            raise ValueError(f"distances for {extra}, which are no counts above 1 of {self.counts}")
        return self


class OverTime(Section):
    """Section 4.5 with four sensors that read at each of several steps (config/time.yaml)."""

    training: int = Field(default=1000, ge=50, le=100_000, description="Runs to learn from.")
    test: int = Field(default=40, ge=2, le=10_000, description="Test runs.")
    steps: int = Field(default=10, ge=1, le=100, description="Steps, of one unit of time.")
    members: int = Field(default=60, ge=2, le=10_000, description="Of the ensemble filter.")


class Gaps(Section):
    """Section 4.1 from runs of which some points were read (config/gaps.yaml)."""

    training: int = Field(default=10_000, ge=50, le=100_000, description="Runs to learn from.")
    seen: list[Annotated[int, Field(ge=2, le=201)]] = Field(
        default=[20, 50, 100], min_length=1, description="Points of 201 that are read of a run."
    )
    sets: int = Field(default=12, ge=2, le=1000, description="Sets of sensors of each number.")
    samples: int = Field(default=4000, ge=2, description="Samples of a reference posterior.")


class KarhunenLoeveFieldNetwork(KarhunenLoeveNetwork):
    """UQ-SONet whose branch is a neural operator on whole input fields (docs/laws.md)."""

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


class Method(MethodConfig):
    """A method within a recipe that is trained: its networks and its training."""

    network: Network  # type: ignore[assignment]

    @property
    def training_method(self) -> None:
        """The method that is trained in its place: it is trained itself."""
        return None

    def of_size(self, pairs: int, latent_dim: int | None) -> Method:
        """Return the same method for N pairs, and d_z if it is given.

        A batch is never larger than the training set, and there are no more iterations than
        `max_passes` over it.
        """
        network, training = self.network, self.training
        if latent_dim is not None:
            name = "latent_dim" if isinstance(network, AttentionNetwork) else "input_modes"
            network = network.model_copy(update={name: latent_dim})
        batch, iterations = min(training.batch_size, pairs), training.iterations
        if training.max_passes is not None:
            iterations = min(iterations, max(1, round(training.max_passes * pairs / batch)))
        training = training.model_copy(update={"batch_size": batch, "iterations": iterations})
        return self.model_copy(update={"network": network, "training": training})

    @model_validator(mode="after")
    def _whole_groups(self) -> Method:
        group, size = getattr(self.network, "group", 1), self.training.batch_size
        if size % group or (group > 1 and self.training.protocol == "fixed_batches"):
            raise ValueError(
                f"network.group: {group} functions share their sensors, so training.batch_size has "
                "to be a multiple of it and training.protocol redraw or batch_shared; found "
                f"{size} and {self.training.protocol}"
            )
        return self
