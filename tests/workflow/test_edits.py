"""Ten edits, and the rules that each of them runs again in real Snakemake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.conftest import TARGETS, TINY, Project, jobs

pytestmark = [pytest.mark.dag, pytest.mark.timeout(0)]
OVERLAYS = "config/smoke.yaml", "config/tiny.yaml", "config/more.yaml"
ALL = (*TARGETS, f"{TINY}/inference/diffusion1d.json", f"{TINY}/tables/laws.tex")
MORE: dict[str, Any] = {
    "experiments": {"diffusion1d": {"methods": ["uqsonet", "mixture"]}},
    "recipes": {"tuned": {"diffusion1d": {"mixture": {"law_of": "uqsonet", "law": "mixture"}}}},
    "tables": {"laws": {"layout": "laws", "experiments": ["diffusion1d"]}},
}
"""Besides the tiny run: a law of the input for its operator, and their table."""


@pytest.fixture(scope="module")
def finished(tiny: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny run with a law, from which nothing is left to do."""
    project = tiny.copy(tmp_path_factory.mktemp("edits") / "project")
    project.overlay(MORE, "more")
    result = project.snakemake("--configfile", *OVERLAYS, "--", *ALL)
    assert result.returncode == 0, result.stdout + result.stderr
    assert planned(project) == {}
    return project


def planned(project: Project, *more: str) -> dict[str, int]:
    """Return rule -> number of jobs that a dry run plans."""
    result = project.snakemake("--dry-run", "--configfile", *OVERLAYS, *more, "--", *ALL)
    assert result.returncode == 0, result.stdout + result.stderr
    return jobs(result.stdout + result.stderr)


Edit = Callable[[Project], list[str]]


def source(path: str, old: str, new: str) -> Edit:
    """Return an edit of a source: the first `old` becomes `new`; without one `new` is appended."""

    def edit(project: Project) -> list[str]:
        file = project.path / path
        text = file.read_text()
        assert old in text, f"{path} has no {old!r}"
        file.write_text(text.replace(old, new, 1) if old else text + new)
        return []

    return edit


def configuration(values: dict[str, Any]) -> Edit:
    """Return an edit of the configuration."""
    return lambda project: [project.overlay(values, "edited")]


STUDY = "src/uqsonet_study"


def words(project: Project) -> list[str]:
    """Edit comments, a docstring, a message, a key's description and the layout of code."""
    for path, old, new in (
        (f"{STUDY}/trainer.py", "", "\n# a comment\n"),
        ("workflow/scripts/train.py", "", "\n# a comment\n"),
        ("src/uqsonet/operator/model.py", '"""The closed-form', '"""In words: the closed-form'),
        ("src/uqsonet/networks/train.py", 'f"the loss of trial', 'f"in words: the loss of trial'),
        (f"{STUDY}/settings.py", "Torch device.", "In words: the device."),
        (f"{STUDY}/solvers/elliptic1d.py", "from torch", "\n\nfrom torch"),
    ):
        source(path, old, new)(project)
    return []


RATE = {"training": {"learning_rate": 1e-3}}
SCORED = {"evaluate": 2, "summary": 1, "table": 2, "law_scores": 1}
"""Both methods, but not the baselines."""
TRAINED = {"train": 1, "law": 1, "inference": 1, "figure": 1, **SCORED}
EVERY = {"simulate": 1, "sensors": 1, "reference": 2, **TRAINED, "evaluate": 3}
EDITS: dict[str, tuple[Edit, dict[str, int]]] = {
    "a solver": (
        # Layouts, too: their grid is in the module of the problem, which imports its solver.
        source(f"{STUDY}/solvers/elliptic1d.py", "", "\nMORE = 1\n"),
        EVERY,
    ),
    "a law": (
        source("src/uqsonet/laws/mixture.py", "", "\nMORE = 1\n"),
        {**SCORED, "law": 1, "evaluate": 1, "inference": 1},
    ),
    "a figure's colour": (
        source(f"{STUDY}/report/figures/colours.py", "#D55E00", "#D55E01"),
        {"figure": 1},
    ),
    "a comment": (words, {}),
    "a version": (source("src/uqsonet/__init__.py", '__version__ = "', '__version__ = "1.'), {}),
    "a key of one recipe": (
        configuration({"recipes": {"tuned": {"diffusion1d": {"uqsonet": RATE}}}}),
        TRAINED,
    ),
    "a seed": (configuration({"seed": 7}), EVERY),
    "a table's caption": (
        source(f"{STUDY}/report/tables/captions.py", "Noiseless observations", "Exact sensors"),
        {"table": 2},
    ),
    "a table's template": (
        source(f"{STUDY}/report/templates/table.tex.j2", "", "% words\n"),
        {"table": 2},
    ),
    "a reference's size": (
        configuration({"evaluations": {"paper": {"samples": 40}}}),
        {**SCORED, "reference": 1, "evaluate": 3, "figure": 1},
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
