"""What docs/placement.md shows: its command and its Python run, and its numbers are published."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from uqsonet.cli import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/placement.md").read_text(encoding="utf-8")
SCORES = ROOT / "published/placement"


def block(kind: str) -> list[str]:
    """Return the lines of the page's block of a kind."""
    (found,) = re.findall(rf"<!-- {kind} -->\n(.*?)<!-- /{kind} -->", PAGE, flags=re.S)
    lines = [line.strip() for line in found.splitlines()]
    return [line for line in lines if line and not line.startswith("```")]


def test_the_command_gives_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = block("commands")
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
    found, shown = (tmp_path / "places.csv").read_text().splitlines(), block("places")
    assert found[0] == shown[0] and len(found) == len(shown)
    for one, other in zip(found[1:], shown[1:], strict=True):
        assert one.split(",")[:2] == other.split(",")[:2]
        numbers = [[float(cell) for cell in row.split(",")[2:]] for row in (one, other)]
        np.testing.assert_allclose(*numbers, rtol=1e-4)
    for picture in (tmp_path / "map.png", ROOT / "docs/placement/map.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_python_runs() -> None:
    names: dict[str, object] = {}
    exec("\n".join(block("python")), names)


def test_the_table_is_that_of_the_published_scores() -> None:
    scores = pd.read_csv(SCORES / "scores.csv")
    keys = zip(scores["problem"], scores["strategy"], scores["sensors"].astype(int), strict=True)
    std = dict(zip(keys, scores["std"].astype(float), strict=True))
    rows = [line.strip("| ").split(" | ") for line in block("scores")[2:]]
    assert len(rows) == scores["problem"].nunique()
    better = 0
    for name, greedy, spread, random, many, ratio in rows:
        problem = name.strip("`")
        four, eight = std[problem, "greedy", 4], std[problem, "random", 8]
        expected = [four, std[problem, "space_filling", 4], std[problem, "random", 4], eight]
        assert [greedy, spread, random, many] == [f"{value:.4f}" for value in expected]
        assert ratio == f"{four / eight:.2f}"
        better += four <= eight
    words = ["no", "one", "two", "three", "four", "five"]
    assert f"in {words[better]} of the five problems" in PAGE


def test_published_scores_are_those_of_the_layouts() -> None:
    scores = pd.read_csv(SCORES / "scores.csv")
    columns = ["problem", "sensors", "strategy", "std"]
    of = {tuple(key): float(std) for *key, std in scores[columns].to_numpy().tolist()}
    files = sorted((SCORES / "layouts").glob("*.csv"))
    assert len(files) == 5
    for path in files:
        table = pd.read_csv(path)[[*columns, "layout"]].to_numpy().tolist()
        for key in {tuple(row[:3]) for row in table}:
            single = [(layout, std) for *found, std, layout in table if tuple(found) == key]
            layouts = {layout for layout, _ in single}
            means = [np.mean([std for k, std in single if k == layout]) for layout in layouts]
            assert np.median(means) == pytest.approx(of[key], rel=1e-4)
