"""Which files there are, what their jobs are told, and what tables, figures and the page need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from uqsonet.errors import ConfigError
from uqsonet_study.config import Case, Config, Evaluation
from uqsonet_study.pipeline.edits import law_modules, model_module, require_problem
from uqsonet_study.pipeline.paths import Paths

UNTRAINED = "baselines"
"""What is scored without being trained: all baselines and the reference itself."""


class Told(dict[str, Any]):
    """What a job is told, as Snakemake compares it and names it in its reasons."""

    def __repr__(self) -> str:
        return " ".join(f"{k}={_short(json.dumps(v))}" for k, v in _flattened(self, "", 3))


def _flattened(values: dict[str, Any], above: str, levels: int) -> Iterator[tuple[str, Any]]:
    """Yield keys with those that they stand in, ``config.training.iterations``, and values."""
    for key, value in sorted(values.items()):
        if isinstance(value, dict) and value and levels > 1:
            yield from _flattened(value, f"{above}{key}.", levels - 1)
        else:
            yield above + key, value


def _short(text: str) -> str:
    return text if len(text) <= 30 else hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def file_digest(path: str, where: str) -> str:
    """Return the SHA-256 of a user's file.

    Raises
    ------
    ConfigError
        If it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{where}: {path}: {error.strerror or error} (sought from {Path.cwd().name}/)"
        ) from None


