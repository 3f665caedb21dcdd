"""What an edit of the sources makes new: the digest behind every rule."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from uqsonet.errors import ConfigError
from uqsonet_study import sources

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "workflow/scripts"
PROBLEM = "uqsonet_study.problems.diffusion1d"
TRAINER, LOOP = "uqsonet_study.trainer", "uqsonet.networks.train"
SOLVER = "uqsonet_study.solvers.elliptic1d"
STYLE = "uqsonet_study.report.figures.style"
MODELS = {name: sources.model_module("uqsonet", name) for name in ("karhunen_loeve", "attention")}


def digests() -> dict[str, str]:
    """Return the digest of every rule's script, of training by model."""
    of_problem = ("simulate", "sensors", "reference")
    found = {
        rule: sources.digest([SCRIPTS / f"{rule}.py"], [PROBLEM] if rule in of_problem else [])
        for rule in (*of_problem, "evaluate", "inference", "summary", "table", "all_tables")
    }
    for name, model in MODELS.items():
        found[f"train {name}"] = sources.digest([SCRIPTS / "train.py"], [model])
    figure = "uqsonet_study.report.figures.compare"
    found["figure"] = sources.digest([SCRIPTS / "figure.py"], [figure])
    for law in ("mixture", "latent", "auto"):
        found[f"law {law}"] = sources.digest([SCRIPTS / "law.py"], sources.law_modules(law))
    return found


def forget() -> None:
    for function in (sources._tree, sources._files, sources._needed, sources._data):
        function.cache_clear()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sources in a copy that may be edited."""
    root = tmp_path_factory.mktemp("sources")
    for package in sources.PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.safetensors")
        shutil.copytree(ROOT / "src" / package, root / package, ignore=ignored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "ROOT", root)
        forget()
        digests()
        yield root
    forget()


def changed(copy: Path, *edits: tuple[str, Callable[[str], str]]) -> set[str]:
    """Return the jobs that edits of modules, or of files, plan; the edits are taken back."""
    forget()
    before = digests()
    paths = [copy / name if "/" in name else sources._path(name) or Path(name) for name, _ in edits]
    kept = {path: path.read_text() for path in paths}
    for path, (_, edit) in zip(paths, edits, strict=True):
        text = path.read_text()
        path.write_text(edit(text))
        assert path.read_text() != text, "the edit changed nothing"
    forget()
    after = digests()
    for path, text in kept.items():
        path.write_text(text)
    return {job for job in before if before[job] != after[job]}


def first(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def added(text: str) -> str:
    return text + "\nMORE = 1\n"


def test_words_versions_and_writing_plan_nothing(copy: Path) -> None:
    in_other_words = first('"""', '"""In other words. ')
    assert not changed(
        copy,
        (LOOP, first('"the loss of trial', '"in other words: the loss of trial')),
        ("uqsonet", first('__version__ = "', '__version__ = "9.')),
        (TRAINER, lambda text: text + "\n# a comment\n"),
        (MODELS["karhunen_loeve"], in_other_words),
        ("uqsonet_study.settings", first("Torch device.", "In other words: the device.")),
        (SOLVER, first("from torch", "\n\nfrom torch")),
    )
    # Nor do modules that no script imports.
    assert not changed(
        copy,
        ("uqsonet_study.ship", added),
        ("uqsonet_study.cli", added),
    )


def test_an_edit_reruns_what_it_changes_and_nothing_else(copy: Path) -> None:
    trainings = {f"train {name}" for name in MODELS}
    iterations = first("progress.iteration += 1", "progress.iteration += 2")
    assert changed(copy, (LOOP, iterations)) == trainings
    assert trainings & changed(copy, (MODELS["attention"], added)) == {"train attention"}
    solver = changed(copy, (SOLVER, added))
    assert {"simulate", "reference"} <= solver and not {*trainings, "evaluate"} & solver
    # Laws are imported by name.
    assert changed(copy, ("uqsonet.laws.mixture", added)) == {"law mixture", "law auto"}
    assert sources.law_modules("gaussian") == sources.law_modules(None) == []


def test_an_edit_of_the_report_or_of_kinds_of_tables_reruns_the_report(copy: Path) -> None:
    assert changed(copy, (STYLE, added)) == {"figure"}
    reports = {"summary", "table", "figure", "all_tables"}
    for module in ("uqsonet_study.report.tables.captions", "uqsonet_study.config"):
        found = changed(copy, (module, added))
        assert "table" in found and found <= reports
    template = "uqsonet_study/report/templates/table.tex.j2"
    assert changed(copy, (template, lambda text: text + "% words\n")) == {"table", "all_tables"}
    numbers = "uqsonet_study/report/paper_errors.csv"
    assert "table" in changed(copy, (numbers, first("5.35", "5.36")))


def test_a_script_is_part_of_its_digest(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("from uqsonet_study.layouts import load_layouts\n")
    before = sources.digest([script])
    script.write_text('"""Words."""\nfrom uqsonet_study.layouts import load_layouts  # words\n')
    assert before == sources.digest([script]) != sources.digest()
    script.write_text("from uqsonet_study.layouts import generate_layouts, load_layouts\n")
    assert before != sources.digest([script])
    with pytest.raises(ModuleNotFoundError, match="elsewhere"):
        sources.digest(modules=["uqsonet.elsewhere"])


def test_models_and_problems_are_found_by_name() -> None:
    assert sources.model_module("vidon", "attention") == "uqsonet.networks.attention"
    assert sources.problem_module("poisson2d") == "uqsonet_study.problems.poisson2d"
    with pytest.raises(ConfigError, match=r"no method 'gnn' of .* vidon \(attention\)"):
        sources.model_module("gnn", "attention")
    with pytest.raises(ConfigError, match=r"'diffusion9d' is unknown; there are .*diffusion1d"):
        sources.problem_module("diffusion9d")
