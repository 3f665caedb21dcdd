"""The configuration: what may stand in `config.yaml` and its overlays, with ranges and meanings.

Unknown keys are refused, so a misspelt key is an error and never a silent default. Sizes that have
to fit together (pairs, sets, layouts) are checked for each case where a job needs it
(`uqsonet_study.cases`), so an overlay may run one experiment in small and leave the others alone.
Nothing here imports torch or NumPy, because the workflow reads it at every start.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from uqsonet.errors import nearest
from uqsonet.operator.config import LOCAL, KarhunenLoeveNetwork, Name, Section
from uqsonet_study import BASELINES
from uqsonet_study.settings import (
    Count,
    Estimator,
    Evaluation,
    EvaluationName,
    Gaps,
    Jobs,
    Layout,
    Method,
    OverTime,
    Sizes,
    TestEvaluation,
)

FULL, SMOKE = "full", "smoke"
MOST_CASES = 5000  # of all experiments: each is planned at every start
RESERVED = ("all", "none")
"""Names that no table or figure may have: `tables/all.tex` holds all tables."""

Positive = Annotated[int, Field(ge=1, le=10_000_000)]
Noise = Annotated[float, Field(ge=0, le=100)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
"""Of a table or a figure: the paper's label without its kind, e.g. `1d-pde-error`."""

LayoutName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+_-]*$", max_length=64)]


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _distinct(values: list[Any]) -> list[Any]:
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"each value may stand once, found {values}")
    return values


OneOrMore = (BeforeValidator(_listed), Field(min_length=1))
"""A value stands for a list of one; each value of a list is a case of its own."""


class Override(Section):
    """What an evaluation does otherwise for one problem, where a solve costs more or less."""

    sets: int | None = Field(default=None, ge=1, description="Observation sets.")
    samples: int | None = Field(default=None, ge=2, description="Samples of a reference.")
    model_samples: int | None = Field(default=None, ge=2, description="Samples of a model.")
    estimator: Estimator | None = Field(default=None, description="Estimator of the reference.")


class Problem(Sizes):
    """How much data a problem gets, how often methods are trained, and what is dear in it."""

    trials: int = Field(default=5, ge=1, le=1000, description="Independent trainings of a method.")
    workers: int = Field(
        default=1,
        ge=1,
        le=128,
        description="Cores that share a reference whose sets are sampled one by one. Results do "
        "not depend on it.",
    )
    cut_lines: list[Annotated[str, Field(pattern=r"^[xy]=-?\d+(\.\d+)?$")]] = Field(
        default=[],
        description="Grid lines such as x=0.5, on which errors are taken besides the whole domain.",
    )
    evaluations: dict[EvaluationName, Override] = Field(
        default={}, description="What evaluations do otherwise for this problem."
    )


class Experiment(Section):
    """A problem, its sensors and the methods compared; a list stands for several cases."""

    problem: Name
    layout: Annotated[list[LayoutName], *OneOrMore]
    N: Annotated[list[Positive], *OneOrMore] | None = Field(
        default=None, description="Training pairs: the first N; null: all that are made."
    )
    noise: Annotated[list[Noise], *OneOrMore] = Field(
        default=[0.0],
        description="Standard deviation of the sensors' noise (on log kappa where the problem's "
        "Gaussian field is log kappa).",
    )
    dz: Annotated[list[Count], *OneOrMore] | None = Field(
        default=None, description="Latent dimension; null: that of the recipe."
    )
    methods: list[Name] = Field(min_length=1, description="Learned methods, in table order.")
    recipe: Name | None = Field(default=None, description="Recipe; null: that of the run.")
    trials: int | None = Field(default=None, ge=1, le=1000, description="null: the problem's.")
    evaluations: Annotated[list[TestEvaluation], Field(min_length=1)] = Field(
        default=["paper", "precise"], description="Evaluations on test functions."
    )

    @field_validator("methods", "layout", "N", "noise", "dz", "evaluations")
    @classmethod
    def _each_once(cls, values: list[Any] | None) -> list[Any] | None:
        return None if values is None else _distinct(values)

    @field_validator("noise")
    @classmethod
    def _names_differ(cls, levels: list[float]) -> list[float]:
        if len({f"{level:g}" for level in levels}) < len(levels):
            raise ValueError(f"levels must differ in six digits, found {levels}")
        return levels

    @field_validator("methods")
    @classmethod
    def _no_baseline(cls, methods: list[str]) -> list[str]:
        if clash := sorted({*methods} & {*BASELINES}):
            raise ValueError(f"{clash} are baselines: always there, never listed")
        return methods

    @property
    def size(self) -> int:
        """How many cases it stands for."""
        return prod(len(values or [1]) for values in (self.layout, self.N, self.noise, self.dz))


def has_law(network: object) -> TypeGuard[KarhunenLoeveNetwork]:
    """Tell whether a network is an operator that serves any law of the input."""
    return isinstance(network, KarhunenLoeveNetwork) and not network.per_sensors


