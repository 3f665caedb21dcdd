"""Tables, figures and the page: what they show and what they are made from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from uqsonet_study.config import (
    Case,
    Config,
    LawFigure,
    LearningFigure,
    PosteriorFigure,
    SpectraFigure,
)
from uqsonet_study.config.benchmark import AUTO
from uqsonet_study.pipeline.captions import figure_caption, picture_caption, table_caption
from uqsonet_study.pipeline.files import Files, Headers
from uqsonet_study.pipeline.sources import (
    data_digest,
    problem_modules,
    require_problem,
    source_digest,
)
from uqsonet_study.pipeline.specs import as_json


@dataclass(frozen=True)
class Figure:
    """How a figure is made.

    Attributes
    ----------
    inputs : dict of str to list of str
        Its files by kind.
    category : str
    labels : dict of str to str
        Under which Snakemake's own report shows it.
    spec : str
        Its parameters, as JSON: the module that draws it and what that is given.
    """

    inputs: dict[str, list[str]]
    category: str
    labels: dict[str, str]
    spec: str


class Plan(Files):
    """Everything that the rules ask for.

    Raises
    ------
    ConfigError
        If no file defines a problem or a method that the configuration names.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for name, experiment in config.experiments.items():
            require_problem(experiment.problem, config.has_own_data(name))
        for case in config.cases.values():
            for method in case.methods:
                self.model(case.name, method)

    def tables(self) -> dict[str, list[str]]:
        """Return the tables of this run, each with those of its experiments that are selected.

        The paper's come first, whatever the order of configuration files.
        """
        found = self._outputs(self.config.tables, some=True)
        others = ("ablation", "scores", "laws", "placement")
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
        tables, figures = (
            ", ".join(sorted(set(declared) - set(made))) or "none"
            for declared, made in (
                (self.config.tables, self.tables()),
                (self.config.figures, self.figures()),
            )
        )
        folder = self.config.results
        return (
            f"select: {', '.join(self.config.selected)} alone. {folder}/tables/all.tex, "
            f"{folder}/scorecard.csv and {folder}/report.html will show nothing else; give "
            f"`results` another folder to keep those that are there. Left as they are: tables "
            f"{tables}; figures {figures}"
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

    def scored(self) -> list[str]:
        """Return the names of the jobs whose scores are summarised or compared."""
        cases = self.config.cases_of([*self.summarised(), *self.of_laws()])
        jobs = (job for c in cases for e in c.evaluations for job in self.evaluations(c.name, e))
        return list(dict.fromkeys(job.name for job in jobs))

    def table_inputs(self, name: str) -> dict[str, list[str]]:
        """Return the files that a table is made from, by kind."""
        experiments = self.tables()[name]
        layout = self.config.tables[name].layout
        if layout == "networks":
            return {}
        if layout == "laws":
            return {"scores": [f"{self.config.results}/scores.csv"]}
        if layout == "placement":
            return {"scores": [self.place_scores()]}
        if layout not in ("costs", "ablation"):
            return {"summaries": [f"{self.config.results}/summary/{e}.csv" for e in experiments]}
        of_each = self.logs(name).values()
        found = {"logs": list(dict.fromkeys(f for of in of_each for fs in of.values() for f in fs))}
        if layout == "costs":
            cases = self.config.cases_of(experiments)
            found["inference"] = [f"{self.config.results}/inference/{c.name}.json" for c in cases]
        return found

    def logs(self, table: str) -> dict[str, dict[str, list[str]]]:
        """Return case -> method -> the training logs that a table reads."""
        if self.config.tables[table].layout not in ("costs", "ablation"):
            return {}
        return {
            case.name: {method: self.trained(case.name, method, "csv") for method in case.methods}
            for case in self.config.cases_of(self.tables()[table])
        }

    def of_laws(self) -> list[str]:
        """Return the selected experiments whose laws of the input are compared in a table."""
        shown = self.tables().items()
        found = {e for t, es in shown if self.config.tables[t].layout == "laws" for e in es}
        return [e for e in self.config.selected if e in found]

    def law_files(self) -> dict[str, list[str]]:
        """Return case -> score files, for the cases whose laws are compared."""
        return {case: fs for e in self.of_laws() for case, fs in self.score_files(e).items()}

    def place_scores(self) -> str:
        """Return the file of the scores of places."""
        return f"{self.config.results}/placement/scores.csv"

    def place_files(self) -> list[str]:
        """Return the files of scored places; there are none without a table of that layout."""
        return [self.file("placement", job.name, "csv") for job in self.placement_jobs()]

    def panels(self, name: str) -> list[dict[str, Any]]:
        """Return the panels of a figure of posteriors or of their samples."""
        figure = self.config.figures[name]
        if isinstance(figure, SpectraFigure):
            cases = self.config.cases_of(figure.experiments)
            return [self._panel(c, c.sensors.counts[len(c.sensors.counts) // 2]) for c in cases]
        if isinstance(figure, LawFigure):
            case = self.config.case(figure.experiment, sensors=figure.count)
            first = [self.weights(case.name, method)[0] for method in figure.methods]
            panel = self._panel(case, figure.count, None) | {"weights": first}
            return [panel | {"headers": self._headers(case, panel, figure.methods)}]
        assert isinstance(figure, PosteriorFigure)
        found = []
        for count, noise in product(figure.counts, figure.noise_std):
            case = self.config.case(figure.experiment, noise_std=noise, sensors=count)
            found.append(self._panel(case, count, figure.method))
        return found

    def _panel(self, case: Case, count: int, method: str | None = "uqsonet") -> dict[str, Any]:
        """Return one observation set's files: functions, reference, weights that predict."""
        panel = {
            "sensors": count,
            "noise_std": case.noise_std,
            "functions": self.functions(case.name),
            "reference": self.posteriors(case.name, case.evaluations[0]),
        }
        if method is not None:
            weights = self.weights(case.name, method)
            ensemble = self.is_ensemble(case.name, method)
            panel |= {"weights": weights if ensemble else weights[:1], "ensemble": ensemble}
        return panel | {"headers": self._headers(case, panel, [method] if method else [])}

    def _headers(self, case: Case, panel: dict[str, Any], methods: list[str]) -> Headers:
        files = {kind: panel.get(kind, []) for kind in ("functions", "reference", "weights")}
        return self.headers(case.name, files, case.evaluations[0], methods)

    def runs(self, figure: LearningFigure) -> list[dict[str, Any]]:
        """Return what a figure of learning shows, with the logs of all that was fitted for it."""
        return [
            {
                "case": case.name,
                "method": method,
                "network": self.config.method_of(case.name, base).network.architecture,
                "training": self.trained(case.name, base, "csv"),
                "laws": self.law_logs(case.name, method),
            }
            for case in self.config.cases_of(figure.experiments)
            for method in case.methods
            for base in [self.base(case.name, method)]
        ]

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

    def _picture_files(self, experiment: str, kind: str) -> dict[str, list[Any]]:
        """Return what a picture of an experiment is drawn from."""
        case = self.config.cases[self.first_cases()[experiment]]
        if kind == "layouts":
            return {"sensors": [self.layouts(case.name)]}
        if kind == "training":
            logs = (f for m in case.methods for f in self.trained(case.name, m, "csv"))
            return {"logs": list(dict.fromkeys(logs))}
        counts = case.sensors.counts
        shown = sorted({counts[0], counts[len(counts) // 2], counts[-1]})
        return {"panels": [self._panel(case, m, method=None) for m in shown]}

    def figure(self, name: str) -> Figure:
        """Return how a declared figure or a picture of a problem is made."""
        declared = self.config.figures.get(name)
        if declared is None:
            experiment, _, layout = name.rpartition("_")
            experiments, category = [experiment], "Data and training"
            labels = {"experiment": experiment, "shows": layout}
            files = self._picture_files(experiment, layout)
        else:
            layout, experiments, labels = declared.layout, declared.experiments, {"figure": name}
            in_paper = layout in ("posterior", "compare")
            category = "Figures of the paper" if in_paper else "More figures"
            summaries = [f"{self.config.results}/summary/{e}.csv" for e in experiments]
            panelled = layout in ("posterior", "spectra", "laws")
            files: dict[str, list[Any]] = {"summaries": summaries}
            if panelled:
                files = {"panels": self.panels(name)}
            if isinstance(declared, LearningFigure):
                files["runs"] = self.runs(declared)
            if layout == "placement":
                files = {"scores": [self.place_scores()]}
        module = f"uqsonet_study.report.figures.{layout}"
        told, headers = dict[str, Any](figure=name, drawn_by=module), Headers()
        of_panels: list[Any] = [*files.get("panels", [])]
        for panel in of_panels:
            headers |= panel.pop("headers")
        if headers:
            told["headers"] = headers
        spec = self.report(module, experiments, **told, files=files)
        return Figure(_flat(files), category, labels, spec)

    def report(
        self,
        module: str,
        experiments: list[str] | None = None,
        table: str | None = None,
        figure: str | None = None,
        **values: Any,
    ) -> str:
        """Return the parameters of a table, a figure or a summary, as JSON.

        They hold that part of the configuration which concerns the given experiments, so what is
        changed elsewhere draws nothing anew.
        """
        config = self._part(experiments or self.config.selected)
        # Without a name all tables that show nothing but these experiments: the scorecard's.
        tables = [table] if table else self.tables()
        config["tables"] = {
            n: _restricted(v, config["experiments"])
            for n, v in config["tables"].items()
            if n in tables and (table or experiments is None)
        }
        config["figures"] = {n: v for n, v in config["figures"].items() if n == figure}
        modules = [module, *problem_modules(config["problems"])]
        return as_json(
            config=config, code=source_digest(modules), paper=data_digest(".csv"), **values
        )

    def _part(self, experiments: list[str]) -> dict[str, Any]:
        """Return the configuration of some experiments alone."""
        config = self.config.model_dump(
            mode="json", exclude={"jobs", "results", "select", "benchmark"}
        )
        config["experiments"] = {e: config["experiments"][e] for e in experiments}
        problems = sorted({e["problem"] for e in config["experiments"].values()})
        config["problems"] = {name: config["problems"][name] for name in problems}
        recipes = sorted({self.config.recipe_of(e) for e in experiments})
        config["recipes"] = {
            r: {p: v for p, v in config["recipes"][r].items() if p in problems} for r in recipes
        }
        return config

    def caption(self, name: str, table: bool = False) -> tuple[str, str]:
        """Return title and caption of a figure, of a picture or of a table."""
        if table:
            return table_caption(self.config, name)
        declared = name in self.config.figures
        return (figure_caption if declared else picture_caption)(self.config, name)

    def benchmark(self, name: str, pairs: int) -> str:
        """Return the parameters of a benchmark's job, as JSON; without pairs the exact answer."""
        found = self.config.benchmark
        assert found is not None
        one = found.problems[name]
        code = source_digest(["uqsonet_study.benchmark", *problem_modules([one.problem])])
        config = found.model_dump(mode="json", exclude={"published", "problems"})
        own = one.model_dump(mode="json", exclude={"pairs"}, exclude_none=True)
        told: dict[str, Any] = {"name": name, "config": config | own, "pairs": pairs}
        if weights := self.benchmark_weights(name, pairs):
            told["headers"] = self.headers(str(one.experiment), {"weights": weights}, None, [AUTO])
        return as_json(**told, seed=self.config.seed, code=code)

    def benchmark_weights(self, name: str, pairs: int) -> list[str]:
        """Return the file of the operator and law that a benchmark's job may answer with."""
        assert self.config.benchmark is not None
        case = self.config.benchmark.problems[name].experiment
        if case is None or self.config.cases[case].training != pairs:
            return []
        return self.weights(case, AUTO)[:1]

    def page(self) -> str:
        """Return the parameters of the page that shows everything, as JSON."""
        captions = {name: self.caption(name) for name in (*self.figures(), *self.pictures())}
        config = self.config.model_dump(mode="json", exclude={"jobs", "results", "benchmark"})
        code = source_digest(["uqsonet_study.report.page.sections"])
        return as_json(config=config, captions=captions, code=code, data=data_digest())


def _restricted(table: dict[str, Any], experiments: dict[str, Any]) -> dict[str, Any]:
    """Return a table with those of its experiments that are given."""
    found = table | {"experiments": [e for e in table["experiments"] if e in experiments]}
    for key in {"functions_of", "samples_of"} & set(table):
        found[key] = {e: n for e, n in table[key].items() if e in experiments}
    return found


def _flat(files: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Return the files of a figure by kind, those of its panels once each."""
    if "runs" in files:
        runs = files["runs"]
        logs = {kind: [f for run in runs for f in run[kind]] for kind in ("training", "laws")}
        return {"summaries": files["summaries"]} | {
            kind: list(dict.fromkeys(found)) for kind, found in logs.items()
        }
    if "panels" not in files:
        return files
    kinds = {"functions": [], "reference": [], "weights": []}
    for panel in files["panels"]:
        kinds["functions"].append(panel["functions"])
        kinds["reference"].append(panel["reference"])
        kinds["weights"] += panel.get("weights", [])
    return {kind: list(dict.fromkeys(found)) for kind, found in kinds.items()}
