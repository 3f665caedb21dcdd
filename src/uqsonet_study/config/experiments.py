"""Experiments as they are declared, and the cases that each of them stands for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from uqsonet.operator.config import Name, Section
from uqsonet_study.config.evaluations import Estimator, Evaluation, Target, TestEvaluation
from uqsonet_study.config.section import require_distinct
from uqsonet_study.config.sensors import SensorsConfig

BASELINES = ("sensor_free", "cokriging", "regression")

NoiseStd = Annotated[float, Field(ge=0, le=100)]
NoiseStds = Annotated[
    Annotated[NoiseStd, Tag("<one>")]
    | Annotated[list[NoiseStd], Field(min_length=1), Tag("<several>")],
    Discriminator(lambda value: "<several>" if isinstance(value, list) else "<one>"),
]
Share = Annotated[float, Field(gt=0, le=100)]
Shares = Annotated[
    Annotated[Share, Tag("<one>")] | Annotated[list[Share], Field(min_length=1), Tag("<several>")],
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

    later = ("model_samples", "sets", "output_sensors", "output_noise", "estimator", "target")

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
    output_sensors: SensorsConfig | None = Field(
        default=None,
        description="Sensors of u besides those of the input. Counts of both belong together one "
        "by one; the larger of two, by which scores are listed, must ascend.",
    )
    output_noise: Shares | None = Field(
        default=None,
        description="Noise of output_sensors as a share of the standard deviation of u over "
        "training pairs (all points together), or a list of levels, each a case of its own.",
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
    target: dict[Evaluation, Target] = Field(
        default={}, description="Overrides evaluations.*.target."
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
        self._check_outputs()
        if self.sweep and self.sweep.training and self.training is not None:
            raise ValueError("training stands both in the experiment and in its sweep")
        return self

    def _check_outputs(self) -> None:
        counts, outputs = self.sensors.counts, self.output_sensors
        if (outputs is None) != (self.output_noise is None):
            raise ValueError("output_sensors and output_noise belong together")
        if outputs is None:
            if 0 in counts:
                raise ValueError(
                    f"sensors.counts.{counts.index(0)}: must be 1 or more without output_sensors, "
                    "found 0"
                )
            return
        require_distinct(self.output_levels, "output noise level")
        if self.one_model_per_count:
            raise ValueError("one_model_per_count has no meaning with output_sensors")
        if len(counts) != len(outputs.counts):
            raise ValueError(
                f"sensors.counts {counts} and output_sensors.counts {outputs.counts} belong "
                "together one by one and must be equally many"
            )
        listed = [max(pair) for pair in self.count_pairs]
        if sorted(set(listed) - {0}) != listed:
            raise ValueError(
                f"the larger of each pair of counts must be above 0 and ascend, found {listed}"
            )

    @property
    def count_pairs(self) -> list[tuple[int, int]]:
        """Counts of sensors of input and output that belong together, where there are both."""
        if self.output_sensors is None:
            return []
        return list(zip(self.sensors.counts, self.output_sensors.counts, strict=True))

    @property
    def output_levels(self) -> list[float]:
        """Levels of `output_noise` as a list, empty where there is none."""
        found = self.output_noise
        return found if isinstance(found, list) else [] if found is None else [found]

    @property
    def case_count(self) -> int:
        """How many cases it stands for, at most."""
        sweep = self.sweep or SweepConfig.model_construct(training=None, latent_dim=None)
        varied = (self.noise_levels, self.output_levels, sweep.training, sweep.latent_dim)
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
    output_sensors: SensorsConfig | None = None  # sensors of u
    output_noise: float | None = None  # their noise as a share of the standard deviation of u

    @property
    def counts(self) -> list[int]:
        """Sensor counts that scores are listed by: of a pair the larger one."""
        if self.output_sensors is None:
            return self.sensors.counts
        return [*map(max, self.sensors.counts, self.output_sensors.counts)]


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
    shares = experiment.output_levels or [None]
    found = {}
    for noise, share, size, latent, count in product(
        experiment.noise_levels, shares, sizes, latents, counts
    ):
        parts = [name]
        parts += [f"noise{noise:g}"] if isinstance(experiment.noise_std, list) else []
        parts += [f"out{share:g}"] if isinstance(experiment.output_noise, list) else []
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
            output_sensors=experiment.output_sensors,
            output_noise=share,
        )
        found[case.name] = case
    return found
