"""Jobs and their files: equal jobs are one job, and have one file.

A job is the same as another if its parameters and its inputs are. A digest of both is part of its
name, and its name is that of its files below ``results/<rule>/``. So whatever cases ask for the
same layouts, references, trainings or scores share them, and no file is named after one of these
cases. ``results/jobs.csv`` says which case reads which file.

What does not define a result is no part of a name: sources, versions, other experiments and their
order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from uqsonet.errors import ConfigError
from uqsonet_study.config import Config, Evaluation, PlacementTable
from uqsonet_study.pipeline.sources import ROOT, file_digests
from uqsonet_study.pipeline.specs import UNTRAINED, Parameters, Specs, Text, as_json

DIGITS = 8
"""Hexadecimal digits of a digest that stand in a name."""


Inputs = dict[str, str | list[str]]
Headers = dict[str, tuple[str, Parameters]]

SHIPPED = ROOT / "uqsonet/emulator/weights"
"""Folder of the operators that come with the package."""


@dataclass(frozen=True)
class Job:
    """One job of the workflow.

    Attributes
    ----------
    rule, name : str
        Its files are ``<results>/<rule>/<name>.<suffix>``.
    parameters : dict
        What it is told.
    code : str
        Digest of the source that determines its result. Another one means that the job has to be
        done again, under the same name.
    inputs : dict of str to str or list of str
        Files that it reads, by kind: one, or several.
    workers : int
        Cores that may share it.
    headers : dict of str to (str, dict)
        Input -> its kind and what its header must say; see `headers.require_header`.
    """

    rule: str
    name: str
    parameters: Parameters
    code: str
    inputs: Inputs = field(default_factory=dict)
    workers: int = 1
    headers: Headers = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """Parameters, digest of the source and expected headers, as JSON."""
        return as_json(**self.parameters, code=self.code, headers=self.headers)


def named(folder: str, what: str, **identity: Any) -> str:
    """Return a name that is the same where the identity is."""
    digest = hashlib.sha256(as_json(**identity).encode()).hexdigest()
    return f"{folder}/{what}-{digest[:DIGITS]}"


def _known(kind: str, told: Parameters, *more: str) -> tuple[str, Parameters]:
    """Return what a header says of what its job was told."""
    return kind, {key: told[key] for key in ("problem", "config", "seed", *more)}


class Files(Specs):
    """The jobs of a configuration, and where their files lie."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sensors_job = cache(self._sensors_job)
        self.output_sensors_job = cache(self._output_sensors_job)
        self.reference_job = cache(self._reference_job)
        self.training_name = cache(self._training_name)

    def file(self, rule: str, name: str, suffix: str) -> str:
        """Return the path of a job's file."""
        return f"{self.config.results}/{rule}/{name}.{suffix}"

    def functions(self, case: str) -> str:
        """Return the file of training, validation and test functions."""
        return self.file("simulate", self.problem(case), "h5")

    def layouts(self, case: str) -> str:
        """Return the file of sensor layouts."""
        return self.file("sensors", self.sensors_job(case).name, "h5")

    def output_layouts(self, case: str) -> str | None:
        """Return the file of layouts of the output's sensors, where there are any."""
        job = self.output_sensors_job(case)
        return None if job is None else self.file("sensors", job.name, "h5")

    def posteriors(self, case: str, evaluation: Evaluation) -> str:
        """Return the file of reference posteriors."""
        return self.file("reference", self.reference_job(case, evaluation).name, "h5")

    def trained(self, case: str, method: str, suffix: str) -> list[str]:
        """Return the training outputs of a method, by trial: ``safetensors`` or ``csv``."""
        return [self.file("train", job.name, suffix) for job in self.trainings(case, method)]

    def weights(self, case: str, method: str) -> list[str]:
        """Return the weight files that answer for a method, by trial."""
        if not self.is_law(case, method):
            return self.trained(case, method, "safetensors")
        return [self.file("law", job.name, "safetensors") for job in self.laws(case, method)]

    def law_logs(self, case: str, method: str) -> list[str]:
        """Return what was tried for the laws of a method, by trial; nothing for other methods."""
        return [self.file("law", job.name, "csv") for job in self.laws(case, method)]

    def scores(self, case: str) -> list[str]:
        """Return the score files of a case, all its evaluations."""
        labels = self.config.cases[case].evaluations
        jobs = (job for label in labels for job in self.evaluations(case, label))
        return [self.file("evaluate", job.name, "csv") for job in jobs]

    def score_files(self, experiment: str) -> dict[str, list[str]]:
        """Return case -> score files, for the cases of an experiment."""
        return {c.name: self.scores(c.name) for c in self.config.cases_of([experiment])}

    def headers(
        self,
        case: str,
        inputs: Inputs,
        evaluation: Evaluation | None = None,
        methods: Iterable[str] = (),
    ) -> Headers:
        """Return what the headers of a job's inputs must say.

        Parameters
        ----------
        case : str
        inputs : dict of str to str or list of str
        evaluation : str, optional
            Whose references are among them.
        methods : iterable of str
            Whose weights are among them.
        """
        found = self._made(case)
        if (path := self.layouts(case)) in inputs.values():
            found[path] = _known("sensors", {"side": "input"} | self.sensors(case), "side")
        if (path := inputs.get("output_sensors")) is not None:
            found[str(path)] = _known("sensors", self.output_sensors(case) or {}, "side")
        if evaluation is not None:
            told = {"problem": self.problem(case), **self.reference(case, evaluation)}
            more = {"split", "noise_std", "output_noise"} & told.keys()
            expected = _known("reference", told, *more)
            expected[1]["evaluation"] = evaluation
            found[self.posteriors(case, evaluation)] = expected
        for method in methods:
            of_trial = {}
            for job in self.trainings(case, method):
                expected = self._weights_header(case, method, job)
                found[self.file("train", job.name, "safetensors")] = "weights", expected
                of_trial[job.parameters["trial"]] = expected
            for job in self.laws(case, method):
                trial, asked = job.parameters["trial"], job.parameters["law"]
                law = {key: job.parameters[key] for key in ("noise_std", "training", "seed")}
                expected = of_trial[trial] | {"law": law | {"asked": asked}}
                found[self.file("law", job.name, "safetensors")] = "weights", expected
        read = [f for fs in inputs.values() for f in ([fs] if isinstance(fs, str) else fs)]
        return {path: header for path, header in found.items() if path in read}

    def _made(self, case: str) -> Headers:
        """Return what the header of a case's functions says."""
        return {self.functions(case): _known("functions", self.simulation(self.problem(case)))}

    def _weights_header(self, case: str, method: str, training: Job) -> Parameters:
        """Return what the header of trained weights says, given the job that trains them."""
        expected = dict(training.parameters)
        expected["trials"] = [expected.pop("trial")]
        if not self.config.method_of(case, method).network.per_sensors:
            del expected["noise_std"]  # that of any case that shares the training
        if expected["config"]["network"].get("held_out_residuals"):
            # Own data may have fewer points and pairs than modes are asked for.
            sizes = ("input_modes", "output_modes")
            network = {k: v for k, v in expected["config"]["network"].items() if k not in sizes}
            expected["config"] = expected["config"] | {"network": network}
        return expected

    def simulation_job(self, problem: str) -> Job:
        """Return the job that makes the functions of a problem."""
        data = self.config.problems[problem].data
        code = self.code("simulate" if data is None else "own_data", problem)
        inputs: Inputs = {} if data is None else {"files": data.files}
        return Job("simulate", problem, self.simulation(problem), code, inputs)

    def _sensors_job(self, case: str) -> Job:
        return self._layouts_job(case, self.sensors(case))

    def _output_sensors_job(self, case: str) -> Job | None:
        parameters = self.output_sensors(case)
        return None if parameters is None else self._layouts_job(case, parameters)

    def _layouts_job(self, case: str, parameters: Parameters) -> Job:
        problem = self.problem(case)
        name = named(problem, "layouts", **parameters)
        own = self.config.problems[problem].data is not None
        inputs: Inputs = {"functions": self.functions(case)} if own else {}  # their grid
        code, headers = self.code("sensors", problem), self._made(case) if own else {}
        return Job("sensors", name, parameters, code, inputs, headers=headers)

    def _reference_job(self, case: str, evaluation: Evaluation) -> Job:
        problem, parameters = self.problem(case), self.reference(case, evaluation)
        given = {"sensors": self.sensors_job(case).name}
        inputs: Inputs = {"functions": self.functions(case), "sensors": self.layouts(case)}
        outputs = self.output_sensors_job(case)
        if outputs is not None and evaluation != "validation":
            given["output_sensors"] = outputs.name
            inputs["output_sensors"] = self.file("sensors", outputs.name, "h5")
        return Job(
            "reference",
            named(problem, evaluation, **given, **parameters),
            parameters,
            self.code("reference", problem),
            inputs,
            self.config.experiments[self.config.cases[case].experiment].reference_workers,
            self.headers(case, inputs),
        )

    def _training_name(self, case: str, method: str) -> str:
        """Return the name that all trials of a method share, given by what defines them.

        The validation reference does not: it is there for the log. Sensors and noise do so only
        where training meets them.
        """
        identity = self.training(case, method)
        if self.config.method_of(case, method).network.per_sensors:
            identity["sensors"] = self.sensors_job(case).name
        else:
            del identity["noise_std"]
        return named(self.problem(case), method, **identity)

    @cached_property
    def _validation_cases(self) -> dict[str, str]:
        """Training name -> the case on whose validation sets it is judged.

        Of the cases that share a training it is one with the least noise, and then with the most
        sensor counts. It depends neither on the order of experiments nor on their names.
        """

        def order(case: str) -> tuple[float, int, str]:
            chosen = self.config.cases[case]
            reference = self.reference_job(case, "validation").name
            return chosen.noise_std, -len(chosen.sensors.counts), reference

        found: dict[str, str] = {}
        for case in self.config.cases.values():
            for method in case.methods:
                name = self.training_name(case.name, self.base(case.name, method))
                found[name] = min(found.get(name, case.name), case.name, key=order)
        return found

    def validation_case(self, case: str, method: str) -> str:
        """Return the case on whose validation sets a training of a method is judged."""
        return self._validation_cases[self.training_name(case, self.base(case, method))]

    def trainings(self, case: str, method: str) -> list[Job]:
        """Return the jobs that train a method, or the members of an ensemble."""
        base = self.base(case, method)
        name, chosen = self.training_name(case, base), self.validation_case(case, method)
        inputs: Inputs = {
            "functions": self.functions(chosen),
            "sensors": self.layouts(chosen),
            "reference": self.posteriors(chosen, "validation"),
        }
        code = self.code("train", self.problem(case), [self.model(case, method)])
        parameters = self.training(chosen, base)
        return [
            Job(
                "train",
                f"{name}/trial_{trial}",
                parameters | {"trial": trial},
                code,
                inputs,
                headers=self.headers(chosen, inputs, "validation"),
            )
            for trial in range(self.trials(case, base))
        ]

    def _law_name(self, case: str, method: str) -> str:
        """Return the name that the laws of a method share: a law meets the sensors and the noise.

        Held-out functions are read at the sensors of their layouts, with noise.
        """
        trained = self.training_name(case, self.base(case, method))
        sensors = self.sensors_job(case).name
        identity = self.law(case, method) | {"trained": trained, "sensors": sensors}
        return named(self.problem(case), method, **identity)

    def laws(self, case: str, method: str) -> list[Job]:
        """Return the jobs that fit a law to every trial of another method's operator.

        There are none for a method that is no law. Each trial has a law of its own, as residuals
        and what held-out pairs say differ from trial to trial.
        """
        if not self.is_law(case, method):
            return []
        name, parameters = self._law_name(case, method), self.law(case, method)
        code = self.code("law", self.problem(case), [self.model(case, method)])
        found = []
        for job in self.trainings(case, method):
            inputs: Inputs = {
                "functions": self.functions(case),
                "sensors": self.layouts(case),
                "weights": [self.file("train", job.name, "safetensors")],
            }
            headers = self.headers(case, inputs, methods=[self.base(case, method)])
            trial = job.parameters["trial"]
            own = parameters | {"trial": trial}
            found.append(Job("law", f"{name}/trial_{trial}", own, code, inputs, headers=headers))
        return found

    def evaluations(self, case: str, evaluation: Evaluation) -> list[Job]:
        """Return the jobs that score the methods of a case.

        There is one for each method, whatever the number of its trials, and one for what is not
        trained.
        """
        problem, shared = self.problem(case), self.evaluation(case, evaluation)
        reference = self.reference_job(case, evaluation).name
        inputs: Inputs = {
            "functions": self.functions(case),
            "reference": self.posteriors(case, evaluation),
        }
        found = []
        for scored, trained, weights in self._scored(case):
            identity = shared | scored | {"reference": reference, "trained": trained}
            del identity["weights"], identity["predictors"]  # as many as there are trials
            method = scored["method"]
            name = named(f"{problem}/{evaluation}", method, **identity)
            methods = [method] if method != UNTRAINED else []
            models = [module for m in methods for module in self.modules(case, m)]
            code = self.code("evaluate", problem, models)
            files = inputs | {"weights": weights}
            headers = self.headers(case, files, evaluation, methods)
            told = shared | scored
            found.append(Job("evaluate", name, told, code, files, headers=headers))
        return found

    def _scored(self, case: str) -> Iterator[tuple[Parameters, list[str], list[str]]]:
        """Yield what is scored by itself: parameters, the trainings in it, their weights."""
        head = {"method": UNTRAINED, "ensemble": False, "weights": 0, "predictors": 1}
        yield head | {"training": self.config.cases[case].training}, [], []
        for method in self.config.cases[case].methods:
            ensemble = self.is_ensemble(case, method)
            head = {"method": method, "ensemble": ensemble, "training": None}
            weights = self.weights(case, method)
            if self.is_law(case, method):
                name = self._law_name(case, method)
            else:
                name = self.training_name(case, self.base(case, method))
            counts = {"weights": len(weights), "predictors": 1 if ensemble else len(weights)}
            yield head | counts, [name, str(len(weights))], weights

    def inference_job(self, case: str) -> Job:
        """Return the job that times an answer of each method of a case."""
        methods = self.config.cases[case].methods
        weights = [self.weights(case, method)[0] for method in methods]
        code, inputs = self.code("inference", self.problem(case)), Inputs(weights=weights)
        headers = self.headers(case, inputs, methods=methods)
        return Job("inference", case, self.inference(case), code, inputs, headers=headers)

    def placement_jobs(self) -> list[Job]:
        """Return the jobs that score where sensors stand, one for each experiment of the table."""
        found = []
        for table in self.config.tables.values():
            if not isinstance(table, PlacementTable):
                continue
            kept = [e for e in table.experiments if e in self.config.selected]
            for chosen in self.config.cases_of(kept):
                case, method = chosen.name, table.method
                parameters = self.placement(case, table)
                if table.shipped:
                    weights, modules = [str(SHIPPED / f"{self.problem(case)}.safetensors")], []
                    (trained,) = file_digests(weights, "tables: shipped").values()
                else:
                    weights, modules = self.weights(case, method)[:1], self.modules(case, method)
                    trained = self.training_name(case, self.base(case, method))
                name = named(self.problem(case), "places", **parameters, trained=trained)
                code = self.code("placement", self.problem(case), modules)
                inputs: Inputs = {"functions": self.functions(case), "weights": weights}
                methods = () if table.shipped else (method,)
                headers = self.headers(case, inputs, methods=methods)
                if table.shipped:
                    headers[weights[0]] = "weights", {"problem": self.problem(case)}
                workers = self.config.experiments[chosen.experiment].reference_workers
                found.append(Job("placement", name, parameters, code, inputs, workers, headers))
        return found

    def _all_jobs(self) -> Iterator[Job]:
        for problem in self.config.problems:
            yield self.simulation_job(problem)
        yield from self.placement_jobs()
        for case in self.config.cases.values():
            name = case.name
            yield self.sensors_job(name)
            if (outputs := self.output_sensors_job(name)) is not None:
                yield outputs
            yield self.inference_job(name)
            yield self.reference_job(name, "validation")
            for method in case.methods:
                yield from self.trainings(name, method)
                yield from self.laws(name, method)
            for label in case.evaluations:
                yield self.reference_job(name, label)
                yield from self.evaluations(name, label)

    @cached_property
    def _jobs(self) -> dict[tuple[str, str], Job]:
        found: dict[tuple[str, str], Job] = {}
        for job in self._all_jobs():
            there = found.setdefault((job.rule, job.name), job)
            if job.workers > there.workers:
                found[job.rule, job.name] = job
        return found

    def job(self, rule: str, name: str) -> Job:
        """Return a job by its name.

        Raises
        ------
        ConfigError
            If no case of the configuration needs it.
        """
        found = self._jobs.get((rule, name))
        if found is None:
            raise ConfigError(
                f"the configuration needs no {rule} job {name!r}; {self.config.results}/jobs.csv "
                "lists those that it needs, once it is written"
            )
        return found

    def listed(self) -> Text:
        """Return which case reads which file, as CSV; files are those of the results folder."""
        lines, folder = ["rule,case,evaluation,method,file"], f"{self.config.results}/"
        for case in self.config.cases_of(self.config.selected):
            name = case.name

            def add(rule: str, label: str, method: str, file: str, name: str = name) -> None:
                lines.append(",".join((rule, name, label, method, file.removeprefix(folder))))

            add("simulate", "", "", self.functions(name))
            add("sensors", "", "", self.layouts(name))
            if (outputs := self.output_layouts(name)) is not None:
                add("sensors", "", "", outputs)
            for method in case.methods:
                judged = self.trainings(name, method)[0].inputs["reference"]
                add("reference", "validation", method, str(judged))
                for suffix in ("safetensors", "csv"):
                    for file in self.trained(name, method, suffix):
                        add("train", "", method, file)
                for job in self.laws(name, method):
                    for suffix in ("safetensors", "csv"):
                        add("law", "", method, self.file("law", job.name, suffix))
            for label in case.evaluations:
                add("reference", label, "", self.posteriors(name, label))
                for job in self.evaluations(name, label):
                    method = job.parameters["method"]
                    add("evaluate", label, method, self.file("evaluate", job.name, "csv"))
        return Text("\n".join(lines) + "\n")
