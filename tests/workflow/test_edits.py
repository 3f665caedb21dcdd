"""Ten edits, and the rules that each of them runs again in real Snakemake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workflow.conftest import Project, jobs

pytestmark = [pytest.mark.dag, pytest.mark.timeout(0)]
OVERLAYS = "config/smoke.yaml", "config/tiny.yaml", "config/more.yaml"
MORE: dict[str, Any] = {
    "select": ["diffusion1d", "membrane"],
    "problems": {
        "membrane": {
            "data": {"file": "runs.npz", "input": "load", "output": "w"},
            "training": 40,
            "validation": 5,
            "test": 5,
        }
    },
    "experiments": {
        "diffusion1d": {"methods": ["uqsonet", "mixture"]},
        "membrane": {
            "problem": "membrane",
            "sensors": {"counts": [2], "pool": 10},
            "methods": ["uqsonet"],
            "trials": 1,
            "evaluations": ["paper"],
        },
    },
    "recipes": {
        "tuned": {"diffusion1d": {"mixture": {"law_of": "uqsonet", "law": "mixture"}}},
    },
}
"""Besides the tiny run: a law of the input for its operator, and somebody's runs."""


def write_runs(path: Path, seed: int) -> None:
    load = np.random.default_rng(seed).standard_normal((50, 9)).cumsum(1)
    np.savez(path, load=load, w=load.cumsum(1), x=np.linspace(0, 1, 9))


@pytest.fixture(scope="module")
def finished(tiny: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny run with a law and own data, from which nothing is left to do."""
    project = tiny.copy(tmp_path_factory.mktemp("edits") / "project")
    write_runs(project.path / "runs.npz", 1)
    project.overlay(MORE, "more")
    result = project.snakemake("--configfile", *OVERLAYS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert planned(project) == {}
    return project


def planned(project: Project, *more: str) -> dict[str, int]:
    """Return rule -> number of jobs that a dry run plans."""
    result = project.snakemake("--dry-run", "--configfile", *OVERLAYS, *more)
    assert result.returncode == 0, result.stdout + result.stderr
    return jobs(result.stdout + result.stderr)


def source(path: str, old: str, new: str) -> Callable[[Project], list[str]]:
    """Return an edit of a source: the first `old` becomes `new`; without one `new` is appended."""

    def edit(project: Project) -> list[str]:
        file = project.path / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r}"
        file.write_text(text.replace(old, new, 1) if old else text + new)
        return []

    return edit


def configuration(values: dict[str, Any]) -> Callable[[Project], list[str]]:
    """Return an edit of the configuration."""
    return lambda project: [project.overlay(values, "edited")]


def own_data(project: Project) -> list[str]:
    write_runs(project.path / "runs.npz", 2)
    return []


STUDY = "src/uqsonet_study"


def words(project: Project) -> list[str]:
    """Edit comments, a docstring, a message and the layout of code."""
    for path, old, new in (
        (f"{STUDY}/trainer.py", "", "\n# a comment\n"),
        ("workflow/scripts/train.py", "", "\n# a comment\n"),
        ("src/uqsonet/operator/model.py", '"""The closed-form', '"""In words: the closed-form'),
        ("src/uqsonet/operator/train.py", 'f"the loss of trial', 'f"in words: the loss of trial'),
        (f"{STUDY}/solvers/elliptic1d.py", "from torch", "\n\nfrom torch"),
    ):
        source(path, old, new)(project)
    return []


RATE = {"training": {"learning_rate": 1e-3}}
SCORES = dict.fromkeys(("summary", "scorecard", "table", "all_tables", "page"), 1)
DRAWN = {"evaluate": 1, "figure": 1, **SCORES}
TRAINED = {"train": 1, "law": 1, "inference": 1, **DRAWN}
CONFIG = {"save_config": 1}
EDITS: dict[str, tuple[Callable[[Project], list[str]], dict[str, int]]] = {
    "a solver": (
        source(f"{STUDY}/solvers/elliptic1d.py", "", "\nMORE = 1\n"),
        # Layouts, too: their grid is in the module of the problem, which imports its solver.
        {"simulate": 1, "sensors": 1, "reference": 2, **TRAINED},
    ),
    "a law": (
        source("src/uqsonet/laws/mixture.py", "", "\nMORE = 1\n"),
        {"law": 1, "evaluate": 1, "inference": 1, **SCORES},
    ),
    "a figure's colour": (
        source(f"{STUDY}/report/figures/colours.py", "#D55E00", "#D55E01"),
        {"figure": 1, "page": 1},
    ),
    "a comment": (words, {}),
    "a version": (source("src/uqsonet/__init__.py", '__version__ = "', '__version__ = "1.'), {}),
    "a key of one recipe": (
        configuration({"recipes": {"tuned": {"diffusion1d": {"uqsonet": RATE}}}}),
        {**CONFIG, **TRAINED},
    ),
    "a seed": (
        configuration({"seed": 7}),
        {**CONFIG, **TRAINED, "simulate": 2, "sensors": 2, "reference": 4, "train": 2},
    ),
    "a table's caption": (
        source(f"{STUDY}/report/tables/captions.py", "Noiseless observations", "Exact readings"),
        {"table": 1, "all_tables": 1, "page": 1},
    ),
    "own data": (own_data, {"simulate": 1, "sensors": 1, "reference": 2, "train": 1, **DRAWN}),
    "a reference's size": (
        configuration({"evaluations": {"paper": {"reference_samples": 40}}}),
        {**CONFIG, "reference": 2, **DRAWN},
    ),
}
"""Edit -> what does it, and the jobs that it plans by rule."""


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_runs_what_it_changes_and_nothing_else(
    finished: Project, tmp_path: Path, name: str
) -> None:
    edit, expected = EDITS[name]
    project = finished.copy(tmp_path / "project")
    more = edit(project)
    assert planned(project, *more) == expected
