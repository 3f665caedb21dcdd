"""What README and docs name exists, and what they state is what is configured and published.

Tables of results are compared by tests/report/test_readme.py.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h5py
import numpy as np
import pandas as pd
import pytest
import typer.cli
import xarray as xr
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import uqsonet
from uqsonet.cli import app as library
from uqsonet_study.cli import app as study
from uqsonet_study.config import (
    Config,
    EvaluationConfig,
    ExperimentConfig,
    JobsConfig,
    ProblemConfig,
    json_schema,
    load_config,
)

ROOT = Path(__file__).parents[1]
FROZEN = re.compile(r"Made at\s+commit[^\n]*(?:\n[^\n]+)*")
"""Paragraphs on studies whose code is in a former commit: no file or command there must exist."""
DOCUMENTS = {
    str(path.relative_to(ROOT)): FROZEN.sub("", path.read_text(encoding="utf-8"))
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
}
ROOTS = [ROOT, ROOT / "docs", *(ROOT / "src" / name for name in ("uqsonet", "uqsonet_study"))]
PATH = re.compile(r"(?:[\w-]+/)+|(?:[\w.-]+/)*[\w-]+\.(?:py|cpp|md|yaml|toml|lock|csv|json|smk|sh)")
NAMES = {path.name for path in (ROOT / "src").rglob("*") if path.is_file()}
MADE = ("results", "state", "simulate", "evaluate", "summary", "inference", "figures", "tables")
"""Folders that a run makes: they are in no checkout."""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
CONFIG: Config = load_config(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))


def code(text: str) -> list[str]:
    """Return what stands between backticks, blocks of code aside."""
    return re.findall(r"`([^`\n]+)`", text)


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures within the project."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


FENCES = {
    name: re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.M | re.S)
    for name, text in DOCUMENTS.items()
    if not name.startswith("docs/cli")  # written by typer
}
PARSED = ("cd", "pip", "python3", "source", "squeue", ".venv/bin/python")
"""What no example runs for real: a shell reads it. tests/test_bare.py installs the package."""
FASTER = {
    # Linear models, few runs and small sizes: minutes of training change numbers, not what runs.
    r"minutes=\d+": "minutes=0, law='gaussian'",
    r"sensors=\[[\d, ]+\]": "sensors=[3]",
    r"--sensors (\d+),\S+": r"--sensors \1",
    r"\[500:\]": "[500:512]",
    r"^uqsonet fit.*": r"\g<0> --minutes 0 --law gaussian",
    r"(, size, sets = .*), 8$": r"\1, 1",
    r"(problem\.sample\(generator), 20\)": r"\1, 1)",
    r'("darcy128"\)), 500, 200$': r"\1, 40, 10",
    r"(default_rng\(0\)), 16\)": r"\1, 2)",
    r"^python -m benchmarks --only \w+": r"\g<0> --quick",
    # tests/report/test_ship.py does it: here are no results.
    r"^uqsonet ship .*": r"\g<0> --help",
    r"^python -m benchmarks\.mechanism (?:.*\\\n)*.*": "python -m benchmarks.mechanism --help",
    # What stands for a name, and for more of the same.
    "<problem>": "diffusion1d",
    "<experiment>_data": "diffusion1d_data",
    "<experiment>_layouts": "elliptic_sde2d_layouts",
    r" \.\.\.$": "",
}


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
    model = uqsonet.fit(runs, minutes=0, sensors=[3], law="gaussian", bar=False)
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
    start = [sys.executable, "-m", program] if program == "snakemake" else [program]
    command = [*start, "--dry-run", *rest]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, shlex.join(words) + done.stdout + done.stderr


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without results, for what is only planned."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.name[0] != "." and path.name != "results":
            (folder / path.name).symlink_to(path)
    return folder


def run_line(line: str, checkout: Path) -> None:
    """Run a line of a block for the shell; plan it if it takes hours."""
    words = shlex.split(line, comments=True)
    if words[0] in PARSED:
        subprocess.run(["bash", "-n", "-c", line], check=True)
    elif words[0] in ("snakemake", "make"):
        planned(checkout, *words)
    elif words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], env=os.environ | PATHS, check=True)
    else:
        app = study if words[1] in get_command(study).commands else library  # type: ignore[attr-defined]
        done = CliRunner().invoke(app, words[1:])
        assert words[0] == "uqsonet" and done.exit_code == 0, line + done.output


def run_block(kind: str, block: str, names: dict[str, Any], checkout: Path) -> None:
    """Run a block of a page in the working folder, as fast as it goes."""
    for pattern, short in FASTER.items():
        block = re.sub(pattern, short, block, flags=re.M)
    if kind == "python":
        exec(block, names)
    elif kind == "console":
        for line in block.replace("\\\n", "").splitlines():
            run_line(line, checkout)
    elif block.startswith("x,"):
        Path("sensors.csv").write_text(block)


TUTORIAL = "docs/tutorial.md"
ELSEWHERE = (TUTORIAL, "docs/simulators.md")  # tests/own/test_simulators.py
FEWER = {
    r"\b550\b": "110",
    r"\b500\b": "90",
    r"\b507\b": "95",
    r'output="u"\)': 'output="u", transform={"k": "log"})',
    "--sensors 3,8": "--sensors 3 --transform k=log",
    "(validate .*) -o .*": r"\1",  # tests/test_commands.py looks at such a page
}
"""A fifth of the runs of the tutorial, with one transform."""


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    """The folder of somebody who has typed all of the tutorial."""
    folder, names = tmp_path_factory.mktemp("tutorial"), dict[str, Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, block in FENCES[TUTORIAL]:
            for pattern, short in FEWER.items():
                block = re.sub(pattern, short, block)
            run_block(kind, block, names, checkout)
    return folder


def test_the_tutorial_runs_and_writes_what_it_names(tutorial):
    for name in ("first.png", "rod.npz", "rod.png", "rod.html", "answer.csv", "answer.png"):
        assert (tutorial / name).stat().st_size > 0
    model = uqsonet.load(tutorial / "rod.safetensors")
    mean = model.condition(tutorial / "sensors.csv").mean()
    table = np.genfromtxt(tutorial / "answer.csv", delimiter=",", names=True)
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-6, atol=1e-9)


@pytest.mark.docs
@pytest.mark.parametrize(
    "name", [name for name in FENCES if FENCES[name] and name not in ELSEWHERE]
)
@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
def test_examples_run(name, tmp_path, checkout, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", Mock())  # whoever uses it has it
    names: dict[str, Any] = {}
    for path in (*ROOT.glob("config*"), ROOT / "published"):
        (tmp_path / path.name).symlink_to(path)
    small = ("hand-over", "reading-the-code", "inverse")
    if name in ("README.md", *(f"docs/{page}.md" for page in small)):
        names = prepared((9,))
    if name in ("docs/api.md", "docs/own-data.md"):
        names = prepared((5, 6))
    if name == "docs/api.md":
        names |= {"x": names["x_axis"], "y": names["y_axis"], "u": names["U"][0].ravel()}
    if name in ("docs/gallery.md", "docs/own-data.md"):
        shutil.copy(ROOT / "docs/own-data/sensors.csv", tmp_path)
        for path in ROOT.glob("docs/own-data/*.npz"):
            with np.load(path) as data:  # a fifth of the runs
                np.savez(path.name, **{k: v[:: 5 if k in "ap" else 1] for k, v in data.items()})
    for kind, block in FENCES[name]:
        run_block(kind, block, names, checkout)


def test_every_block_says_what_it_is():
    for name, text in DOCUMENTS.items():
        outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        assert not re.search(r"^```\n\S", outside, flags=re.M), name
    kinds = {kind for blocks in FENCES.values() for kind, _ in blocks}
    assert kinds == {"console", "python", "text", "yaml"}


def test_no_line_begins_with_a_percent_sign_which_hides_it_on_the_site():
    for name, text in DOCUMENTS.items():
        assert not re.search(r"^\s*%", text, flags=re.M), name


@pytest.mark.parametrize(("page", "package"), [("cli", "uqsonet"), ("cli-study", "uqsonet_study")])
def test_the_pages_of_the_command_line_are_those_typer_writes(page, package):
    title = DOCUMENTS[f"docs/{page}.md"].partition("\n")[0].removeprefix("# ")
    options = ["utils", "docs", "--name", "uqsonet", "--title", title]
    done = CliRunner().invoke(typer.cli.app, [f"{package}.cli", *options])
    assert done.exit_code == 0 and done.output.strip() == DOCUMENTS[f"docs/{page}.md"].strip(), (
        f"python -m typer {package}.cli {' '.join(options[:-1])} '{title}' --output docs/{page}.md"
    )


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
    written = {"scorecard.csv", "provenance.json", "jobs.csv", "report.html"}
    written |= {"published/steps.csv"}  # by `make published`
    for name, text in DOCUMENTS.items():
        cited = {found.split("::")[0] for found in code(text) if PATH.fullmatch(found)}
        cited -= {c for c in cited if c.split("/")[0] in MADE or ".snakemake" in c} | written
        missing = [found for found in cited if not any((root / found).exists() for root in ROOTS)]
        assert set(missing) - NAMES == set(), name


def test_names_of_the_code_are_in_the_files_that_are_linked_or_in_the_sources():
    walk = DOCUMENTS["docs/reading-the-code.md"]
    files = [ROOT / "docs" / link for link in links(walk) if link.endswith(".py")]
    dotted = [name for name in code(DOCUMENTS["docs/notation.md"]) if re.search(r"\w\.[A-Z]", name)]
    everything = [*(ROOT / "src").rglob("*.py")]
    for names, paths in ((code(walk), files), (dotted, everything)):
        source = " ".join(f"{path} {path.read_text(encoding='utf-8')}" for path in paths)
        words = {word for name in names for word in re.findall(r"[A-Za-z_]{3,}", name)}
        assert words - set(re.findall(r"\w+", source)) - {"tuned"} == set()


def test_commands_exist():
    known = {word for app in (library, study) for word in get_command(app).commands}  # type: ignore[attr-defined]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.compile(r"^(?:uqsonet|make|snakemake) .*$", flags=re.M)
    for command in (c for text in DOCUMENTS.values() for c in [*lines.findall(text), *code(text)]):
        for word in re.findall(r"^uqsonet ([a-z][a-z-]+)", command):
            assert word in known, command
        for word in re.findall(r"^make ([a-z-]+)", command):
            assert re.search(rf"^{word}:", makefile, flags=re.M), command
        for file in re.findall(r"--configfile ((?:[\w./]+\.yaml ?)+)", command):
            assert all((ROOT / path).is_file() for path in file.split()), command
        for kind, label in re.findall(r"results/(tables|figures)/([\w-]+)\.", command):
            outputs = CONFIG.tables if kind == "tables" else CONFIG.figures
            assert label in outputs or label in ("all", "ablation", "parts", "placement"), command


def test_keys_that_are_named_exist():
    known = set(re.findall(r'"(\w+)": ', json_schema()))
    for path in [ROOT / "config.yaml", *ROOT.glob("config/*.yaml")]:
        known |= set(re.findall(r"[\w-]+(?=: )", path.read_text()))
    tops = "|".join(Config.model_fields)
    for name in set(DOCUMENTS) - {"docs/notation.md"}:
        for text in code(DOCUMENTS[name]):
            if re.fullmatch(rf"({tops})(\.[\w<>]+)+", text) and not text.endswith((".py", ".yaml")):
                named = {part for part in text.split(".")[1:] if "<" not in part}
                assert named <= known, (name, text, named - known)


def test_the_page_of_the_configuration_names_every_key():
    expected = {"seed", "recipe", "tables", "figures", "select", "scale", "results"}
    for start, section in (
        ("problems.<problem>.", ProblemConfig),
        ("experiments.<experiment>.", ExperimentConfig),
        ("evaluations.<evaluation>.", EvaluationConfig),
        ("jobs.", JobsConfig),
    ):
        expected |= {start + key for key in section.model_fields if key != "sweep"}  # has two keys
    expected |= {f"recipes.<recipe>.<problem>.<method>.{k}" for k in ("network", "training")}
    assert expected - set(code(DOCUMENTS["docs/configuration.md"])) == set()


def test_every_experiment_table_and_figure_is_in_the_reproduction():
    text = DOCUMENTS["docs/reproduction.md"]
    words = set(re.findall(r"[\w-]+", text))
    assert set(CONFIG.tables) | set(CONFIG.figures) <= words
    assert set(CONFIG.experiments) - words == {"elliptic_sde1d_more"}  # Table of 1D SDE, more pairs


def test_what_is_stated_of_the_results():
    text = DOCUMENTS["docs/reproduction.md"]
    card = pd.read_csv(ROOT / "published/scorecard.csv")
    below = int((card["ours"] <= card["paper"]).sum())
    assert f"{below} of the {len(card)} cells" in text
    assert (card["precise"] <= card["paper"]).all()
