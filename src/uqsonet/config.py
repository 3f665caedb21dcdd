"""The configuration: what may be written in `config.yaml`, with ranges and meanings.

Unknown keys are refused, so a misspelt key is an error and never a silent default. The JSON
schema in `workflow/schemas/config.schema.json` is generated from these classes. This module
imports neither torch nor NumPy because the workflow reads it at every start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from uqsonet.errors import ConfigError

NAME = re.compile(r"^[a-z][a-z0-9_]*$")
BASELINES = ("sensor_free", "cokriging")

Name = Annotated[str, Field(pattern=NAME.pattern, max_length=64)]
Sizes = Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1, max_length=12)]


class Section(BaseModel):
    """A block of the configuration: immutable, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ProblemConfig(Section):
    """How much data one problem gets. Streams of the three splits never overlap."""

    training: int = Field(ge=2, le=10_000_000, description="Training pairs N.")
    validation: int = Field(default=100, ge=1, le=100_000, description="Validation functions.")
    test: int = Field(default=200, ge=1, le=100_000, description="Test functions.")
    shard: int = Field(
        default=1000, ge=1, le=100_000, description="Pairs per shard of generation (one seed each)."
    )


Distance = Annotated[float, Field(gt=0)]


class SensorsConfig(Section):
    """Where sensors may stand and how many."""

    counts: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        min_length=1, description="Admissible sensor counts, the set M of the paper."
    )
    pool: int = Field(
        default=20_000, ge=1, le=10_000_000, description="Pregenerated layouts per sensor count."
    )
    layout: Literal["uniform", "regular_space"] = Field(
        default="uniform",
        description="`uniform`: distinct grid points, each equally likely; `regular_space`: "
        "regular-space clustering of permuted grid points keeps sensors apart (section 4.2).",
    )
    margin: float = Field(
        default=0.0,
        ge=0,
        description="Sensors stand on grid points at least this far from the boundary of the box, "
        "in units of the domain.",
    )
    distances: dict[int, Distance] = Field(
        default={},
        description="Sensor count -> least distance d_min between sensors (regular_space); counts "
        "without an entry are uniform.",
    )
    backend: Literal["deeptime", "pyemma"] = Field(
        default="deeptime",
        description="Library that clusters. Both give the same layouts; pyemma is the one that the "
        "paper names, slower, and has to be installed (`make pyemma`).",
    )

    @field_validator("counts")
    @classmethod
    def _ascending(cls, counts: list[int]) -> list[int]:
        if sorted(set(counts)) != counts:
            raise ValueError("sensor counts must be distinct and ascending")
        return counts

    @model_validator(mode="after")
    def _distances_fit(self) -> SensorsConfig:
        if self.layout == "uniform" and self.distances:
            raise ValueError("distances have a meaning only with layout: regular_space")
        if self.layout == "regular_space" and not self.distances:
            raise ValueError("layout: regular_space needs distances, sensor count -> d_min")
        extra = sorted(set(self.distances) - set(self.counts))
        if extra:
            raise ValueError(f"distances for {extra}, which are not among counts {self.counts}")
        if 1 in self.distances:
            raise ValueError("distances for 1: a single sensor has no other to be apart from")
        return self


class AttentionNetwork(Section):
    """The paper's networks (section 3, tab:NN). `[40, 40]` is two hidden layers of 40 neurons."""

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


class KrigingNetwork(Section):
    """UQ-SONet on a Karhunen-Loeve latent space (docs/model.md)."""

    architecture: Literal["kriging"] = "kriging"
    input_modes: int = Field(default=56, ge=1, le=2000, description="d_z: KL modes of kappa.")
    output_modes: int = Field(default=40, ge=1, le=2000, description="p: empirical modes of u.")
    branch: Sizes = Field(default=[256] * 3, description="Hidden layers of the branch.")
    activation: Literal["tanh", "silu", "gelu"] = Field(default="silu", description="Activation.")


Network = Annotated[AttentionNetwork | KrigingNetwork, Field(discriminator="architecture")]
Evaluation = Literal["validation", "paper", "precise"]
Protocol = Literal["fixed_batches", "batch_shared", "redraw"]