class Plan:
    """Everything that the rules ask for.

    Attributes
    ----------
    made : dict of str to (Case, dict)
        File of layouts or references, or folder of trainings or laws -> the case that it is made
        for, and what defines it.

    Raises
    ------
    ConfigError
        If no file defines a problem or a method that the configuration names, or if two cases
        disagree about a file.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.paths = config, Paths(config)
        self.made: dict[str, tuple[Case, dict[str, Any]]] = {}
        for name, experiment in config.experiments.items():
            require_problem(experiment.problem, config.has_own_data(name))
        # Of cases that share a training, one with the least noise and then with the most sensor
        # counts says on which validation sets it is judged, whatever the order of experiments.
        for case in sorted(
            config.cases.values(),
            key=lambda c: (c.noise_std, -len(c.sensors.counts), self.paths.layouts(c), c.name),
        ):
            self._add(case)

    def _add(self, case: Case) -> None:
        config, paths, noise = self.config, self.paths, {"noise_std": case.noise_std}
        self._once(paths.layouts(case), case, case.sensors.model_dump(mode="json"))
        labels: tuple[Evaluation, ...] = ("validation", *case.evaluations)
        for label in labels:
            used = config.evaluation_of(case.name, label)
            told = {"config": used.model_dump(mode="json", exclude={"model_samples"})} | noise
            self._once(paths.reference(case, label), case, told)
        for method in case.methods:
            self.model(case, method)
            pairs = {"training": case.training}
            told = {"config": config.method_of(case.name, method).model_dump(mode="json")} | pairs
            told |= noise if paths.reads_sensors(case, paths.base(case, method)) else {}
            self._once(paths.training(case, method), case, told)
            if (law := config.law_of(case.experiment, method)) is not None:
                told = law.model_dump(mode="json", exclude={"law_of"}) | noise | pairs
                self._once(paths.law(case, method), case, told)

    def _once(self, path: str, case: Case, told: dict[str, Any]) -> None:
        """Note what a file is made from; refuse it if an earlier case wants it made otherwise."""
        first, other = self.made.setdefault(path, (case, told))
        if other != told:
            keys = ", ".join(sorted(k for k in {*told, *other} if told.get(k) != other.get(k)))
            raise ConfigError(
                f"{path}: {first.name} and {case.name} need it with another {keys}, which the "
                "name of the file does not tell apart; round it to six digits or change the "
                "recipe's name"
            )

    def workers(self, case: Case) -> int:
        """Return how many cores may share a reference: the most that experiments allow with it."""
        there = {self.paths.reference(case, e) for e in case.evaluations}
        allowed = (
            self.config.experiments[other.experiment].reference_workers
            for other in self.config.cases.values()
            if there & {self.paths.reference(other, e) for e in other.evaluations}
        )
        return max(allowed)

    def model(self, case: Case, method: str) -> str:
        """Return the module that defines the model of a method."""
        network = self.config.method_of(case.name, method).network
        return model_module(self.paths.base(case, method), network.architecture)

    def models(self, case: Case, method: str) -> list[str]:
        """Return the modules that a method's answers come from: its model, and its law.

        No import says them: both are found by name. What is not trained has none.
        """
        if method == UNTRAINED:
            return []
        law = self.config.law_of(case.experiment, method)
        return [self.model(case, method), *law_modules(law and law.law)]

    def own_files(self, problem: str) -> dict[str, str]:
        """Return path -> SHA-256 of a user's files, by which own data are known."""
        data = self.config.problems[problem].data
        where = f"problems.{problem}.data"
        return {} if data is None else {f: file_digest(f, where) for f in data.files}

    def scoring(self, case: Case, method: str, evaluation: Evaluation) -> dict[str, Any]:
        """Return what scores of a method, or of all that is not trained, are made from."""
        found: dict[str, Any] = {
            "case": case.name,
            "problem": case.problem,
            "method": method,
            "evaluation": evaluation,
            "config": self.config.evaluation_of(case.name, evaluation).model_dump(mode="json"),
            "noise_std": case.noise_std,
            "training": case.training,
            "cut_lines": case.cut_lines,
            "seed": self.config.seed,
            "ensemble": False,
            "functions": self.paths.data(case.problem),
            "reference": self.paths.reference(case, evaluation),
            "weights": [],
        }
        if method != UNTRAINED:
            found["ensemble"] = self.config.ensemble_of(case.experiment, method) is not None
            found["trained"] = self.paths.base(case, method)
            found["weights"] = self.paths.weights(case, method)
        return found

    def tables(self) -> dict[str, list[str]]:
        """Return the tables of this run, each with those of its experiments that are selected.

        The paper's come first, whatever the order of configuration files.
        """
        found = self._outputs(self.config.tables, some=True)
        others = ("ablation", "scores", "laws")
        first = [name for name in found if self.config.tables[name].layout not in others]
        return {name: found[name] for name in dict.fromkeys([*first, *found])}

    def figures(self) -> dict[str, list[str]]:
        """Return the figures of this run: those whose experiments are all selected."""
        return self._outputs(self.config.figures, some=False)

    def _outputs(self, outputs: dict[str, Any], some: bool) -> dict[str, list[str]]:
        selected, found = set(self.config.selected), {}
        for name, output in outputs.items():
            kept = [e for e in output.experiments if e in selected]
            if (kept and some) or len(kept) == len(output.experiments):
                found[name] = kept
        return found

    def left_alone(self) -> str:
        """Return what a selection writes over and what it leaves as it is."""
        pairs = (self.config.tables, self.tables()), (self.config.figures, self.figures())
        left = [", ".join(sorted(set(all_) - set(made))) or "none" for all_, made in pairs]
        folder = self.config.results
        return (
            f"select: {', '.join(self.config.selected)} alone. {folder}/tables/all.tex, "
            f"{folder}/scorecard.csv and {folder}/report.html will show nothing else; give "
            f"`results` another folder to keep those that are there. Left as they are: tables "
            f"{left[0]}; figures {left[1]}"
        )

    def summarised(self) -> list[str]:
        """Return the selected experiments whose test scores are wanted.

        Tables of ablations read training logs. An experiment of no other table needs no scores.
        """
        ablations, others = set[str](), set[str]()
        for name, experiments in self.tables().items():
            ablation = self.config.tables[name].layout == "ablation"
            (ablations if ablation else others).update(experiments)
        for experiments in self.figures().values():
            others.update(experiments)
        return [e for e in self.config.selected if e in others or e not in ablations]

    @cached_property
    def _scorers(self) -> dict[tuple[str, str, Evaluation], Case]:
        """Return case, method and evaluation -> the case that scores are made under.

        It is the first by name of all cases for which they would be the same: baselines do not
        depend on d_z, and experiments share trainings.
        """
        first, found = dict[str, Case](), dict[tuple[str, str, Evaluation], Case]()
        for name, case in sorted(self.config.cases.items()):
            for label, method in product(case.evaluations, (UNTRAINED, *case.methods)):
                told = self.scoring(case, method, label) | {"case": ""}
                found[name, method, label] = first.setdefault(repr(told), case)
        return found

    def scored(self) -> list[tuple[str, str, Evaluation]]:
        """Return case, method and evaluation of all scores that are summarised or compared."""
        cases = self.config.cases_of([*self.summarised(), *self.of_laws()])
        every: Iterator[tuple[str, str, Evaluation]] = (
            (self._scorers[case.name, method, label].name, method, label)
            for case in cases
            for label, method in product(case.evaluations, (UNTRAINED, *case.methods))
        )
        return list(dict.fromkeys(every))

    def score_files(self, experiments: list[str]) -> dict[str, list[str]]:
        """Return case -> score files, for the cases of experiments."""
        return {
            case.name: [
                self.paths.scores(self._scorers[case.name, method, label], method, label)
                for label, method in product(case.evaluations, (UNTRAINED, *case.methods))
            ]
            for case in self.config.cases_of(experiments)
        }

    def table_files(self, name: str) -> dict[str, Any]:
        """Return the files that a table is made from, by kind; logs by case and method."""
        experiments, results = self.tables()[name], self.config.results
        layout = self.config.tables[name].layout
        if layout == "networks":
            return {}
        if layout == "laws":
            return {"scores": [f"{results}/scores.csv"]}
        if layout not in ("costs", "ablation"):
            return {"summaries": [f"{results}/summary/{e}.csv" for e in experiments]}
        cases = self.config.cases_of(experiments)
        logs = {c.name: {m: self.paths.trained(c, m, "csv") for m in c.methods} for c in cases}
        timed = [*map(self.paths.inference, cases)] if layout == "costs" else []
        return {"logs": logs, "inference": timed}

    def of_laws(self) -> list[str]:
        """Return the selected experiments whose laws of the input are compared in a table."""
        shown = self.tables().items()
        found = {e for t, es in shown if self.config.tables[t].layout == "laws" for e in es}
        return [e for e in self.config.selected if e in found]

    def panels(self, name: str) -> list[dict[str, Any]]:
        """Return the panels of a figure of posteriors or of their samples."""
        figure = self.config.figures[name]
        if figure.layout == "spectra":
            cases = self.config.cases_of(figure.experiments)
            return [self._panel(c, c.sensors.counts[len(c.sensors.counts) // 2]) for c in cases]
        assert figure.layout == "posterior"
        return [
            self._panel(
                self.config.case(figure.experiment, noise_std=noise, sensors=count),
                count,
                figure.method,
            )
            for count, noise in product(figure.counts, figure.noise_std)
        ]

    def _panel(self, case: Case, count: int, method: str | None = "uqsonet") -> dict[str, Any]:
        """Return one observation set's files: functions, reference, weights that predict."""
        panel = {
            "sensors": count,
            "noise_std": case.noise_std,
            "functions": self.paths.data(case.problem),
            "reference": self.paths.reference(case, case.evaluations[0]),
        }
        if method is None:
            return panel
        weights = self.paths.weights(case, method)
        ensemble = self.config.ensemble_of(case.experiment, method) is not None
        return panel | {"weights": weights if ensemble else weights[:1], "ensemble": ensemble}

    def first_cases(self) -> dict[str, str]:
        """Return experiment -> case that pictures of a problem show, one for each problem.

        It has the least noise and then the most sensor counts of all that are selected.
        """
        found: dict[str, Case] = {}
        cases = self.config.cases_of(self.config.selected)
        for case in sorted(
            cases, key=lambda c: (c.noise_std, -len(c.sensors.counts), c.experiment, c.name)
        ):
            found.setdefault(case.problem, case)
        return {found[p].experiment: found[p].name for p in self.config.problems if p in found}

    def pictures(self) -> list[str]:
        """Return the names of the pictures that come with every problem."""
        found = []
        for experiment in self.first_cases():
            kinds = ["data", "training"]
            if self.config.experiments[experiment].sensors.layout == "regular_space":
                kinds.append("layouts")
            found += [f"{experiment}_{kind}" for kind in kinds]
        return found

    def figure(self, name: str) -> dict[str, Any]:
        """Return what the job of a declared figure, or of a picture of a problem, is told."""
        declared = self.config.figures.get(name)
        experiment, _, kind = name.rpartition("_")
        layout = kind if declared is None else declared.layout
        experiments = [experiment] if declared is None else declared.experiments
        return {
            "figure": name,
            "drawn_by": f"uqsonet_study.report.figures.{layout}",
            "config": self.part(experiments, figure=name),
            "files": self.figure_files(name),
        }

    def figure_files(self, name: str) -> dict[str, list[Any]]:
        """Return what a declared figure or a picture of a problem is drawn from, by kind."""
        declared = self.config.figures.get(name)
        if declared is None:
            return self._picture_files(*name.rsplit("_", 1))
        if declared.layout in ("posterior", "spectra"):
            return {"panels": self.panels(name)}
        return {
            "summaries": [f"{self.config.results}/summary/{e}.csv" for e in declared.experiments]
        }

    def _picture_files(self, experiment: str, kind: str) -> dict[str, list[Any]]:
        case = self.config.cases[self.first_cases()[experiment]]
        if kind == "layouts":
            return {"sensors": [self.paths.layouts(case)]}
        if kind == "training":
            logs = (f for m in case.methods for f in self.paths.trained(case, m, "csv"))
            return {"logs": list(dict.fromkeys(logs))}
        counts = case.sensors.counts
        shown = sorted({counts[0], counts[len(counts) // 2], counts[-1]})
        return {"panels": [self._panel(case, m, method=None) for m in shown]}

    def part(
        self,
        experiments: list[str] | None = None,
        table: str | None = None,
        figure: str | None = None,
    ) -> dict[str, Any]:
        """Return the part of the configuration that concerns experiments, and a table or figure.

        What is changed elsewhere then draws nothing anew. Without a name all tables that show
        nothing but these experiments: the scorecard's.
        """
        kept = experiments or self.config.selected
        whole = self.config.model_dump(mode="json", exclude={"jobs", "results", "select"})
        declared = {e: whole["experiments"][e] for e in kept}
        problems = sorted({e["problem"] for e in declared.values()})
        shown = {table} if table else set[str]() if experiments else set(self.tables())
        return whole | {
            "experiments": declared,
            "problems": {name: whole["problems"][name] for name in problems},
            "recipes": {
                r: {p: v for p, v in whole["recipes"][r].items() if p in problems}
                for r in sorted({self.config.recipe_of(e) for e in kept})
            },
            "tables": {n: _among(v, kept) for n, v in whole["tables"].items() if n in shown},
            "figures": {n: v for n, v in whole["figures"].items() if n == figure},
        }

    def files(self) -> set[str]:
        """Return all that selected cases compute: what lies beside it is of other runs."""
        paths, found = self.paths, set[str | None]()
        for case in self.config.cases_of(self.config.selected):
            found |= {paths.data(case.problem), paths.layouts(case)}
            for method in case.methods:
                found |= {*paths.trained(case, method, "csv"), *paths.laws(case, method, "csv")}
                judged, _ = self.made[paths.training(case, method)]
                found.add(paths.reference(judged, "validation"))
            found |= {paths.reference(case, label) for label in case.evaluations}
            found |= {f for files in self.score_files([case.experiment]).values() for f in files}
        return {file for file in found if file is not None}


def _among(table: dict[str, Any], experiments: Collection[str]) -> dict[str, Any]:
    """Return a table with those of its experiments that are given."""
    found = table | {"experiments": [e for e in table["experiments"] if e in experiments]}
    for key in {"functions_of", "samples_of"} & set(table):
        found[key] = {e: n for e, n in table[key].items() if e in experiments}
    return found


SUFFIXES = ".h5", ".safetensors", ".csv", ".json"
"""By which files are known among what a job is told."""


def flat(told: Any) -> list[str]:
    """Return the files that jobs are told, whatever they stand in, once each."""
    if isinstance(told, dict):
        told = list(told.values())
    if isinstance(told, list):
        return list(dict.fromkeys(file for value in told for file in flat(value)))
    return [told] if isinstance(told, str) and told.endswith(SUFFIXES) else []
