"""`make published`: every step can be run as it stands, is recorded, and is done once a commit."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import published
from benchmarks.published import Step, commit, main, steps
from uqsonet_study.cli import read_config

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"smoke", "paper", "own_data"}
"""Overlays that no published number comes from: small runs, a GPU's, and an example."""


def overlays(command: str) -> list[Path]:
    """Return the configuration files that a command names."""
    return [ROOT / word for word in shlex.split(command) if word.endswith(".yaml")]


def test_every_overlay_is_run_and_writes_where_it_is_published_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    known = steps()
    named = {path for step in known.values() for c in step.commands for path in overlays(c)}
    assert all(path.is_file() for path in named)
    there = {path.stem for path in ROOT.glob("config/*.yaml")}
    assert {path.stem for path in named if path.parent.name == "config"} >= there - OTHERS
    for step in known.values():
        if step.run is not None:
            config = read_config([ROOT / "config.yaml", *overlays(step.commands[0])])
            assert Path(config.results) == step.run[0]


def test_a_benchmark_that_is_stopped_leaves_what_is_published() -> None:
    """Its files are copied when all its commands are done."""
    known = steps()
    step = known["own_data"]
    words = [word for command in step.commands for word in command.split()]
    written = [word for word in words if word.endswith(".csv")]
    assert written
    assert all(any(Path(word).match(pattern) for pattern in step.copies) for word in written)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one source file, and steps that copy it."""
    (tmp_path / "source.txt").write_text("1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "ROOT", tmp_path)
    known = {
        "one": Step(("cp source.txt out.txt",), copies={"out.*": Path("published/one")}),
        "two": Step(("cp source.txt published/two.txt",)),
    }
    monkeypatch.setattr(published, "steps", lambda: known)
    (tmp_path / ".git/info/exclude").write_text("out.txt\n")
    return tmp_path


def test_steps_are_recorded_and_done_once_a_commit_and_its_commands(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(only=["one"])
    main()
    assert "one: done" in capsys.readouterr().out
    table = pd.read_csv(project / "published/steps.csv")
    assert list(table["step"]) == ["one", "two"]
    assert set(table["commit"]) == {commit()}
    assert (project / "published/one/out.txt").read_text() == "1"
    assert (project / "published/two.txt").read_text() == "1"
    changed = {"one": Step(("cp source.txt published/other.txt",))}
    monkeypatch.setattr(published, "steps", lambda: changed)
    main()
    assert "one: done" not in capsys.readouterr().out
    assert (project / "published/other.txt").read_text() == "1"
    run = Step(("snakemake --cores {cores} a && b --cores {cores}",))
    row = {"commit": "a", "commands": "snakemake --cores 8 a && b --cores 8"}
    assert published.is_done(row, run, "a") and not published.is_done(row, run, "b")


def test_sources_that_are_not_committed_and_unknown_steps_are_refused(project: Path) -> None:
    with pytest.raises(SystemExit, match="no step thre: there are one, two"):
        main(only=["thre"])
    (project / "published").mkdir()
    (project / "published/old.txt").write_text("what steps write is no source")
    before = commit()
    (project / "source.txt").write_text("2")
    with pytest.raises(SystemExit, match=r"commit these first[^\n]*\n[^\n]*source\.txt"):
        main()
    assert not (project / "published/steps.csv").exists()
    (project / "source.txt").write_text("1")
    assert commit() == before