class TrainingConfig(Section):
    """One training run: Adam on minibatches."""

    iterations: int = Field(ge=1, le=10_000_000, description="Adam steps.")
    batch_size: int = Field(default=1000, ge=1, le=1_000_000, description="Samples per step.")
    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="Adam step size (peak).")
    schedule: Literal["constant", "cosine"] = Field(
        default="constant", description="`cosine`: linear warm-up over 5 %, then cosine to zero."
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
    """A method within a recipe: its networks and its training."""

    network: Network
    training: TrainingConfig


class ExperimentConfig(Section):
    """One experiment: a problem, its sensors, the methods compared, the paper's table."""

    problem: Name
    sensors: SensorsConfig
    noise_std: float = Field(
        default=0.0,
        ge=0,
        le=100,
        description="Observation noise sigma (additive on log kappa "
        "where the problem's Gaussian field is log kappa).",
    )
    methods: list[Name] = Field(min_length=1, description="Learned methods, in table order.")
    trials: int = Field(default=5, ge=1, le=1000, description="Independent trainings.")
    recipe: Name | None = Field(default=None, description="Overrides the global recipe.")
    table: str = Field(description="Label of the paper's table, e.g. tab:1d-pde-error.")
    reference_samples: dict[Evaluation, Annotated[int, Field(ge=2)]] = Field(
        default={},
        description="Overrides evaluations.*.reference_samples where a solve costs more or less.",
    )
    figure_counts: list[int] = Field(
        default=[2, 4, 7, 10], min_length=1, description="Sensor counts in the posterior figure."
    )

    @field_validator("methods")
    @classmethod
    def _distinct(cls, methods: list[str]) -> list[str]:
        if len(set(methods)) != len(methods):
            raise ValueError("each method may stand once")
        clash = set(methods) & set(BASELINES)
        if clash:
            raise ValueError(f"{sorted(clash)} are baselines: always there, never listed")
        return methods

    @model_validator(mode="after")
    def _figure_within(self) -> ExperimentConfig:
        extra = sorted(set(self.figure_counts) - set(self.sensors.counts))
        if extra:
            raise ValueError(f"figure_counts {extra} are not among sensors.counts")
        return self


class ReferenceConfig(Section):
    """Reference posteriors of an evaluation."""

    sets: int = Field(ge=1, description="Observation sets per sensor count.")
    reference_samples: int = Field(ge=2, description="Samples of the reference posterior.")
    wasserstein: bool = Field(default=False, description="Exact empirical W2 on stored samples.")
    estimator: Literal["monte_carlo", "reduced"] = Field(
        default="monte_carlo",
        description="`monte_carlo`: plain posterior samples, the paper's way. `reduced`: closed "
        "form, Rao-Blackwellised or with a control variate, whichever the problem allows.",
    )

    @model_validator(mode="after")
    def _samples_for_distance(self) -> ReferenceConfig:
        if self.wasserstein and self.estimator == "reduced":
            raise ValueError("wasserstein needs plain samples: estimator must be monte_carlo")
        return self


class EvaluationConfig(ReferenceConfig):
    """How a posterior is compared with its reference."""

    model_samples: int = Field(ge=2, description="Samples of the model's posterior.")


class JobsConfig(Section):
    """How work is cut into jobs."""

    trials_per_job: int = Field(default=1, ge=1, le=64, description="Trials stacked in a job.")
    checkpoint_minutes: float = Field(default=2.0, gt=0, description="Time between checkpoints.")
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Torch device.")


class Config(Section):
    """The whole configuration."""

    results: str = Field(
        default="results",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*$",
        description="Folder of results; overlays use their own so that scales never mix.",
    )
    scale: Literal["full", "smoke"] = Field(
        default="full", description="`smoke` is printed in every caption."
    )
    seed: int = Field(default=2026, ge=0, lt=2**63, description="Root of the seed tree.")
    recipe: Name = Field(default="tuned", description="Recipe of experiments that name none.")
    select: list[Name] | None = Field(
        default=None, description="Experiments to run; null runs all that are declared."
    )
    problems: dict[Name, ProblemConfig]
    experiments: dict[Name, ExperimentConfig] = Field(min_length=1)
    recipes: dict[Name, dict[Name, dict[Name, MethodConfig]]] = Field(
        description="recipe -> problem -> method -> networks and training."
    )
    evaluations: dict[Evaluation, EvaluationConfig] = Field(
        description="`validation` judges training, `paper` repeats its ten sets, `precise` adds "
        "intervals. All three must be there."
    )
    jobs: JobsConfig = JobsConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        missing = {"validation", "paper", "precise"} - set(self.evaluations)
        if missing:
            raise ValueError(f"evaluations: missing {sorted(missing)}")
        evaluations: dict[str, EvaluationConfig] = {**self.evaluations}
        unknown = sorted(set(self.select or ()) - set(self.experiments))
        if unknown or self.select == []:
            known = ", ".join(self.experiments)
            raise ValueError(f"select: {unknown} not among the experiments {known}")
        for name, experiment in self.experiments.items():
            where = f"experiments.{name}"
            data = self.problems.get(experiment.problem)
            if data is None:
                raise ValueError(f"{where}.problem: {experiment.problem!r} is not in problems")
            for label, split in (("paper", "test"), ("precise", "test"), ("validation",) * 2):
                sets, there = evaluations[label].sets, getattr(data, split)
                if sets > there:
                    raise ValueError(
                        f"evaluations.{label}.sets = {sets} exceeds the {there} {split} functions "
                        f"of problems.{experiment.problem}"
                    )
            for method in experiment.methods:
                self._check_method(where, experiment, method, data)
        return self

    def _check_method(
        self, where: str, experiment: ExperimentConfig, method: str, data: ProblemConfig
    ) -> None:
        recipe = experiment.recipe or self.recipe
        found = self.recipes.get(recipe, {}).get(experiment.problem, {}).get(method)
        if found is None:
            raise ValueError(
                f"{where}: recipes.{recipe}.{experiment.problem} has no entry for {method!r}"
            )
        if found.training.batch_size > data.training:
            raise ValueError(
                f"recipes.{recipe}.{experiment.problem}.{method}.training.batch_size = "
                f"{found.training.batch_size} exceeds the {data.training} training pairs"
            )
        batches = data.training // found.training.batch_size
        if found.training.protocol == "fixed_batches" and batches < len(experiment.sensors.counts):
            raise ValueError(
                f"{where}: fixed_batches cuts {data.training} pairs into {batches} batches, fewer "
                f"than the {len(experiment.sensors.counts)} sensor counts; lower batch_size"
            )

    def evaluation_of(self, experiment: str, label: Evaluation) -> EvaluationConfig:
        """Return an evaluation with an experiment's own number of reference samples."""
        found = self.evaluations[label]
        samples = self.experiments[experiment].reference_samples.get(label)
        return found if samples is None else found.model_copy(update={"reference_samples": samples})

    def recipe_of(self, experiment: str) -> str:
        """Return the name of the recipe that an experiment uses."""
        return self.experiments[experiment].recipe or self.recipe

    def method_of(self, experiment: str, method: str) -> MethodConfig:
        """Return networks and training of one method in one experiment."""
        return self.recipes[self.recipe_of(experiment)][self.experiments[experiment].problem][
            method
        ]


def load_config(raw: Mapping[str, Any], source: str = "configuration") -> Config:
    """Validate a merged configuration.

    Raises
    ------
    ConfigError
        With one line per offending key: where it stands, what was found, what is allowed.
    """
    try:
        config = Config.model_validate(raw)
        if config.select is None:
            return config
        chosen = {name: config.experiments[name] for name in config.select}
        return config.model_copy(update={"experiments": chosen})
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors(include_url=False)]
        raise ConfigError(
            f"{source} is not valid:\n" + "\n".join(f"  {x}" for x in lines)
        ) from None


def _explain(item: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    message = item["msg"].removeprefix("Value error, ")
    found = item.get("input")
    shown = "" if isinstance(found, dict | BaseModel) or found is None else f" (found {found!r})"
    return f"{key}: {message}{shown}"


def json_schema() -> str:
    """Return the JSON schema of the configuration as text."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"
