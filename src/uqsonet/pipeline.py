"""What the workflow needs to know of the package: source digests and the cutting of jobs.

Imports nothing heavy: Snakemake reads this at every start.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from uqsonet.config import BASELINES, Config, Evaluation
from uqsonet.errors import ConfigError

ROOT = Path(__file__).parent

WITHOUT_INFLUENCE = {
    "uqsonet",
    "uqsonet.config",
    "uqsonet.errors",
    "uqsonet.progress",
    "uqsonet.training.progress",
}
"""Modules that cannot change a result: every configured value reaches a job as a parameter."""


def _path(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _parse(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the module's code without comments, docstrings and layout, and what it imports."""
    path = _path(module)
    if path is None:
        return "", ()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("uqsonet"):
            imports.add(node.module or "")
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imports.update(a.name for a in node.names if a.name.startswith("uqsonet"))
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Docstrings are bare strings; so are the comments below attributes.
            kept = [x for x in body if not (isinstance(x, ast.Expr) and _is_text(x.value))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree), tuple(sorted(i for i in imports if _path(i) is not None))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def source_digest(modules: Iterable[str]) -> str:
    """Return a digest of modules and of all that they import within the package.

    Comments, docstrings and formatting have no influence.
    """
    seen: set[str] = set()
    queue = [m for m in modules if m not in WITHOUT_INFLUENCE]
    while queue:
        module = queue.pop()
        if module in seen:
            continue
        seen.add(module)
        queue.extend(m for m in _parse(module)[1] if m not in WITHOUT_INFLUENCE)
    digest = hashlib.sha256()
    for module in sorted(seen):
        digest.update(f"{module}\n{_parse(module)[0]}\n".encode())
    return digest.hexdigest()[:16]