class Ensemble(Section):
    """A method whose law is the spread of independent trainings of another one."""

    ensemble_of: Name = Field(description="Method of the same recipe and problem.")
    members: int = Field(
        default=5, ge=2, le=100, description="Trainings: trials 0, 1, ... of that method."
    )

    @property
    def training_method(self) -> str:
        """The method that is trained in its place."""
        return self.ensemble_of


Law = Literal[
    "auto",
    "gaussian",
    "mixture",
    "latent",
    "exact",
]


class LawOf(Section):
    """A method with the trained operator of another one, and a law of the input of its own."""

    law_of: Name = Field(description="Method of the same recipe and problem, `karhunen_loeve`.")
    law: Law = Field(
        default="auto",
        description="What is fitted to the training inputs. `auto`: the simplest law that "
        "held-out pairs do not reject. `exact`: the law of the problem itself, for comparison.",
    )
    nearest: int = Field(
        default=0,
        ge=0,
        le=LOCAL,
        description="Outputs are those of so many validation pairs with the nearest answers; 0: "
        "they are the operator's answers.",
    )

    @property
    def training_method(self) -> str:
        """The method that is trained in its place."""
        return self.law_of


KINDS = {"ensemble_of": "<ensemble>", "law_of": "<law>"}


def _kind(value: object) -> str:
    for key, kind in KINDS.items():
        if key in value if isinstance(value, dict) else hasattr(value, key):
            return kind
    return "<trained>"


AnyMethod = Annotated[
    Annotated[Method, Tag("<trained>")]
    | Annotated[Ensemble, Tag("<ensemble>")]
    | Annotated[LawOf, Tag("<law>")],
    Discriminator(_kind),
]

ScoreMetric = Literal[
    "err_mean",
    "err_std",
    "w1",
    "crps",
    "gain_crps",
    "crps_expected",
    "gain_crps_expected",
    "energy",
    "gain_energy",
    "energy_expected",
    "gain_energy_expected",
    "coverage_50",
    "coverage_90",
    "coverage_95",
    "within_50",
    "within_90",
    "within_95",
]
BANDS: tuple[ScoreMetric, ...] = ("within_50", "within_90", "within_95")
GAINS_EXPECTED: tuple[ScoreMetric, ...] = ("gain_crps_expected", "gain_energy_expected")
BY_REFERENCE: frozenset[ScoreMetric] = frozenset(
    {*BANDS, *GAINS_EXPECTED, "crps_expected", "energy_expected"}
)
"""Scores of evaluation `paper`, whose references hold samples."""


class Table(Section):
    """A table: which experiments it shows, and in which layout."""

    layout: Literal["errors", "bands", "networks", "costs", "scores", "ablation", "laws"] = Field(
        description="`errors` beside the paper's (tab:1d-pde-error and its like); `bands`: widths "
        "beside the reference's; `networks` and training used (tab:NN); `costs` of training and "
        "inference, measured; `scores` of whole laws beside all baselines; `ablation`: skill on "
        "validation sets, a row an experiment; `laws` of the input beside the floor.",
    )
    experiments: Annotated[list[Name], Field(min_length=1)]
    rows: Literal["sensors", "noise"] = Field(
        default="sensors", description="What the rows of a table of errors are."
    )
    metrics: Annotated[list[ScoreMetric], Field(min_length=1)] = Field(
        default=["crps", "gain_crps", "energy", "gain_energy", *GAINS_EXPECTED, *BANDS],
        description="Columns of a table of scores; `within_*` and `*_expected` are of evaluation "
        "`paper`, whose references hold samples, all others of the most precise one.",
    )

    @model_validator(mode="after")
    def _own_keys(self) -> Table:
        for key, layout in (("rows", "errors"), ("metrics", "scores")):
            if key in self.model_fields_set and self.layout != layout:
                raise ValueError(f"{key} belongs to layout {layout}, found {self.layout}")
        _distinct(self.experiments)
        return self


FIGURE_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "posterior": ({"experiment", "counts"}, {"method", "noise"}),
    "compare": (set(), {"distance", "errors", "spread"}),
    "calibration": ({"experiments"}, set()),
}
"""Layout of a figure -> the keys that it needs, and those that it may have."""


