"""The whole configuration, checked across its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from uqsonet.errors import nearest
from uqsonet.operator.config import Name, Section
from uqsonet_study.config.evaluations import Evaluation, EvaluationConfig
from uqsonet_study.config.experiments import Case, ExperimentConfig, ProblemConfig, cases_of
from uqsonet_study.config.jobs import JobsConfig
from uqsonet_study.config.networks import MethodConfig
from uqsonet_study.config.outputs import (
    CalibrationFigure,
    ErrorTable,
    FigureConfig,
    LawTable,
    SpectraFigure,
    TableConfig,
)
from uqsonet_study.config.recipes import (
    AnyMethodConfig,
    EnsembleConfig,
    LawConfig,
    for_own_data,
    has_law,
)
from uqsonet_study.config.section import OutputName

FULL, SMOKE = "full", "smoke"
MOST_CASES = 5000  # of all experiments; each case is planned at every start
KEPT = (
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
        description="Folder of results, none of the project's own; overlays use their own so that "
        "scales never mix.",
    )
    scale: Annotated[str, Field(pattern=f"^({FULL}|{SMOKE})$")] = Field(
        default=FULL, description="`full` or `smoke`; the latter is printed in every caption."
    )
    seed: int = Field(default=2026, ge=0, lt=2**63, description="Root of the seed tree.")
    recipe: Name = Field(default="tuned", description="Recipe of experiments that name none.")
    select: list[OutputName] | None = Field(
        default=None,
        min_length=1,
        description="Experiments to run, or tables and figures whose experiments are; null: all.",
    )
    problems: dict[Name, ProblemConfig]
    experiments: dict[Name, ExperimentConfig] = Field(min_length=1)
    tables: dict[OutputName, TableConfig] = Field(
        default={}, description="Tables by the paper's label without `tab:`."
    )
    figures: dict[OutputName, FigureConfig] = Field(
        default={}, description="Figures by the paper's label without `fig:`."
    )
    recipes: dict[Name, dict[Name, dict[Name, AnyMethodConfig]]] = Field(
        description="recipe -> problem -> method -> networks and training."
    )
    evaluations: dict[Evaluation, EvaluationConfig] = Field(
        description="`validation` judges training, `paper` repeats its ten sets, `precise` adds "
        "intervals. All three must be there."
    )
    jobs: JobsConfig = JobsConfig()

    @field_validator("results")
    @classmethod
    def _no_folder_of_the_project(cls, results: str) -> str:
        if results.partition("/")[0].lower() in KEPT:
            raise ValueError("is a part of the project itself, which results would overwrite")
        return results

    @cached_property
    def cases(self) -> dict[str, Case]:
        """All cases of all experiments, in the order of declaration, selected or not."""
        found: dict[str, Case] = {}
        for name, experiment in self.experiments.items():
            split = experiment.one_model_per_count and any(
                self.trained(name, method).network.per_sensors for method in experiment.methods
            )
            pairs = self.problems[experiment.problem].training
            found |= cases_of(name, experiment, pairs, split)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Config:
        """Return a copy with changed fields; its cases are its own."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("cases", None)  # type: ignore[attr-defined]
        return copied

    @property
    def selected(self) -> list[str]:
        """Names of the experiments to run: all, or those that are selected or shown in what is."""
        if self.select is None:
            return list(self.experiments)
        outputs = [*self.tables.items(), *self.figures.items()]
        shown = (e for name, output in outputs if name in self.select for e in output.experiments)
        wanted = {*self.select, *shown}
        return [name for name in self.experiments if name in wanted]

    def cases_of(self, experiments: Sequence[str]) -> list[Case]:
        """Return the cases of some experiments."""
        return [case for case in self.cases.values() if case.experiment in experiments]

    def case(
        self, experiment: str, *, noise_std: float | None = None, sensors: int | None = None
    ) -> Case:
        """Return the one case of an experiment with a noise level, and a count among its counts."""
        found = [
            case
            for case in self.cases_of([experiment])
            if sensors in (None, *case.counts) and noise_std in (None, case.noise_std)
        ]
        if len(found) != 1:
            given = f"noise_std {noise_std}, sensors {sensors}"
            raise ValueError(f"experiments.{experiment} has {len(found)} cases with {given}")
        return found[0]

    def evaluation_of(self, case: str, label: Evaluation) -> EvaluationConfig:
        """Return an evaluation with what an experiment changes of it.

        These are its own numbers of sets and samples. Own data have no reference posterior at all.
        """
        experiment = self.cases[case].experiment
        return self._evaluation(self.experiments[experiment], label)

    def _evaluation(self, experiment: ExperimentConfig, label: Evaluation) -> EvaluationConfig:
        keys, own = ["sets", "model_samples"], dict[str, Any]()
        if self.problems[experiment.problem].data is None:
            keys += ["reference_samples", "estimator"]
        else:
            own = {"estimator": "none", "wasserstein": False}
        for key in keys:
            if label in getattr(experiment, key):
                own[key] = getattr(experiment, key)[label]
        if own.get("estimator", "monte_carlo") != "monte_carlo":
            own["wasserstein"] = False
        return self.evaluations[label].model_copy(update=own)

    @property
    def own_data(self) -> dict[str, ProblemConfig]:
        """The selected problems whose pairs come from a user's file."""
        names = dict.fromkeys(self.experiments[e].problem for e in self.selected)
        return {n: self.problems[n] for n in names if self.problems[n].data is not None}

    def has_own_data(self, experiment: str) -> bool:
        """Return whether the pairs of an experiment come from a user's file."""
        return self.problems[self.experiments[experiment].problem].data is not None

    def has_reference(self, experiment: str) -> bool:
        """Return whether posteriors of an experiment are compared with reference posteriors."""
        used = (
            self.evaluation_of(c.name, e)
            for c in self.cases_of([experiment])
            for e in c.evaluations
        )
        return all(found.estimator != "none" for found in used)

    def recipe_of(self, experiment: str) -> str:
        """Return the name of the recipe that an experiment uses."""
        return self.experiments[experiment].recipe or self.recipe

    def _entry(self, experiment: str, method: str) -> AnyMethodConfig:
        recipe, problem = self.recipe_of(experiment), self.experiments[experiment].problem
        found = self.recipes.get(recipe, {}).get(problem, {}).get(method)
        own = self.has_own_data(experiment)
        if found is None and own and method == "uqsonet":
            found = for_own_data(self.problems[problem].training)
        if own and isinstance(found, MethodConfig) and has_law(found.network):
            # Nobody knows a user's operator exactly: what is left over belongs to the band.
            network = found.network.model_copy(update={"held_out_residuals": True})
            found = found.model_copy(update={"network": network})
        if found is None:
            there = self.recipes.get(recipe, {}).get(problem, {})
            hint = (method, there) if recipe in self.recipes else (recipe, self.recipes)
            raise ValueError(
                f"experiments.{experiment}: recipes.{recipe}.{problem} has no entry for "
                f"{method!r}{nearest(*hint)}"
            )
        return found

    def ensemble_of(self, experiment: str, method: str) -> EnsembleConfig | None:
        """Return the settings of an ensemble, None for any other method."""
        found = self._entry(experiment, method)
        return found if isinstance(found, EnsembleConfig) else None

    def law_of(self, experiment: str, method: str) -> LawConfig | None:
        """Return the settings of a law with another method's operator, None for other methods."""
        found = self._entry(experiment, method)
        return found if isinstance(found, LawConfig) else None

    def base(self, experiment: str, method: str) -> str:
        """Return the method that is trained: an ensemble's members, a law's operator, or itself."""
        found = self._entry(experiment, method)
        if isinstance(found, EnsembleConfig):
            return found.ensemble_of
        return found.law_of if isinstance(found, LawConfig) else method

    def trained(self, experiment: str, method: str) -> MethodConfig:
        """Return networks and training of a method as its recipe says, for no case yet."""
        found = self._entry(experiment, method)
        if isinstance(found, MethodConfig):
            return found
        name = self.base(experiment, method)
        base = self._entry(experiment, name)
        if not isinstance(base, MethodConfig):
            what, other = (
                "an ensemble" if isinstance(one, EnsembleConfig) else "a law"
                for one in (found, base)
            )
            raise ValueError(f"{method!r} is {what} of {name!r}, itself {other}")
        if isinstance(found, LawConfig) and not has_law(base.network):
            raise ValueError(
                f"experiments.{experiment}: {method!r} is a law of {name!r}, whose architecture is "
                f"{base.network.architecture}; laws are for karhunen_loeve"
            )
        return base

    def method_of(self, case: str, method: str) -> MethodConfig:
        """Return networks and training of a method in a case; of its members for an ensemble."""
        chosen = self.cases[case]
        sweep = self.experiments[chosen.experiment].sweep
        swept = sweep is not None and sweep.training is not None
        found = self.trained(chosen.experiment, method)
        return found.of_size(chosen.training, chosen.latent_dim, swept)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        missing = {"validation", "paper", "precise"} - set(self.evaluations)
        if missing:
            raise ValueError(f"evaluations: missing {sorted(missing)}")
        if (found := sum(e.case_count for e in self.experiments.values())) > MOST_CASES:
            raise ValueError(f"experiments: {found} cases together, at most {MOST_CASES}")
        known = f"the experiments {', '.join(self.experiments)}"
        _require_among(
            "select", self.select or (), {*self.experiments, *self.tables, *self.figures}, known
        )
        for name, experiment in self.experiments.items():
            self._check_experiment(f"experiments.{name}", experiment)
        for case in self.cases.values():
            for method in case.methods:
                self._check_method(case, method)
        for kind, outputs in (("tables", self.tables), ("figures", self.figures)):
            for name, output in outputs.items():
                _require_among(f"{kind}.{name}", output.experiments, self.experiments, known)
                self._check_output(f"{kind}.{name}", output)
        return self

    def _check_experiment(self, where: str, experiment: ExperimentConfig) -> None:
        data = self.problems.get(experiment.problem)
        if data is None:
            hint = nearest(experiment.problem, self.problems)
            raise ValueError(f"{where}.problem: {experiment.problem!r} is not in problems{hint}")
        sizes = (experiment.sweep and experiment.sweep.training) or [experiment.training or 2]
        if max(sizes) > data.training:
            raise ValueError(
                f"{where}: training = {max(sizes)} exceeds the {data.training} training pairs of "
                f"problems.{experiment.problem}"
            )
        for label in self.evaluations:
            split = "validation" if label == "validation" else "test"
            used, there = self._evaluation(experiment, label), getattr(data, split)
            if (sets := used.sets) > there:
                own = f"{where}.sets.{label}" if label in experiment.sets else None
                raise ValueError(
                    f"{own or f'evaluations.{label}.sets'} = {sets} exceeds the {there} {split} "
                    f"functions of problems.{experiment.problem}"
                )

    def _check_method(self, case: Case, method: str) -> None:
        ensemble = self.ensemble_of(case.experiment, method)
        if ensemble is not None and ensemble.ensemble_of in case.methods:
            raise ValueError(
                f"experiments.{case.experiment}.methods: {method!r} trains the members "
                f"{ensemble.ensemble_of!r} itself; compare the two in separate experiments"
            )
        found = self.method_of(case.name, method)
        settings = found.training
        where = f"recipes.{self.recipe_of(case.experiment)}.{case.problem}.{method}.training"
        if settings.batch_size > case.training:
            raise ValueError(
                f"{where}.batch_size = {settings.batch_size} exceeds the {case.training} training "
                f"pairs of {case.name}"
            )
        if settings.protocol != "fixed_batches":
            return
        batches = case.training // settings.batch_size
        if batches < len(case.sensors.counts):
            raise ValueError(
                f"{case.name}: fixed_batches cuts {case.training} pairs into {batches} batches, "
                f"fewer than the {len(case.sensors.counts)} sensor counts; lower batch_size"
            )

    def _check_output(self, where: str, output: TableConfig | FigureConfig) -> None:
        names = output.experiments
        without = [e for e in names if not self.has_reference(e)]
        if without and output.by_reference:
            raise ValueError(
                f"{where}: layout {output.layout} compares with reference posteriors, which "
                f"{without} have not; layouts scores and posterior compare with true functions"
            )
        several = [e for e in names if len(self.cases_of([e])) > 1]
        if several and output.one_case:
            raise ValueError(f"{where}: {several} have several cases, one is shown")
        for name in names:
            one = self.experiments[name]
            known = {
                "methods": one.methods,
                "sensors.counts": one.sensors.counts,
                "noise_std": one.noise_levels,
            }
            for key, own in output.among.items():
                found = _listed(getattr(output, own))
                _require_among(where, found, known[key], f"experiments.{name}.{key}")
        for own, key in output.swept.items():
            for name in _listed(getattr(output, own)):
                sweep = self.experiments[name].sweep
                if sweep is None or getattr(sweep, key) is None:
                    raise ValueError(f"{where}: experiments.{name} has no sweep.{key}")
        problems = [self.experiments[e].problem for e in names]
        if isinstance(output, ErrorTable):
            if len(set(problems)) > 1:
                raise ValueError(
                    f"{where}: experiments of several problems, {sorted(set(problems))}"
                )
            swept = [e for e in names if self.experiments[e].sweep is not None]
            if swept:
                raise ValueError(f"{where}: {swept} are sweeps, which no table of errors can show")
        elif isinstance(output, CalibrationFigure | SpectraFigure):
            for case in self.cases_of(names):
                label = case.evaluations[0]
                if "uqsonet" not in case.methods or not self.evaluations[label].wasserstein:
                    raise ValueError(
                        f"{where}: {case.experiment} needs the method uqsonet, and samples in its "
                        f"references: evaluations.{label}.wasserstein"
                    )
        elif isinstance(output, LawTable):
            if len(set(problems)) < len(problems):
                raise ValueError(f"{where}: a problem has one panel, found {problems}")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _require_among(where: str, values: Iterable[Any], allowed: Collection[Any], what: str) -> None:
    """Refuse values that are not among those allowed, with the one that may be meant."""
    extra = [value for value in values if value not in allowed]
    if extra:
        hint = nearest(extra[0], allowed) if isinstance(extra[0], str) else ""
        raise ValueError(f"{where}: {extra} not among {what}{hint}")
