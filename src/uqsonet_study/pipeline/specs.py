"""Parameters of the jobs: what each of them is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from uqsonet_study.config import Config, Evaluation, PlacementTable
from uqsonet_study.pipeline.sources import (
    file_digests,
    model_module,
    problem_modules,
    source_digest,
)

UNTRAINED = "baselines"
"""What is scored without being trained: all baselines and the reference itself."""

RUN_BY = {
    "simulate": ("uqsonet_study.simulation",),
    "own_data": ("uqsonet_study.own_data",),
    "sensors": ("uqsonet_study.layouts",),
    "reference": ("uqsonet_study.references",),
    "train": ("uqsonet_study.training",),
    "law": ("uqsonet_study.laws",),
    "evaluate": ("uqsonet_study.evaluation",),
    "inference": ("uqsonet_study.evaluation.inference",),
    "placement": ("uqsonet_study.placement",),
}
"""Rule -> the modules that its numbers come from, with all that they import."""

LAWS = "uqsonet.fitting.choose_law"
"""It imports all laws of the input."""

OF_A_PROBLEM = ("simulate", "sensors", "reference", "placement")
"""Rules whose jobs run the code of a problem. All others take what they need from their inputs."""

Parameters = dict[str, Any]


class Text(str):
    """Text that Snakemake's reasons show short: what long entries hold as eight digits.

    Snakemake keeps and compares `repr` of parameters, and prints those of before and now.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        try:
            entries = json.loads(self)
        except ValueError:
            entries = None
        if not isinstance(entries, dict):
            return short(self)
        if isinstance(config := entries.get("config"), dict):
            entries = entries | {f"config.{key}": value for key, value in config.items()}
            del entries["config"]
        return " ".join(f"{k}={short(json.dumps(v))}" for k, v in sorted(entries.items()))


def short(text: str) -> str:
    """Return a text as it is, or a digest of it where that is shorter."""
    return text if len(text) <= 12 else hashlib.sha256(text.encode()).hexdigest()[:8]


def as_json(**values: Any) -> Text:
    """Return parameters as text that is equal where they are."""
    return Text(json.dumps(values, sort_keys=True))