class Figure(Section):
    """A figure: which experiments it shows, and in which layout."""

    layout: Literal["posterior", "compare", "calibration"] = Field(
        description="`posterior`: reference and prediction of one test function (fig:1d-pde-plot "
        "and its like); `compare`: what an experiment varies (fig:1d-pde-compare); `calibration`: "
        "ranks and coverage, a column an experiment.",
    )
    experiment: Name | None = Field(default=None, description="posterior: what it shows.")
    method: Name = Field(default="uqsonet", description="posterior: its first trial is shown.")
    counts: Annotated[list[Count], Field(min_length=1)] | None = Field(
        default=None, description="posterior: numbers of sensors; one in two variables."
    )
    noise: Annotated[list[Noise], Field(min_length=1)] = Field(
        default=[0.0], description="posterior: noise levels, columns where there are several."
    )
    distance: Name | None = Field(
        default=None, description="compare, (a) W2 against d_z: an experiment with a list of dz."
    )
    errors: Name | None = Field(
        default=None, description="compare, (b) errors against N: an experiment with a list of N."
    )
    spread: Name | None = Field(
        default=None, description="compare, (c) mean std against m: an experiment."
    )
    experiments: Annotated[list[Name], Field(min_length=1)] | None = Field(
        default=None, description="calibration: a column each."
    )

    @model_validator(mode="after")
    def _own_keys(self) -> Figure:
        needed, allowed = FIGURE_KEYS[self.layout]
        given = self.model_fields_set - {"layout"}
        if lacking := sorted(needed - given):
            raise ValueError(f"layout {self.layout} needs {', '.join(lacking)}")
        if extra := sorted(given - needed - allowed):
            raise ValueError(f"layout {self.layout} knows no {', '.join(extra)}")
        if not self.shown:
            raise ValueError("name an experiment for at least one of distance, errors, spread")
        _distinct(self.shown)
        return self

    @property
    def shown(self) -> list[str]:
        """The experiments that it shows."""
        one = (self.experiment, self.distance, self.errors, self.spread)
        return [*(self.experiments or []), *(name for name in one if name is not None)]


PROJECT = (
    "benchmarks",
    "config",
    "docs",
    "explore",
    "license",
    "makefile",
    "profiles",
    "published",
    "snakefile",
    "src",
    "tests",
    "workflow",
)
"""Folders and files of the project that no run may write to, in small letters."""


class Config(Section):
    """The whole configuration."""

    results: str = Field(
        default="results",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*$",
        max_length=100,
        description="Folder of results; overlays use their own so that scales never mix.",
    )
    scale: Literal["full", "smoke"] = Field(
        default=FULL, description="`smoke` is printed in every caption."
    )
    seed: int = Field(default=2026, ge=0, lt=2**63, description="Root of the seed tree.")
    recipe: Name = Field(default="tuned", description="Recipe of experiments that name none.")
    jobs: Jobs = Jobs()
    problems: dict[Name, Problem]
    layouts: dict[LayoutName, Layout]
    experiments: dict[Name, Experiment] = Field(min_length=1)
    evaluations: dict[EvaluationName, Evaluation] = Field(
        description="`validation` accompanies training, `paper` repeats the paper's ten sets, "
        "`precise` adds intervals. All three must be there."
    )
    tables: dict[Label, Table] = Field(
        default={}, description="Tables by the paper's label without `tab:`."
    )
    figures: dict[Label, Figure] = Field(
        default={}, description="Figures by the paper's label without `fig:`."
    )
    recipes: dict[Name, dict[Name, dict[Name, AnyMethod]]] = Field(
        description="recipe -> problem -> method -> networks and training."
    )
    over_time: OverTime = OverTime()
    gaps: Gaps = Gaps()

    @field_validator("results")
    @classmethod
    def _no_folder_of_the_project(cls, results: str) -> str:
        if results.partition("/")[0].lower() in PROJECT:
            raise ValueError("is a part of the project itself, which results would overwrite")
        return results

    @field_validator("tables", "figures")
    @classmethod
    def _names_differ(cls, outputs: dict[str, Any]) -> dict[str, Any]:
        names = [name.lower() for name in outputs]
        if taken := [name for name in outputs if name.lower() in RESERVED]:
            raise ValueError(f"{taken[0]!r} is reserved; choose another name")
        if equal := [name for name in outputs if names.count(name.lower()) > 1]:
            raise ValueError(f"{equal} differ in capitals alone")
        return outputs

    @model_validator(mode="after")
    def _known_names(self) -> Config:
        if missing := {"validation", "paper", "precise"} - set(self.evaluations):
            raise ValueError(f"evaluations: missing {sorted(missing)}")
        if (found := sum(one.size for one in self.experiments.values())) > MOST_CASES:
            raise ValueError(f"experiments: {found} cases, at most {MOST_CASES}")
        for name, experiment in self.experiments.items():
            where = f"experiments.{name}"
            require_among(f"{where}.problem", [experiment.problem], self.problems, "problems")
            require_among(f"{where}.layout", experiment.layout, self.layouts, "layouts")
        shown = {f"tables.{n}": table.experiments for n, table in self.tables.items()}
        shown |= {f"figures.{n}": figure.shown for n, figure in self.figures.items()}
        for where, experiments in shown.items():
            require_among(where, experiments, self.experiments, "experiments")
        return self


def require_among(where: str, values: Iterable[str], allowed: Iterable[str], what: str) -> None:
    """Refuse names that are not among those allowed, with the one that may be meant.

    Raises
    ------
    ValueError
    """
    for value in values:
        if value not in allowed:
            raise ValueError(f"{where}: {value!r} is not in {what}{nearest(value, allowed)}")