def method_modules(method: str) -> list[str]:
    """Return the modules in `uqsonet.nn` that define a method, found by their text.

    Raises
    ------
    ConfigError
        If no file defines it.
    """
    if method in BASELINES or method == "reference":
        return []
    found, known = [], set()
    for path in sorted((ROOT / "nn").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "method":
                name = getattr(node.value, "value", None)
                known.add(str(name))
                if name == method:
                    found.append(f"uqsonet.nn.{path.stem}")
    if not found:
        raise ConfigError(f"method {method!r} is unknown; there are {', '.join(sorted(known))}")
    return found


def require_problem(name: str) -> None:
    """Refuse a problem without a file.

    Raises
    ------
    ConfigError
        Naming those that have one.
    """
    known = {p.stem for p in (ROOT / "problems").glob("*.py")} - {"__init__", "base"}
    if name not in known:
        raise ConfigError(f"problem {name!r} is unknown; there are {', '.join(sorted(known))}")


class Plan:
    """The jobs of a configuration, as the rules ask for them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        for experiment in config.experiments.values():
            require_problem(experiment.problem)
            for method in experiment.methods:
                method_modules(method)

    def problem(self, experiment: str) -> str:
        """Return the problem of an experiment."""
        return self.config.experiments[experiment].problem

    def stacks(self, experiment: str) -> dict[int, list[int]]:
        """Return stack number -> trials in it."""
        size, trials = self.config.jobs.trials_per_job, self.config.experiments[experiment].trials
        starts = range(0, trials, size)
        return {k: list(range(s, min(s + size, trials))) for k, s in enumerate(starts)}

    def scored(self, experiment: str) -> list[tuple[str, int]]:
        """Return (method, stack) of every evaluation job of an experiment."""
        learned = self.config.experiments[experiment].methods
        stacks = self.stacks(experiment)
        single = [(name, 0) for name in ("reference", *BASELINES)]
        return [(method, k) for method in learned for k in stacks] + single

    def scores(self, experiment: str) -> list[str]:
        """Return the score files of an experiment, both evaluations."""
        folder = f"{self.config.results}/evaluate/{experiment}"
        return [
            f"{folder}/{evaluation}/{method}/stack_{stack}.csv"
            for evaluation in ("paper", "precise")
            for method, stack in self.scored(experiment)
        ]

    def trained(self, experiment: str, method: str, suffix: str) -> list[str]:
        """Return the training outputs of a method, by stack: ``safetensors`` or ``csv``."""
        folder = f"{self.config.results}/train/{experiment}/{method}"
        return [f"{folder}/stack_{k}.{suffix}" for k in self.stacks(experiment)]

    def weights_scored(self, experiment: str, method: str, stack: int) -> dict[str, str]:
        """Return the weights that an evaluation reads; baselines have none."""
        if method not in self.config.experiments[experiment].methods:
            return {}
        return {"weights": self.trained(experiment, method, "safetensors")[stack]}

    def digest(
        self, *modules: str, experiment: str | None = None, method: str | None = None
    ) -> str:
        """Return the source digest of modules, with the problem and the method they run."""
        extra = [f"uqsonet.problems.{self.problem(experiment)}"] if experiment else []
        return source_digest([*modules, *extra, *(method_modules(method) if method else [])])

    def simulate(self, problem: str) -> str:
        """Return the parameters of a `simulate` job, as JSON."""
        return _spec(
            problem=problem,
            config=self.config.problems[problem].model_dump(mode="json"),
            seed=self.config.seed,
            code=source_digest(["uqsonet.simulation", f"uqsonet.problems.{problem}"]),
        )

    def sensors(self, experiment: str) -> str:
        """Return the parameters of a `sensors` job, as JSON."""
        data = self.config.problems[self.problem(experiment)]
        return _spec(
            problem=self.problem(experiment),
            config=self.config.experiments[experiment].sensors.model_dump(mode="json"),
            validation=data.validation,
            test=data.test,
            seed=self.config.seed,
            code=self.digest("uqsonet.layouts", experiment=experiment),
        )

    def reference(self, experiment: str, evaluation: Evaluation) -> str:
        """Return the parameters of a `reference` job, as JSON."""
        config = self.config.evaluation_of(experiment, evaluation)
        return _spec(
            split="validation" if evaluation == "validation" else "test",
            label=evaluation,
            config=config.model_dump(mode="json", exclude={"model_samples"}),
            noise_std=self.config.experiments[experiment].noise_std,
            seed=self.config.seed,
            code=self.digest("uqsonet.reference", experiment=experiment),
        )

    def train(self, experiment: str, method: str, stack: int) -> str:
        """Return the parameters of a `train` job, as JSON."""
        return _spec(
            method=method,
            problem=self.problem(experiment),
            config=self.config.method_of(experiment, method).model_dump(mode="json"),
            noise_std=self.config.experiments[experiment].noise_std,
            trials=self.stacks(experiment)[stack],
            seed=self.config.seed,
            code=self.digest("uqsonet.training.loop", experiment=experiment, method=method),
        )

    def evaluate(self, experiment: str, evaluation: Evaluation, method: str) -> str:
        """Return the parameters of an `evaluate` job, as JSON."""
        return _spec(
            experiment=experiment,
            method=method,
            label=evaluation,
            config=self.config.evaluation_of(experiment, evaluation).model_dump(mode="json"),
            noise_std=self.config.experiments[experiment].noise_std,
            seed=self.config.seed,
            code=self.digest("uqsonet.evaluation", experiment=experiment, method=method),
        )

    def report(self, module: str, experiment: str | None = None) -> str:
        """Return the parameters of a table or figure, as JSON."""
        config = self.config.model_dump(mode="json", exclude={"jobs", "results"})
        if experiment is not None:
            config["experiments"] = {experiment: config["experiments"][experiment]}
        problems = sorted({e["problem"] for e in config["experiments"].values()})
        modules = [module, *(f"uqsonet.problems.{name}" for name in problems)]
        cells = hashlib.sha256((ROOT / "report" / "paper_errors.csv").read_bytes()).hexdigest()[:16]
        return _spec(config=config, code=source_digest(modules), paper=cells)


def _spec(**values: Any) -> str:
    return json.dumps(values, sort_keys=True)
