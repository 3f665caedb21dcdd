"""The notebooks of docs/notebooks run, and show what is kept in them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from docs.run_notebooks import FOLDER, run

NAMES = ("inverse", "own-data", "placement")


def shown(notebook: dict[str, Any]) -> list[list[tuple[str, object]]]:
    """Return of each cell the kinds of what it shows, and its text with numbers left out."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] == k for k, cell in enumerate(cells, 1))
    return [
        [
            (kind, re.sub(r"-?[\d.]+(?:e-?\d+)?", "#", "".join(one.get("text", "")))
             if kind == "stream" else sorted(one["data"]))
            for one in cell["outputs"] for kind in [one["output_type"]]
        ]
        for cell in cells
    ]  # fmt: skip


def test_there_are_three_and_each_can_be_launched():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == list(NAMES)
    project = tomllib.loads(Path(FOLDER, "../../pyproject.toml").read_text())["project"]
    home = project.get("urls", {}).get("Repository", "https://github.com/uqsonet/uqsonet")
    for name in NAMES:
        text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
        nbformat.validate(json.loads(text))
        path = f"{home.removeprefix('https://github.com/')}/blob/main/docs/notebooks/{name}.ipynb"
        assert f"https://colab.research.google.com/github/{path}" in text
        assert f"git+{home}'" in text


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_is_kept(name, tmp_path, monkeypatch):
    kept = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    before = shown(kept)
    assert shown(run(kept)) == before
    assert ["image/png", "text/plain"] in [data for cell in before for _, data in cell]
