"""Experiments as rows of tables: cases, their answers and trainings, and the files of each.

An experiment with lists of layouts, noise levels, pairs N or latent dimensions stands for a case
for each combination. A file is named by all that it depends on, so cases that need the same
layouts, references, trainings or scores share them:

    data/{problem}.h5                                            pairs of functions
    sensors/{problem}/{layout}.h5                                places of sensors
    reference/{problem}/{given}/{evaluation}.h5                  given = {layout}-noise{noise}
    train/{problem}/{recipe}/{model}/trial{trial}.safetensors    model = {method}-N{N}, -dz{dz} if
                                                                 not the recipe's, and -{given} if
                                                                 the network sees sensors
    law/{problem}/{recipe}/{law}/trial{trial}.safetensors        law = {method}-N{N}-{given}
    scores/{problem}/{given}/{recipe}/{answer}.{evaluation}.csv  answer = {method}-N{N}, -dz{dz}
    summary/{experiment}.csv
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import ConfigError, nearest
from uqsonet_study import sources
from uqsonet_study.config import (
    AnyMethod,
    Config,
    Ensemble,
    Evaluation,
    EvaluationName,
    LawOf,
    Method,
    has_law,
)

UNTRAINED, BASELINES_OF = "untrained", "baselines"
"""Recipe and method of the scores of all baselines, which are fitted where they are scored."""

Row = Any
"""A row of `cases`, `answers` or `models`, with its columns as attributes."""


class Study:
    """A configuration with its cases.

    Parameters
    ----------
    root : Path
        The folder that holds the folder of results.

    Attributes
    ----------
    cases : DataFrame
        A row for each case, by name: name, experiment, problem, recipe, layout, counts, noise, N,
        dz, methods, evaluations, trials, cut_lines, given.
    answers : DataFrame
        A row for each case, evaluation and method: the columns of the case, and method,
        evaluation, answer, model, law, weights, ensemble, modules (whose source its numbers depend
        on), scores (the file) and fault (why it cannot be computed, if so).
    models : DataFrame
        A row for each training, by problem, recipe and model.
    """

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.config, self.root = config, root
        rows = [row for name in config.experiments for row in _cases(config, name)]
        self.cases = pd.DataFrame(rows, dtype=object).set_index("name", drop=False)
        self.answers = pd.DataFrame(self._answers(), dtype=object)

    def of(self, experiments: Iterable[str]) -> list[Row]:
        """Return the cases of experiments, in the order of these."""
        found = self.cases
        return [row for e in experiments for row in rows_of(found[found.experiment == e])]

    def first(self, problem: str) -> Row:
        """Return the first case of a problem, whose validation sets accompany its trainings."""
        return rows_of(self.cases[self.cases.problem == problem])[0]

    def evaluation(self, problem: str, label: EvaluationName) -> Evaluation:
        """Return an evaluation with what a problem changes of it."""
        override = self.config.problems[problem].evaluations.get(label)
        own = {} if override is None else override.model_dump(exclude_none=True)
        if own.get("estimator", "monte_carlo") != "monte_carlo":
            own["wasserstein"] = False
        return self.config.evaluations[label].model_copy(update=own)

    def entry(self, case: Row, method: str) -> AnyMethod:
        """Return what a recipe says of a method.

        Raises
        ------
        ConfigError
            If it says nothing.
        """
        recipe = self.config.recipes.get(case.recipe, {}).get(case.problem, {})
        if method not in recipe:
            known = (method, recipe) if recipe else (case.recipe, self.config.recipes)
            raise ConfigError(
                f"experiments.{case.experiment}: recipes.{case.recipe}.{case.problem} has no entry "
                f"for {method!r}{nearest(*known)}"
            )
        return recipe[method]

    def trained(self, case: Row, method: str) -> str:
        """Return the method that is trained: an ensemble's members, a law's operator, or itself."""
        return self.entry(case, method).training_method or method

    def settings(self, case: Row, method: str) -> Method:
        """Return networks and training of a method in a case; of its members for an ensemble."""
        trained = self.trained(case, method)
        entry = self.entry(case, trained)
        if not isinstance(entry, Method):
            raise ConfigError(
                f"recipes.{case.recipe}.{case.problem}.{method}: is of {trained!r}, which is not "
                "trained itself"
            )
        return entry.of_size(case.N, case.dz)

    def members(self, case: Row, method: str) -> int | None:
        """Return the number of members of an ensemble, None for any other method."""
        entry = self.entry(case, method)
        return entry.members if isinstance(entry, Ensemble) else None

    def law(self, case: Row, method: str) -> LawOf | None:
        """Return the settings of a law, None for any other method."""
        entry = self.entry(case, method)
        return entry if isinstance(entry, LawOf) else None

    def answer(self, case: Row, method: str) -> str:
        """Return the name of a method's answers: method, pairs, d_z if not the recipe's."""
        own = self.entry(case, self.trained(case, method))
        varied = self.settings(case, method).network != own.network  # type: ignore[union-attr]
        return f"{method}-N{case.N}" + f"-dz{case.dz}" * varied

    def model(self, case: Row, method: str) -> str:
        """Return the name of the training behind a method."""
        name = self.answer(case, self.trained(case, method))
        seen = self.settings(case, method).network.per_sensors
        return name + f"-{case.given}" * seen

    def law_name(self, case: Row, method: str) -> str:
        """Return the name of a law of a method: it is fitted for sensors and their noise."""
        return f"{self.answer(case, method)}-{case.given}"

    def weights(self, case: Row, method: str, trials: int) -> list[str]:
        """Return the files that answer for a method, by trial."""
        folder = f"train/{case.problem}/{case.recipe}/{self.model(case, method)}"
        if self.law(case, method) is not None:
            folder = f"law/{case.problem}/{case.recipe}/{self.law_name(case, method)}"
        size = self.members(case, method) or trials
        return [f"{self.config.results}/{folder}/trial{t}.safetensors" for t in range(size)]

    def logs(self, case: Row, method: str) -> list[str]:
        """Return the logs of the trainings behind a method in a case."""
        found = self.weights(case, self.trained(case, method), case.trials)
        return [path.replace(".safetensors", ".csv") for path in found]

    def _answers(self) -> Iterator[dict[str, Any]]:
        for case in rows_of(self.cases, index=False):
            for label, method in product(case.evaluations, (BASELINES_OF, *case.methods)):
                row = case._asdict() | {"method": method, "evaluation": label, "answer": method}
                row |= {"model": None, "law": None, "weights": [], "fault": ""}
                row |= {"ensemble": False, "modules": []}
                try:
                    row |= self._untrained(case) if method == BASELINES_OF else self._learned(row)
                    self._require_sizes(case, label)
                except ConfigError as error:
                    row["fault"] = str(error)
                folder = f"{self.config.results}/scores/{case.problem}/{case.given}"
                yield row | {"scores": f"{folder}/{row['recipe']}/{row['answer']}.{label}.csv"}

    def _untrained(self, case: Row) -> dict[str, Any]:
        return {"recipe": UNTRAINED, "answer": f"{BASELINES_OF}-N{case.N}"}

    def _learned(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return what a trained method's answers are made from; refuse what cannot be trained."""
        case, method = self.cases.loc[row["name"]], row["method"]
        network = self.settings(case, method).network
        law = self.law(case, method)
        if law is not None and not has_law(network):
            raise ConfigError(
                f"experiments.{case.experiment}: {method!r} is a law for the architecture "
                f"{network.architecture}; laws are for karhunen_loeve"
            )
        self._require_batches(case, method)
        trained = self.trained(case, method)
        return {
            "answer": self.answer(case, method),
            "model": self.model(case, method),
            "law": None if law is None else self.law_name(case, method),
            "weights": self.weights(case, method, case.trials),
            "ensemble": self.members(case, method) is not None,
            "modules": [
                sources.model_module(trained, network.architecture),
                *sources.law_modules(law and law.law),
            ],
        }

    def _require_batches(self, case: Row, method: str) -> None:
        training = self.settings(case, method).training
        batches = case.N // training.batch_size
        if training.protocol == "fixed_batches" and batches < len(case.counts):
            raise ConfigError(
                f"experiments.{case.experiment}: fixed_batches cuts {case.N} pairs into {batches} "
                f"batches, fewer than the {len(case.counts)} numbers of sensors; lower batch_size"
            )

    def _require_sizes(self, case: Row, label: EvaluationName) -> None:
        problem = self.config.problems[case.problem]
        if case.N > problem.training:
            raise ConfigError(
                f"experiments.{case.experiment}: N = {case.N} exceeds the {problem.training} "
                f"training pairs of problems.{case.problem}"
            )
        there: dict[EvaluationName, int] = {"validation": problem.validation, label: problem.test}
        for used, functions in there.items():
            if (sets := self.evaluation(case.problem, used).sets) > functions:
                raise ConfigError(
                    f"evaluations.{used}.sets = {sets} exceeds the {functions} functions of "
                    f"problems.{case.problem}"
                )

    @cached_property
    def models(self) -> pd.DataFrame:
        """The trainings, by problem, recipe and model.

        The noise and layout of a network that sees no sensors are those of its problem's first
        case, on whose validation sets its skill is measured.
        """
        rows = []
        for case in rows_of(self.answers[self.answers.model.notna()]):
            settings, method = self.settings(case, case.method), self.trained(case, case.method)
            sees = case if settings.network.per_sensors else self.first(case.problem)
            rows.append(
                {
                    "problem": case.problem,
                    "recipe": case.recipe,
                    "model": case.model,
                    "method": method,
                    "module": sources.model_module(method, settings.network.architecture),
                    "N": case.N,
                    "layout": sees.layout,
                    "noise": sees.noise,
                    "given": sees.given,
                    "settings": settings,
                }
            )
        keys = ["problem", "recipe", "model"]
        return pd.DataFrame(rows, dtype=object).drop_duplicates(keys).set_index(keys, drop=False)

    @cached_property
    def laws(self) -> pd.DataFrame:
        """The answers with a law of their own, by problem, recipe and name of the law."""
        found: Any = self.answers[self.answers.law.notna()]
        keys = ["problem", "recipe", "law"]
        return found.drop_duplicates(keys).set_index(keys, drop=False)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The answers by file of scores, each with the most trials that a case wants of it."""
        most = self.answers.assign(size=self.answers.weights.map(len))
        most = most.sort_values("size", ascending=False, kind="stable")
        return most.drop_duplicates("scores").set_index("scores", drop=False)

    def paths(self, files: Iterable[str]) -> list[Path]:
        """Return files of the results where they lie."""
        return [self.root / file for file in files]

    def score_files(self, experiments: Iterable[str]) -> list[str]:
        """Return the files of experiments' scores.

        Raises
        ------
        ConfigError
            If one of them cannot be computed.
        """
        rows = [_usable(row) for e in experiments for row in self.answers_of(e)]
        return list(dict.fromkeys(row.scores for row in rows))

    def scored(self, problem: str, given: str, recipe: str, answer: str, label: str) -> Row:
        """Return the row of a file of scores; `ConfigError` if no experiment needs it."""
        folder = f"{self.config.results}/scores/{problem}/{given}/{recipe}"
        return _usable(_needed(self.scores, f"{folder}/{answer}.{label}.csv"))

    def training(self, problem: str, recipe: str, model: str) -> Row:
        """Return the row of a training; `ConfigError` if no experiment needs it."""
        return _needed(self.models, (problem, recipe, model))

    def fitted_law(self, problem: str, recipe: str, law: str) -> Row:
        """Return the row of a law of the input; `ConfigError` if no experiment needs it."""
        return _usable(_needed(self.laws, (problem, recipe, law)))

    def summaries(self, experiments: Iterable[str]) -> list[str]:
        """Return the summaries of experiments."""
        return [f"{self.config.results}/summary/{e}.csv" for e in experiments]

    def reference(self, problem: str, given: str, label: EvaluationName) -> str:
        """Return the file of reference posteriors for some sensors and noise."""
        return f"{self.config.results}/reference/{problem}/{given}/{label}.h5"

    def first_weights(self, experiment: str) -> list[str]:
        """Return the first trial of each method in the first case of an experiment."""
        case = self.of([experiment])[0]
        return [self.weights(case, method, 1)[0] for method in case.methods]

    def sizes(self, problem: str) -> dict[str, int]:
        """Return how many functions each split of a problem has, and how many a shard."""
        found = self.config.problems[problem]
        return found.model_dump(include={"training", "validation", "test", "shard"})

    def answers_of(self, experiment: str) -> list[Row]:
        """Return the answers of an experiment."""
        return rows_of(self.answers[self.answers.experiment == experiment])

    def part(
        self, experiments: Iterable[str], *, tables: Iterable[str] = (), figures: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the part of the configuration that concerns experiments, tables and figures.

        It is a job's parameter: what is changed elsewhere does not run the job again.
        """
        left_out = {"jobs", "over_time", "gaps"}
        whole = self.config.model_dump(mode="json", exclude_unset=True, exclude=left_out)
        cases = self.of(dict.fromkeys(experiments))
        wanted = {
            "problems": {case.problem for case in cases},
            "layouts": {case.layout for case in cases},
            "experiments": {case.experiment for case in cases},
            "recipes": {case.recipe for case in cases},
            "tables": {*tables},
            "figures": {*figures},
        }
        for key, names in wanted.items():
            whole[key] = {name: v for name, v in whole.get(key, {}).items() if name in names}
        for recipe in whole["recipes"].values():
            for problem in {*recipe} - wanted["problems"]:
                del recipe[problem]
        return whole


