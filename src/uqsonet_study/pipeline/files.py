"""Files of the jobs, each made once.

Cases that ask for the same thing share it. Two jobs are the same if their parameters and their
inputs are, and then the file of the case that is declared first serves all: layouts and
references of a sweep, baselines where only d_z varies, one training for every noise level where
training does not depend on it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from uqsonet_study.config import Case, Config, Evaluation
from uqsonet_study.pipeline.specs import TOGETHER, Specs, as_json


class Files(Specs):
    """Where everything lies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._owner = cache(self._find_owner)
        self._identity = cache(self._identify)

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

    def trained_in(self, case: str, method: str) -> dict[int, str]:
        """Return stack number -> case in whose name it is trained."""
        base = self.base(case, method)
        return {k: self._owner("train", case, base, k) for k in self.stacks(case, base)}

    def trained(self, case: str, method: str, suffix: str) -> list[str]:
        """Return the training outputs of a method, by stack: ``safetensors`` or ``csv``."""
        folder, base = f"{self.config.results}/train", self.base(case, method)
        owners = self.trained_in(case, method)
        return [f"{folder}/{name}/{base}/stack_{k}.{suffix}" for k, name in owners.items()]

    def weights_scored(self, case: str, method: str, stack: int) -> list[str]:
        """Return the weights that an evaluation reads; baselines have none."""
        if method == TOGETHER:
            return []
        found = self.trained(case, method, "safetensors")
        return found if self.base(case, method) != method else [found[stack]]

    def answering(self, case: str) -> list[str]:
        """Return the weights that answer in an `inference` job, one file for each method."""
        methods = self.config.cases[case].methods
        return [self.trained(case, method, "safetensors")[0] for method in methods]

    def evaluations(self, case: str, evaluation: Evaluation) -> list[tuple[str, str, int]]:
        """Return (score file, method, predictors in it) of every job of an evaluation."""
        found = []
        for method, stack in self.scored(case):
            owner = self._owner("evaluate", case, evaluation, method, stack)
            folder = f"{self.config.results}/evaluate/{owner}/{evaluation}/{method}"
            single = method == TOGETHER or self.base(case, method) != method
            size = 1 if single else len(self.stacks(case, method)[stack])
            found.append((f"{folder}/stack_{stack}.csv", method, size))
        return found

    def scores(self, case: str) -> list[str]:
        """Return the score files of a case, all its evaluations."""
        labels = self.config.cases[case].evaluations
        return [file for label in labels for file, *_ in self.evaluations(case, label)]

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
                return as_json(**spec) + self.layouts(case) + self.posteriors(case, "validation")
            return as_json(**{key: value for key, value in spec.items() if key != "noise_std"})
        evaluation, method, stack = what
        inputs = [self.posteriors(case, evaluation), *self.weights_scored(case, method, stack)]
        return self.evaluate(case, evaluation, method) + " ".join(inputs)