class Specs:
    """Parameters of the jobs of a configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._settings = cache(self._find_settings)

    def problem(self, case: str) -> str:
        """Return the problem of a case."""
        return self.config.cases[case].problem

    def base(self, case: str, method: str) -> str:
        """Return the method that is trained: an ensemble's members, a law's operator, or itself."""
        return self.config.base(self.config.cases[case].experiment, method)

    def is_ensemble(self, case: str, method: str) -> bool:
        """Return whether all trainings of a method answer as one."""
        return self.config.ensemble_of(self.config.cases[case].experiment, method) is not None

    def is_law(self, case: str, method: str) -> bool:
        """Return whether a method is another one's operator with a law of its own."""
        return self.config.law_of(self.config.cases[case].experiment, method) is not None

    def model(self, case: str, method: str) -> str:
        """Return the module that defines the model of a method."""
        architecture = self.config.method_of(case, method).network.architecture
        return model_module(self.base(case, method), architecture)

    def modules(self, case: str, method: str) -> list[str]:
        """Return the modules that a method's answers come from: its model, and laws of the input.

        Which law a file has is read from it, so no import names the module.
        """
        return [self.model(case, method), *([LAWS] if self.is_law(case, method) else [])]

    def _find_settings(self, case: str, method: str) -> Parameters:
        return self.config.method_of(case, method).model_dump(mode="json")

    def trials(self, case: str, method: str) -> int:
        """Return how often a method is trained in a case."""
        chosen = self.config.cases[case]
        ensembles = (self.config.ensemble_of(chosen.experiment, m) for m in chosen.methods)
        members = [e.members for e in ensembles if e is not None and e.ensemble_of == method]
        wanted = (m for m in chosen.methods if not self.is_ensemble(case, m))
        return max(
            [*members, chosen.trials if method in {self.base(case, m) for m in wanted} else 0]
        )

    def code(self, rule: str, problem: str, models: Iterable[str] = ()) -> str:
        """Return the digest of what a job runs, for a problem and with the models of modules."""
        own = problem_modules([problem]) if rule in OF_A_PROBLEM else []
        return source_digest([*RUN_BY[rule], *own, *models])

    def simulation(self, problem: str) -> Parameters:
        """Return the parameters of a `simulate` job; own data are known by what is in the file."""
        config = self.config.problems[problem]
        found = {
            "problem": problem,
            "config": config.model_dump(mode="json"),
            "seed": self.config.seed,
        }
        if config.data is None:
            return found
        return found | {"files": file_digests(config.data.files, f"problems.{problem}.data")}

    def sensors(self, case: str) -> Parameters:
        """Return the parameters of a `sensors` job."""
        data = self.config.problems[self.problem(case)]
        return {
            "problem": self.problem(case),
            "config": self.config.cases[case].sensors.model_dump(mode="json"),
            "validation": data.validation,
            "test": data.test,
            "seed": self.config.seed,
        }

    def output_sensors(self, case: str) -> Parameters | None:
        """Return the parameters of a `sensors` job for the output, None where it has none."""
        found = self.config.cases[case].output_sensors
        if found is None:
            return None
        return self.sensors(case) | {"config": found.model_dump(mode="json"), "side": "output"}

    def reference(self, case: str, evaluation: Evaluation) -> Parameters:
        """Return the parameters of a `reference` job."""
        config, chosen = self.config.evaluation_of(case, evaluation), self.config.cases[case]
        outputs = {
            "count_pairs": self.config.experiments[chosen.experiment].count_pairs,
            "output_noise": chosen.output_noise,
        }
        # Trainings meet no sensors of the output and are judged without them.
        given = chosen.output_sensors is not None and evaluation != "validation"
        return (outputs if given else {}) | {
            "split": "validation" if evaluation == "validation" else "test",
            "label": evaluation,
            "config": config.model_dump(mode="json", exclude={"model_samples"}),
            "noise_std": chosen.noise_std,
            "seed": self.config.seed,
        }

    def training(self, case: str, method: str) -> Parameters:
        """Return the parameters of a `train` job besides its trial."""
        return {
            "method": method,
            "problem": self.problem(case),
            "config": self._settings(case, method),
            "noise_std": self.config.cases[case].noise_std,
            "training": self.config.cases[case].training,
            "seed": self.config.seed,
        }

    def law(self, case: str, method: str) -> Parameters:
        """Return the parameters of a `law` job besides its trial."""
        chosen = self.config.cases[case]
        found = self.config.law_of(chosen.experiment, method)
        assert found is not None
        return {
            "law": found.law,
            "noise_std": chosen.noise_std,
            "training": chosen.training,
            "seed": self.config.seed,
        }

    def evaluation(self, case: str, evaluation: Evaluation) -> Parameters:
        """Return the parameters of an `evaluate` job besides what it scores."""
        chosen = self.config.cases[case]
        return {
            "label": evaluation,
            "config": self.config.evaluation_of(case, evaluation).model_dump(mode="json"),
            "noise_std": chosen.noise_std,
            "cut_lines": chosen.cut_lines,
            "seed": self.config.seed,
        }

    def placement(self, case: str, table: PlacementTable) -> Parameters:
        """Return the parameters of a `placement` job."""
        chosen = self.config.cases[case]
        asked = table.model_dump(mode="json", include={"counts", "random", "margin"})
        return asked | {
            "functions": table.functions_of.get(chosen.experiment, table.functions),
            "samples": table.samples_of.get(chosen.experiment, table.samples),
            "noise_std": chosen.noise_std,
            "seed": self.config.seed,
        }

    def inference(self, case: str) -> Parameters:
        """Return the parameters of an `inference` job."""
        chosen = self.config.cases[case]
        return {"methods": chosen.methods, "sensors": max(1, chosen.sensors.counts[-1])}
