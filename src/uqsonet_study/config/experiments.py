"""Experiments as they are declared, and the cases that each of them stands for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from uqsonet.operator.config import Name, Section
from uqsonet_study.config.evaluations import Estimator, Evaluation, TestEvaluation
from uqsonet_study.config.section import require_distinct
from uqsonet_study.config.sensors import SensorsConfig

BASELINES = ("sensor_free", "cokriging", "regression")

NoiseStd = Annotated[float, Field(ge=0, le=100)]
NoiseStds = Annotated[
    Annotated[NoiseStd, Tag("<one>")]
    | Annotated[list[NoiseStd], Field(min_length=1), Tag("<several>")],
    Discriminator(lambda value: "<several>" if isinstance(value, list) else "<one>"),
]
Positive = Annotated[int, Field(ge=1, le=10_000_000)]


class OwnDataConfig(Section):
    """Pairs of functions in a file, one input field and one output field."""

    file: str = Field(min_length=1, description="Path from the folder where the run starts.")
    input: str = Field(min_length=1, description="Name of the field that sensors read.")
    output: str = Field(min_length=1, description="Name of the field that is wanted.")
    transform: Literal["identity", "log"] = Field(
        default="identity",
        description="`log`: the logarithm of the (positive) input is taken as Gaussian, and noise "
        "is relative.",
    )
    test_file: str | None = Field(
        default=None,
        min_length=1,
        description="Its first rows are the test functions; null: the last rows of `file`.",
    )

    @property
    def files(self) -> list[str]:
        """All files that are read."""
        return [self.file, *([] if self.test_file is None else [self.test_file])]


class ProblemConfig(Section):
    """How much data one problem gets. Streams of the three splits never overlap."""

    later = ("data",)

    data: OwnDataConfig | None = Field(
        default=None, description="Own data; null: the problem of that name makes its pairs."
    )

    training: int = Field(
        ge=2, le=10_000_000, description="Training pairs that are made; experiments may use fewer."
    )
    validation: int = Field(default=100, ge=1, le=100_000, description="Validation functions.")
    test: int = Field(default=200, ge=1, le=100_000, description="Test functions.")
    shard: int = Field(
        default=1000, ge=1, le=100_000, description="Pairs per shard of generation (one seed each)."
    )


class SweepConfig(Section):
    """What an experiment varies besides sensors and noise; each value has its own trainings."""

    training: list[Positive] | None = Field(
        default=None, min_length=1, description="Training pairs N: the first N of the data set."
    )
    latent_dim: list[Annotated[int, Field(ge=1, le=1000)]] | None = Field(
        default=None, min_length=1, description="Latent dimension d_z."
    )

    @model_validator(mode="after")
    def _something(self) -> SweepConfig:
        if self.training is None and self.latent_dim is None:
            raise ValueError("name what varies: training, latent_dim or both")
        for values in (self.training or [], self.latent_dim or []):
            require_distinct(values, "value")
        return self


class ExperimentConfig(Section):
    """One experiment: a problem, its sensors, the methods compared, and what varies."""

    later = ("model_samples", "sets", "estimator")

    problem: Name
    sensors: SensorsConfig
    training: int | None = Field(
        default=None, ge=2, description="Training pairs N used; null: all that are made."
    )
    noise_std: NoiseStds = Field(
        default=0.0,
        description="Observation noise sigma (additive on log kappa where the problem's Gaussian "
        "field is log kappa), or a list of levels, each a case of its own.",
    )
    sweep: SweepConfig | None = Field(default=None, description="What else varies.")
    one_model_per_count: bool = Field(
        default=False,
        description="Train a model for each sensor count instead of one for all. Without effect "
        "on methods whose training does not depend on the sensors.",
    )
    methods: list[Name] = Field(min_length=1, description="Learned methods, in table order.")
    trials: int = Field(default=5, ge=1, le=1000, description="Independent trainings.")
    recipe: Name | None = Field(default=None, description="Overrides the global recipe.")
    evaluations: list[TestEvaluation] = Field(
        default=["paper", "precise"], min_length=1, description="Evaluations on test functions."
    )
    reference_samples: dict[Evaluation, Annotated[int, Field(ge=2)]] = Field(
        default={},
        description="Overrides evaluations.*.reference_samples where a solve costs more or less.",
    )
    model_samples: dict[Evaluation, Annotated[int, Field(ge=2)]] = Field(
        default={}, description="Overrides evaluations.*.model_samples."
    )
    sets: dict[Evaluation, Annotated[int, Field(ge=1)]] = Field(
        default={}, description="Overrides evaluations.*.sets."
    )
    estimator: dict[Evaluation, Estimator] = Field(
        default={}, description="Overrides evaluations.*.estimator."
    )
    reference_workers: int = Field(
        default=1,
        ge=1,
        le=128,
        description="Cores that share a reference whose sets are sampled one by one (each solve "
        "is dear: Navier-Stokes). Results do not depend on it.",
    )
    cut_lines: list[Annotated[str, Field(pattern=r"^[xy]=-?\d+(\.\d+)?$")]] = Field(
        default=[],
        description="Grid lines such as x=0.5, on which errors are taken besides the whole domain.",
    )

    @field_validator("methods")
    @classmethod
    def _methods_fit(cls, methods: list[str]) -> list[str]:
        require_distinct(methods, "method")
        clash = set(methods) & set(BASELINES)
        if clash:
            raise ValueError(f"{sorted(clash)} are baselines: always there, never listed")
        return methods

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentConfig:
        require_distinct(self.noise_levels, "noise level")
        require_distinct(self.evaluations, "evaluation")
        require_distinct(self.cut_lines, "cut line")
        if self.one_model_per_count and self.sensors.layout != "uniform":
            raise ValueError("one_model_per_count is for uniform layouts only")
        if self.sweep and self.sweep.training and self.training is not None:
            raise ValueError("training stands both in the experiment and in its sweep")
        return self

    @property
    def case_count(self) -> int:
        """How many cases it stands for, at most."""
        sweep = self.sweep or SweepConfig.model_construct(training=None, latent_dim=None)
        varied = (self.noise_levels, sweep.training, sweep.latent_dim)
        counts = self.sensors.counts if self.one_model_per_count else []
        return prod(len(values or [None]) for values in (*varied, counts))

    @property
    def noise_levels(self) -> list[float]:
        """Noise levels as a list, also where one number is given."""
        return self.noise_std if isinstance(self.noise_std, list) else [self.noise_std]


@dataclass(frozen=True)
class Case:
    """One point of an experiment: everything that a model and its scores depend on."""

    name: str  # that of the experiment, with the values that vary: ``diffusion1d_noise-noise0.5``
    experiment: str
    problem: str
    sensors: SensorsConfig
    noise_std: float
    training: int  # training pairs N
    latent_dim: int | None  # d_z where it varies; None leaves that of the recipe
    methods: tuple[str, ...]
    trials: int
    evaluations: tuple[TestEvaluation, ...]
    cut_lines: tuple[str, ...]

    @property
    def counts(self) -> list[int]:
        """Sensor counts that scores are listed by."""
        return self.sensors.counts


def cases_of(
    name: str, experiment: ExperimentConfig, pairs: int, split_counts: bool
) -> dict[str, Case]:
    """Return the cases of an experiment by name.

    Parameters
    ----------
    pairs : int
        Training pairs of its problem.
    split_counts : bool
        Give every sensor count a case of its own.
    """
    sweep, sensors = experiment.sweep, experiment.sensors
    sizes = (sweep and sweep.training) or [experiment.training or pairs]
    latents = (sweep and sweep.latent_dim) or [None]
    counts = sensors.counts if split_counts else [None]
    found = {}
    for noise, size, latent, count in product(experiment.noise_levels, sizes, latents, counts):
        parts = [name]
        parts += [f"noise{noise:g}"] if isinstance(experiment.noise_std, list) else []
        parts += [f"n{size}"] if sweep and sweep.training else []
        parts += [f"dz{latent}"] if latent is not None else []
        parts += [f"m{count}"] if count is not None else []
        case = Case(
            name="-".join(parts),
            experiment=name,
            problem=experiment.problem,
            sensors=sensors if count is None else sensors.only(count),
            noise_std=noise,
            training=size,
            latent_dim=latent,
            methods=tuple(experiment.methods),
            trials=experiment.trials,
            evaluations=tuple(experiment.evaluations),
            cut_lines=tuple(experiment.cut_lines),
        )
        found[case.name] = case
    return found
