"""Names of files: each says all that another file of its kind may not share.

    data/{problem}.h5                                        functions; .json says what they took
    sensors/{problem}/{layout}.h5
    reference/{problem}/{layout}/{noise}/{evaluation}.h5     posteriors of observation sets
    train/{problem}/{recipe}/{method}-N{pairs}/trial{trial}  .safetensors; .csv is the log
    law/{problem}/{recipe}/{method}-N{pairs}-{layout}-{noise}/trial{trial}
    scores/{case}/{method}.{evaluation}.csv
    inference/{case}.json, summary/{experiment}.csv

A layout is named by all of its keys that are no defaults: ``uniform-m1-10``. An evaluation is
followed by what its experiment changes of it: ``precise-samples4000``. A training whose networks
read sensors is followed by these and their noise, and by d_z where that is not its recipe's.
So experiments that need the same layouts, references or trainings share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from uqsonet_study.config import Case, Config, Evaluation, SensorsConfig

LONGEST = 40  # characters of a list in a name; longer ones are named by their length and a digest


def numbers(values: Sequence[int]) -> str:
    """Return ascending numbers as they stand in a name: ``1-4+7``."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    text = "+".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else "+".join(map(str, r)) for r in runs)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return text if len(text) <= LONGEST else f"{len(values)}of{digest}"


def layout_name(sensors: SensorsConfig) -> str:
    """Return the name of layouts: their kind and counts, then the keys that are no defaults."""
    name = f"{sensors.layout}-m{numbers(sensors.counts)}"
    if sensors.distances:
        apart = "+".join(f"{d:g}of{m}" for m, d in sorted(sensors.distances.items()))
        name += f"-apart{apart}"
    if sensors.margin:
        name += f"-margin{sensors.margin:g}"
    for key in ("pool", "backend"):
        value = getattr(sensors, key)
        if value != SensorsConfig.model_fields[key].default:
            name += f"-{key if key == 'pool' else ''}{value}"
    return name


class Paths:
    """The files of a configuration."""

    def __init__(self, config: Config) -> None:
        self.config, self.results = config, config.results

    def data(self, problem: str) -> str:
        """Return the file of training, validation and test functions."""
        return f"{self.results}/data/{problem}.h5"

    def layouts(self, case: Case) -> str:
        """Return the file of sensor layouts."""
        return f"{self.results}/sensors/{case.problem}/{layout_name(case.sensors)}.h5"

    def reference(self, case: Case, evaluation: Evaluation) -> str:
        """Return the file of reference posteriors."""
        noise = f"noise{case.noise_std:g}"
        own = self.config.evaluation_of(case.name, evaluation)
        shared, name = self.config.evaluations[evaluation], str(evaluation)
        for key, word in (
            ("sets", "sets"),
            ("reference_samples", "samples"),
            ("estimator", ""),
        ):
            if getattr(own, key) != getattr(shared, key):
                name += f"-{word}{getattr(own, key)}"
        folder = f"{self.results}/reference/{case.problem}/{layout_name(case.sensors)}"
        return f"{folder}/{noise}/{name}.h5"

    def _model(self, case: Case, method: str) -> str:
        """Return recipe, method, pairs and d_z, as they stand in a name."""
        recipe, trained = self.config.recipe_of(case.experiment), self.base(case, method)
        name = f"{case.problem}/{recipe}/{method}-N{case.training}"
        own = self.config.method_of(case.name, trained).network
        if (
            case.latent_dim is not None
            and own != self.config.trained(case.experiment, method).network
        ):
            name += f"-dz{case.latent_dim}"
        return name

    def training(self, case: Case, method: str) -> str:
        """Return the folder of the trainings behind a method."""
        base = self.base(case, method)
        folder = f"{self.results}/train/{self._model(case, base)}"
        return folder + (self._seen(case) if self.reads_sensors(case, base) else "")

    def law(self, case: Case, method: str) -> str:
        """Return the folder of the laws of a method; they are fitted for sensors and noise."""
        return f"{self.results}/law/{self._model(case, method)}{self._seen(case)}"

    def _seen(self, case: Case) -> str:
        return f"-{layout_name(case.sensors)}-noise{case.noise_std:g}"

    def trained(self, case: Case, method: str, suffix: str) -> list[str]:
        """Return the training outputs of a method, by trial: ``safetensors`` or ``csv``."""
        folder, trials = self.training(case, method), self.trials(case, self.base(case, method))
        return [f"{folder}/trial{trial}.{suffix}" for trial in range(trials)]

    def laws(self, case: Case, method: str, suffix: str) -> list[str]:
        """Return the laws of a method, by trial, or what was tried; nothing for other methods."""
        if self.config.law_of(case.experiment, method) is None:
            return []
        folder, trials = self.law(case, method), self.trials(case, self.base(case, method))
        return [f"{folder}/trial{trial}.{suffix}" for trial in range(trials)]

    def weights(self, case: Case, method: str) -> list[str]:
        """Return the weight files that answer for a method, by trial."""
        laws = self.laws(case, method, "safetensors")
        return laws or self.trained(case, method, "safetensors")

    def scores(self, case: Case, method: str, evaluation: Evaluation) -> str:
        """Return the scores of a method, or of all that is not trained."""
        return f"{self.results}/scores/{case.name}/{method}.{evaluation}.csv"

    def inference(self, case: Case) -> str:
        """Return the file of measured times of an answer."""
        return f"{self.results}/inference/{case.name}.json"

    def base(self, case: Case, method: str) -> str:
        """Return the method that is trained: an ensemble's members, a law's operator, or itself."""
        return self.config.base(case.experiment, method)

    def reads_sensors(self, case: Case, method: str) -> bool:
        """Return whether sensors and their noise enter the training of a method."""
        return self.config.method_of(case.name, method).network.per_sensors

    def trials(self, case: Case, method: str) -> int:
        """Return how often a method is trained for a case, as itself or as an ensemble's member."""
        ensembles = [self.config.ensemble_of(case.experiment, m) for m in case.methods]
        members = [e.members for e in ensembles if e is not None and e.ensemble_of == method]
        alone = [m for m, e in zip(case.methods, ensembles, strict=True) if e is None]
        used = method in {self.base(case, m) for m in alone}
        return max([*members, case.trials if used else 0])