def rows_of(frame: Any, index: bool = True) -> list[Row]:
    """Return the rows of a table, with columns as attributes."""
    return list(frame.itertuples(index=index))


def row_of(frame: pd.DataFrame, key: object) -> Row:
    """Return the row of a table by its index, with columns as attributes."""
    return rows_of(frame.iloc[[frame.index.get_loc(key)]])[0]


def _needed(frame: pd.DataFrame, key: Any) -> Row:
    if key not in frame.index:
        name = key if isinstance(key, str) else "/".join(key)
        raise ConfigError(f"no experiment of the configuration needs {name}")
    return row_of(frame, key)


def _usable(row: Row) -> Row:
    if row.fault:
        raise ConfigError(row.fault)
    return row


def _cases(config: Config, name: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of an experiment: a value of each of its lists."""
    experiment = config.experiments[name]
    problem = config.problems[experiment.problem]
    lists = {
        "noise": experiment.noise,
        "N": experiment.N or [problem.training],
        "dz": experiment.dz or [None],
        "layout": experiment.layout,
    }
    words = {"noise": "noise{:g}", "N": "n{}", "dz": "dz{}", "layout": "{}"}
    for values in product(*lists.values()):
        case = dict(zip(lists, values, strict=True))
        varied = [words[key].format(case[key]) for key in lists if len(lists[key]) > 1]
        yield case | {
            "name": "-".join([name, *varied]),
            "experiment": name,
            "problem": experiment.problem,
            "recipe": experiment.recipe or config.recipe,
            "counts": config.layouts[case["layout"]].counts,
            "methods": experiment.methods,
            "evaluations": experiment.evaluations,
            "trials": experiment.trials or problem.trials,
            "cut_lines": problem.cut_lines,
            "given": f"{case['layout']}-noise{case['noise']:g}",
        }
