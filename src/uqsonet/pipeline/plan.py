"""The jobs of a configuration: their files and their parameters, each made once.

Cases that ask for the same thing share it. Two jobs are the same if their parameters and their
inputs are, and then the file of the case that is declared first serves all: layouts and
references of a sweep, baselines where only d_z varies, one training for every noise level where
training does not depend on it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from uqsonet.config import Case, Config, Evaluation
from uqsonet.pipeline.sources import ROOT, method_modules, require_problem, source_digest

TOGETHER = "baselines"
"""The evaluation job that scores what is not trained: both baselines and the reference itself."""


class Plan:
    """What the rules ask for."""

    def __init__(self, config: Config) -> None:
        self.config = config
        for experiment in config.experiments.values():
            require_problem(experiment.problem)
        for case in config.cases.values():
            for method in case.methods:
                method_modules(self._base(case.name, method))
        self._owner = cache(self._find_owner)
        self._identity = cache(self._identify)

    def problem(self, case: str) -> str:
        """Return the problem of a case."""
        return self.config.cases[case].problem

    def _base(self, case: str, method: str) -> str:
        """Return the method that is trained: an ensemble's members, or the method itself."""
        found = self.config.ensemble_of(self.config.cases[case].experiment, method)
        return method if found is None else found.ensemble_of

    def _trials(self, case: str, method: str) -> int:
        """Return how often a method is trained in a case."""
        chosen = self.config.cases[case]
        ensembles = (self.config.ensemble_of(chosen.experiment, m) for m in chosen.methods)
        members = [e.members for e in ensembles if e is not None and e.ensemble_of == method]
        return max([*members, chosen.trials if method in chosen.methods else 0])

    def stacks(self, case: str, method: str) -> dict[int, list[int]]:
        """Return stack number -> trials in it, of a method that is trained."""
        size, trials = self.config.jobs.trials_per_job, self._trials(case, method)
        starts = range(0, trials, size)
        return {k: list(range(s, min(s + size, trials))) for k, s in enumerate(starts)}

    def scored(self, case: str) -> list[tuple[str, int]]:
        """Return (method, stack) of every evaluation job of a case."""
        found = [(TOGETHER, 0)]
        for method in self.config.cases[case].methods:
            single = self._base(case, method) != method
            found += [(method, k) for k in ([0] if single else self.stacks(case, method))]
        return found

    def functions(self, case: str) -> str:
        """Return the file of training, validation and test functions."""
        return f"{self.config.results}/simulate/{self.problem(case)}.h5"

    def layouts(self, case: str) -> str:
        """Return the file of sensor layouts."""
        return f"{self.config.results}/sensors/{self._owner('sensors', case)}.h5"

    def posteriors(self, case: str, evaluation: Evaluation) -> str:
        """Return the file of reference posteriors."""
        owner = self._owner("reference", case, evaluation)
        return f"{self.config.results}/reference/{owner}/{evaluation}.h5"

    def trained(self, case: str, method: str, suffix: str) -> list[str]:
        """Return the training outputs of a method, by stack: ``safetensors`` or ``csv``."""
        base = self._base(case, method)
        return [
            f"{self.config.results}/train/{self._owner('train', case, base, k)}/{base}/"
            f"stack_{k}.{suffix}"
            for k in self.stacks(case, base)
        ]

    def weights_scored(self, case: str, method: str, stack: int) -> list[str]:
        """Return the weights that an evaluation reads; baselines have none."""
        if method == TOGETHER:
            return []
        found = self.trained(case, method, "safetensors")
        return found if self._base(case, method) != method else [found[stack]]

    def scores(self, case: str) -> list[str]:
        """Return the score files of a case, all its evaluations."""
        return [
            f"{self.config.results}/evaluate/{self._owner('evaluate', case, evaluation, *what)}/"
            f"{evaluation}/{what[0]}/stack_{what[1]}.csv"
            for evaluation in self.config.cases[case].evaluations
            for what in self.scored(case)
        ]

    def score_files(self, experiment: str) -> dict[str, list[str]]:
        """Return case -> score files, for the cases of an experiment."""
        return {c.name: self.scores(c.name) for c in self.config.cases_of([experiment])}

    def _has(self, stage: str, case: Case, *what: Any) -> bool:
        if stage == "train":
            return what[1] in self.stacks(case.name, what[0])
        if stage == "evaluate":
            return what[0] in case.evaluations and what[1:] in self.scored(case.name)
        return True

    def _find_owner(self, stage: str, case: str, *what: Any) -> str:
        """Return the first case whose job is the same, that case itself if no other is."""
        wanted = self._identity(stage, case, *what)
        for other in self.config.cases.values():
            same_problem = other.problem == self.problem(case)
            if same_problem and self._has(stage, other, *what):
                if self._identity(stage, other.name, *what) == wanted:
                    return other.name
        return case

    def _identify(self, stage: str, case: str, *what: Any) -> str:
        """Return all that a job's result depends on: its parameters and its input files."""
        if stage == "sensors":
            return self.sensors(case)
        if stage == "reference":
            return self.reference(case, *what) + self.layouts(case)
        if stage == "train":
            method, stack = what
            spec = json.loads(self.train(case, method, stack))
            if self.config.method_of(case, method).network.per_sensors:
                return _spec(**spec) + self.layouts(case) + self.posteriors(case, "validation")
            return _spec(**{key: value for key, value in spec.items() if key != "noise_std"})
        evaluation, method, stack = what
        inputs = [self.posteriors(case, evaluation), *self.weights_scored(case, method, stack)]
        return self.evaluate(case, evaluation, method) + " ".join(inputs)

    def digest(self, *modules: str, case: str | None = None, method: str | None = None) -> str:
        """Return the source digest of modules, with the problem and the method they run."""
        extra = [f"uqsonet.problems.{self.problem(case)}"] if case else []
        return source_digest([*modules, *extra, *(method_modules(method) if method else [])])

    def simulate(self, problem: str) -> str:
        """Return the parameters of a `simulate` job, as JSON."""
        return _spec(
            problem=problem,
            config=self.config.problems[problem].model_dump(mode="json"),
            seed=self.config.seed,
            code=source_digest(["uqsonet.simulation", f"uqsonet.problems.{problem}"]),
        )

    def sensors(self, case: str) -> str:
        """Return the parameters of a `sensors` job, as JSON."""
        data = self.config.problems[self.problem(case)]
        return _spec(
            problem=self.problem(case),
            config=self.config.cases[case].sensors.model_dump(mode="json"),
            validation=data.validation,
            test=data.test,
            seed=self.config.seed,
            code=self.digest("uqsonet.layouts", case=case),
        )

    def reference(self, case: str, evaluation: Evaluation) -> str:
        """Return the parameters of a `reference` job, as JSON."""
        config = self.config.evaluation_of(case, evaluation)
        return _spec(
            split="validation" if evaluation == "validation" else "test",
            label=evaluation,
            config=config.model_dump(mode="json", exclude={"model_samples"}),
            noise_std=self.config.cases[case].noise_std,
            seed=self.config.seed,
            code=self.digest("uqsonet.reference", case=case),
        )

    def train(self, case: str, method: str, stack: int) -> str:
        """Return the parameters of a `train` job, as JSON."""
        return _spec(
            method=method,
            problem=self.problem(case),
            config=self.config.method_of(case, method).model_dump(mode="json"),
            noise_std=self.config.cases[case].noise_std,
            training=self.config.cases[case].training,
            trials=self.stacks(case, method)[stack],
            seed=self.config.seed,
            code=self.digest("uqsonet.training.loop", case=case, method=method),
        )

    def evaluate(self, case: str, evaluation: Evaluation, method: str) -> str:
        """Return the parameters of an `evaluate` job, as JSON."""
        chosen = self.config.cases[case]
        base = None if method == TOGETHER else self._base(case, method)
        return _spec(
            method=method,
            label=evaluation,
            config=self.config.evaluation_of(case, evaluation).model_dump(mode="json"),
            noise_std=chosen.noise_std,
            training=chosen.training if method == TOGETHER else None,
            cut_lines=chosen.cut_lines,
            seed=self.config.seed,
            code=self.digest("uqsonet.evaluation", case=case, method=base),
        )

    def inference(self, case: str) -> str:
        """Return the parameters of an `inference` job, as JSON."""
        return _spec(
            methods=self.config.cases[case].methods,
            sensors=self.config.cases[case].sensors.counts[-1],
            code=self.digest("uqsonet.evaluation.inference", case=case),
        )

    def report(
        self,
        module: str,
        experiments: list[str] | None = None,
        table: str | None = None,
        figure: str | None = None,
    ) -> str:
        """Return the parameters of a table, a figure or a summary, as JSON.

        They hold that part of the configuration which concerns the given experiments, so what is
        changed elsewhere draws nothing anew.
        """
        config = self._part(experiments or self.config.selected)
        config["tables"] = {n: v for n, v in config["tables"].items() if n == table}
        config["figures"] = {n: v for n, v in config["figures"].items() if n == figure}
        modules = [module, *(f"uqsonet.problems.{name}" for name in config["problems"])]
        cells = hashlib.sha256((ROOT / "report" / "paper_errors.csv").read_bytes()).hexdigest()[:16]
        return _spec(config=config, code=source_digest(modules), paper=cells)

    def _part(self, experiments: list[str]) -> dict[str, Any]:
        """Return the configuration of some experiments alone."""
        config = self.config.model_dump(mode="json", exclude={"jobs", "results", "select"})
        config["experiments"] = {e: config["experiments"][e] for e in experiments}
        problems = sorted({e["problem"] for e in config["experiments"].values()})
        config["problems"] = {name: config["problems"][name] for name in problems}
        recipes = sorted({self.config.recipe_of(e) for e in experiments})
        config["recipes"] = {
            r: {p: v for p, v in config["recipes"][r].items() if p in problems} for r in recipes
        }
        return config

    def tables(self) -> dict[str, list[str]]:
        """Return the tables of this run, each with those of its experiments that are selected."""
        return self._outputs(self.config.tables, some=True)

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


def _spec(**values: Any) -> str:
    return json.dumps(values, sort_keys=True)
