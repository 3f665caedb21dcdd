"""Parameters of the jobs: what each of them is told, as JSON, with a digest of what it runs."""

from __future__ import annotations

import json
from typing import Any

from uqsonet_study.config import Config, Evaluation
from uqsonet_study.pipeline.sources import method_modules, require_problem, source_digest

TOGETHER = "baselines"
"""The evaluation job that scores what is not trained: both baselines and the reference itself."""


def as_json(**values: Any) -> str:
    """Return parameters as text that is equal where they are."""
    return json.dumps(values, sort_keys=True)


class Specs:
    """Jobs of a configuration and their parameters.

    Raises
    ------
    ConfigError
        If no file defines a problem or a method that the configuration names.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        for experiment in config.experiments.values():
            require_problem(experiment.problem)
        for case in config.cases.values():
            for method in case.methods:
                method_modules(self.base(case.name, method))

    def problem(self, case: str) -> str:
        """Return the problem of a case."""
        return self.config.cases[case].problem

    def base(self, case: str, method: str) -> str:
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
            single = self.base(case, method) != method
            found += [(method, k) for k in ([0] if single else self.stacks(case, method))]
        return found

    def digest(self, *modules: str, case: str | None = None, method: str | None = None) -> str:
        """Return the source digest of modules, with the problem and the method they run."""
        extra = [f"uqsonet.problems.{self.problem(case)}"] if case else []
        return source_digest([*modules, *extra, *(method_modules(method) if method else [])])

    def simulate(self, problem: str) -> str:
        """Return the parameters of a `simulate` job, as JSON."""
        return as_json(
            problem=problem,
            config=self.config.problems[problem].model_dump(mode="json"),
            seed=self.config.seed,
            code=source_digest(["uqsonet.simulation", f"uqsonet.problems.{problem}"]),
        )

    def sensors(self, case: str) -> str:
        """Return the parameters of a `sensors` job, as JSON."""
        data = self.config.problems[self.problem(case)]
        return as_json(
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
        return as_json(
            split="validation" if evaluation == "validation" else "test",
            label=evaluation,
            config=config.model_dump(mode="json", exclude={"model_samples"}),
            noise_std=self.config.cases[case].noise_std,
            seed=self.config.seed,
            code=self.digest("uqsonet.reference", case=case),
        )

    def train(self, case: str, method: str, stack: int) -> str:
        """Return the parameters of a `train` job, as JSON."""
        return as_json(
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
        base = None if method == TOGETHER else self.base(case, method)
        return as_json(
            method=method,
            label=evaluation,
            config=self.config.evaluation_of(case, evaluation).model_dump(mode="json"),
            noise_std=chosen.noise_std,
            ensemble=base not in (None, method),
            training=chosen.training if method == TOGETHER else None,
            cut_lines=chosen.cut_lines,
            seed=self.config.seed,
            code=self.digest("uqsonet_study.evaluation", case=case, method=base),
        )

    def inference(self, case: str) -> str:
        """Return the parameters of an `inference` job, as JSON."""
        return as_json(
            methods=self.config.cases[case].methods,
            sensors=self.config.cases[case].sensors.counts[-1],
            code=self.digest("uqsonet_study.evaluation.inference", case=case),
        )
