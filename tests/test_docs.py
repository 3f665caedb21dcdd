"""Examples of README and docs run, and what these pages name exists."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pydantic import BaseModel
from typer.main import get_command
from typer.testing import CliRunner

import uqsonet
from uqsonet.cli import app as library
from uqsonet.fitting import choose_answer
from uqsonet_study.cli import app as study
from uqsonet_study.config import Config
from uqsonet_study.loading import read_config

ROOT = Path(__file__).parents[1]
FROZEN = re.compile(r"Made at\s+commit[^\n]*(?:\n[^\n]+)*")
"""Paragraphs on studies whose code is in a former commit: no file or command there must exist."""
PAGES = [path for path in sorted(ROOT.glob("docs/*.md")) if not path.name.startswith("cli")]
DOCUMENTS = {
    str(path.relative_to(ROOT)): FROZEN.sub("", path.read_text(encoding="utf-8"))
    for path in [ROOT / "README.md", *PAGES]
}
ROOTS = [ROOT, ROOT / "docs", *(ROOT / "src" / name for name in ("uqsonet", "uqsonet_study"))]
PATH = re.compile(r"(?:[\w-]+/)+|(?:[\w.-]+/)*[\w-]+\.(?:py|cpp|md|yaml|toml|lock|csv|json|smk|sh)")
NAMES = {path.name for path in (ROOT / "src").rglob("*") if path.is_file()}
MADE = ("results", "state", "scores", "summary", "train", "data", ".snakemake")
"""Folders that a run makes: they are in no checkout."""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
FENCES = {
    name: re.findall(r"^ *```(\w+)\n(.*?)^ *```", text, flags=re.M | re.S)
    for name, text in DOCUMENTS.items()
}
PARSED = ("cd", "git", "pip", "python3", "source", "squeue", ".venv/bin/python")
"""What no example runs for real: a shell reads it. tests/test_bare.py installs the package."""
FASTER = {
    # Few runs and small sizes change numbers, not what runs.
    r"sensors=\[[\d, ]+\]": "sensors=[3]",
    r"--sensors (\d+),\S+": r"--sensors \1",
    r"\[500:\]": "[500:512]",
    r"\[:100\]": "[:20]",
    r"^uqsonet fit .*": r"\g<0> --law gaussian",
    r" \.\.\.$": "",  # more of the same
}


def code(text: str) -> list[str]:
    """Return what stands between backticks, blocks of code aside."""
    return re.findall(r"`([^`\n]+)`", text)


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures within the project."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def prepared(shape: tuple[int, ...]) -> dict[str, Any]:
    """Write files into the working folder, and return names, that examples take for granted."""
    rng = np.random.default_rng(0)
    axes = [np.linspace(0, 1, n) for n in shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(shape))
    waves = np.cos(3 * points @ rng.standard_normal((len(shape), 4)))
    K, F = (np.exp(0.4 * rng.standard_normal((80, 4)) @ waves.T) for _ in range(2))
    U = (K.mean(1, keepdims=True) + np.cumsum(K, 1) / points.size).reshape(80, *shape)
    grids = {"x": axes[0], **({"y": axes[1]} if len(axes) > 1 else {})}
    runs = uqsonet.Runs({"k": (K, points)}, {"u": (U, tuple(axes))})
    model = uqsonet.fit(runs, sensors=[3], law="gaussian", bar=False)
    model.save("mine.safetensors")
    with h5py.File("runs.h5", "w") as file:
        file.update({"k": K.reshape(U.shape), "f": F.reshape(U.shape), "u": U} | grids)
    for name, size in (("runs.nc", 80), ("more_runs.nc", 10)):
        data = {
            key: (["run", *grids], v.reshape(U.shape)[:size]) for key, v in (("k", K), ("u", U))
        }
        xr.Dataset(data, coords=grids).to_netcdf(name, engine="h5netcdf")
    locations = points[[2, 5, 7]]
    values, outputs = K[0, [2, 5, 7]], U[0].ravel()[[2, 5, 7]]
    frame = pd.DataFrame(dict(zip("xy", locations.T, strict=False)) | {"value": values})
    frame.to_csv("sensors.csv", index=False)
    shipped = ROOT / "src/uqsonet/emulator/weights/diffusion1d.safetensors"
    Path("model.safetensors").symlink_to(shipped)
    Path("results/train/diffusion1d/vidon-1").mkdir(parents=True)
    for trial in range(2):
        Path(f"results/train/diffusion1d/vidon-1/trial_{trial}.safetensors").symlink_to(shipped)
    noise_std = np.array([0.1, 0.1, 0.2])
    return {
        "uqsonet": uqsonet, "K": K, "U": U, "points": points, "x_axis": axes[0], "y_axis": axes[-1],
        "points_0": points, "values_0": K[0], "points_1": points, "values_1": K[1],
        "locations": locations, "values": values, "noise_std": noise_std, "u": outputs,
        "first": (locations, values), "second": (locations[:2], values[:2]), "held_out": runs[:8],
        "frame": frame,
        "weights": np.full((3, len(points)), 1 / len(points)), "wells": points[:4],
        "x": locations, "y": locations, "k": values, "queries": locations,
    }  # fmt: skip


@functools.cache
def planned(folder: Path, *words: str) -> None:
    """Have a command say what it would do: all of it takes hours."""
    program, *rest = words
    begin = [sys.executable, "-m", program] if program == "snakemake" else [program]
    command = [*begin, "--dry-run", *rest]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, shlex.join(words) + done.stdout + done.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without results, for what is only planned."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.name[0] != "." and path.name not in ("results", "config"):
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "config", folder / "config")
    return folder


def run_line(line: str, checkout: Path) -> None:
    """Run a line of a block for the shell; plan it if it takes hours."""
    words = shlex.split(line, comments=True)
    if words[0] in PARSED or "--report" in words:
        subprocess.run(["bash", "-n", "-c", line], check=True)
    elif words[0] in ("snakemake", "make"):
        planned(checkout, *words)
    elif words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], env=os.environ | PATHS, check=True)
    else:
        app = study if words[1] in get_command(study).commands else library  # type: ignore[attr-defined]
        done = CliRunner().invoke(app, words[1:])
        assert words[0] == "uqsonet" and done.exit_code == 0, line + done.output


TUTORIAL = "docs/tutorial.md"
FEWER = {
    r"\b550\b": "110",
    r"\b500\b": "90",
    r"\b507\b": "95",
    r'output="u"\)': 'output="u", transform={"k": "log"})',
    "--sensors 3,8": "--sensors 3 --transform k=log",
    "(validate .*) -o .*": r"\1",  # tests/test_commands.py looks at such a page
}
"""A fifth of the runs of the tutorial, with one transform."""
OUTPUTS = ("first.png", "rod.npz", "rod.png", "rod.html", "answer.csv", "answer.png")
"""What the tutorial writes."""


def start(name: str) -> dict[str, Any]:
    """Write what a page takes for granted into the working folder, and return its names."""
    names: dict[str, Any] = {}
    if name in ("README.md", "docs/hand-over.md", "docs/inverse.md"):
        names = prepared((9,))
    if name in ("docs/api.md", "docs/own-data.md"):
        names = prepared((5, 6))
    if name == "docs/api.md":
        names |= {"x": names["x_axis"], "y": names["y_axis"], "u": names["U"][0].ravel()}
    if name in ("docs/gallery.md", "docs/own-data.md"):
        shutil.copy(ROOT / "docs/own-data/sensors.csv", "sensors.csv")
        for path in ROOT.glob("docs/own-data/*.npz"):
            with np.load(path) as data:  # a fifth of the runs
                np.savez(path.name, **{k: v[:: 5 if k in "ap" else 1] for k, v in data.items()})
    return names


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == TUTORIAL else pytest.mark.docs)
        for name in FENCES
        if FENCES[name] and name != "docs/simulators.md"  # tests/own/test_simulators.py
    ],
)
@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
def test_examples_run(name, tmp_path, checkout, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", Mock())  # whoever uses it has it
    monkeypatch.setattr(choose_answer, "SAMPLED_RUNS", 3)
    for path in (*ROOT.glob("config*"), ROOT / "published"):
        (tmp_path / path.name).symlink_to(path)
    names, shorter = start(name), (FEWER if name == TUTORIAL else {}) | FASTER
    for kind, block in FENCES[name]:
        for pattern, short in shorter.items():
            block = re.sub(pattern, short, block, flags=re.M)
        if kind == "python":
            exec(block, names)
        elif kind == "console":
            for line in block.replace("\\\n", "").splitlines():
                run_line(line, checkout)
        elif kind == "yaml":
            (checkout / block.split()[1]).write_text(block)  # its first line has its name
        elif block.startswith("x,"):
            Path("sensors.csv").write_text(block)
    assert name != TUTORIAL or all((tmp_path / file).stat().st_size for file in OUTPUTS)


def test_every_block_says_what_it_is():
    for name, text in DOCUMENTS.items():
        outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        assert not re.search(r"^```\n\S", outside, flags=re.M), name
        assert not re.search(r"^\s*%", text, flags=re.M), name  # hides a line on the site
    kinds = {kind for blocks in FENCES.values() for kind, _ in blocks}
    assert kinds == {"console", "python", "text", "yaml"}


def test_links_lead_somewhere():
    for name, text in DOCUMENTS.items():
        folder = (ROOT / name).parent
        targets = {link: folder / link.partition("#")[0] for link in links(text)}
        assert [link for link, target in targets.items() if not target.exists()] == [], name


def test_every_document_is_reached_from_readme():
    seen, queue = set[str](), ["README.md"]
    while queue:
        name = queue.pop()
        if name in DOCUMENTS and name not in seen:
            seen.add(name)
            folder = (ROOT / name).parent
            targets = [(folder / link).resolve() for link in links(DOCUMENTS[name])]
            queue += [str(t.relative_to(ROOT)) for t in targets if t.is_relative_to(ROOT)]
    assert seen == set(DOCUMENTS)


def test_files_that_are_named_exist():
    written = {"scorecard.csv", "report.html"}
    for name, text in DOCUMENTS.items():
        cited = {found.split("::")[0] for found in code(text) if PATH.fullmatch(found)} - written
        cited = {
            found for found in cited if found.split("/")[0] not in MADE and "NAME" not in found
        }
        missing = [found for found in cited if not any((root / found).exists() for root in ROOTS)]
        assert set(missing) - NAMES == set(), name


def test_commands_exist():
    known = {word for app in (library, study) for word in get_command(app).commands}  # type: ignore[attr-defined]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.compile(r"^(?:uqsonet|make) .*$", flags=re.M)
    for command in (c for text in DOCUMENTS.values() for c in [*lines.findall(text), *code(text)]):
        for word in re.findall(r"^uqsonet ([a-z][a-z-]+)", command):
            assert word in known, command
        for word in re.findall(r"^make ([a-z-]+)", command):
            assert re.search(rf"^{word}:", makefile, flags=re.M), command


def keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the keys of a model: `*` is a name, and what a method of a recipe has stands alone."""
    for name, field in model.model_fields.items():
        inner, stars = models(field.annotation), name
        stars += ".*" * str(field.annotation).count("dict[") if inner else ""
        if not inner:
            yield before + name
        for one in inner:
            yield from keys(one, f"{before}{stars}.".replace("recipes.*.*.*.", ""))


def models(annotation: Any) -> set[type[BaseModel]]:
    """Return the models within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for one in get_args(annotation) for model in models(one)}


def test_the_page_of_the_configuration_has_every_key_once():
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENTS["docs/configuration.md"], flags=re.M)
    named = [key for row in rows for key in code(row)]
    assert sorted(named) == sorted(set(keys(Config)))


def test_every_experiment_table_and_figure_is_in_the_reproduction():
    config = read_config([ROOT / "config.yaml"])
    words = set(re.findall(r"[\w-]+", DOCUMENTS["docs/reproduction.md"]))
    assert set(config.tables) | set(config.figures) <= words
    assert set(config.experiments) <= words
