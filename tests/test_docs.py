"""What README and docs name exists, and what they state is what is configured and published.

Tables of results are compared by tests/report/test_readme.py, docs/notation.md by
tests/test_notation.py.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

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
from uqsonet_study import config
from uqsonet_study.cli import app as study
from uqsonet_study.config import Config, json_schema, load_config
from uqsonet_study.report.paper import paper_cells

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
}
ROOTS = [ROOT, ROOT / "docs", *(ROOT / "src" / name for name in ("uqsonet", "uqsonet_study"))]
PATH = re.compile(r"(?:[\w-]+/)+|(?:[\w.-]+/)*[\w-]+\.(?:py|cpp|md|yaml|toml|lock|csv|json|smk|sh)")
NAMES = {path.name for path in (ROOT / "src").rglob("*") if path.is_file()}
MADE = ("results", "state", "simulate", "evaluate", "summary", "inference", "figures", "tables")
"""Folders that a run makes: they are in no checkout."""
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
SCHEMA = json.loads(json_schema())
CONFIG: Config = load_config(yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")))


def code(text: str) -> list[str]:
    """Return what stands between backticks, blocks of code aside."""
    return re.findall(r"`([^`\n]+)`", text)


def links(text: str) -> list[str]:
    """Return the targets of all links and pictures within the project."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def commands(text: str) -> list[str]:
    """Return commands: lines of blocks, and code between backticks."""
    return [*re.findall(r"^(?:uqsonet|make|snakemake) .*$", text, flags=re.M), *code(text)]


TESTED = re.compile(r"<!-- (python|commands|functionals) -->.*?<!-- /\1 -->", re.S)
"""Blocks that the tests of their pages run, and look at what they give."""
FENCES = {
    name: re.findall(r"^```(\w+)\n(.*?)^```", TESTED.sub("", text), flags=re.M | re.S)
    for name, text in DOCUMENTS.items()
    if not name.startswith("docs/cli")  # written by typer
}
PARSED = ("cd", "pip", "python3", "source", "squeue")
"""What no example runs for real: a shell reads it. tests/test_bare.py installs the package."""
FASTER = {
    # Linear models, few runs and small sizes: minutes of training change numbers, not what runs.
    r"minutes=\d+": "minutes=0, law='gaussian'",
    r"(validate\(.*)sensors=\[.*?\]": r"\1sensors=3",
    r"\[500:\]": "[500:512]",
    r"^uqsonet fit.*": r"\g<0> --minutes 0 --law gaussian",
    r"(, size, sets = .*), 8$": r"\1, 1",
    r"(problem\.sample\(generator), 20\)": r"\1, 1)",
    r'("darcy128"\)), 500, 200$': r"\1, 40, 10",
    r"(default_rng\(0\)), 16\)": r"\1, 2)",
    r"^python -m benchmarks --only \w+": r"\g<0> --quick",
    r"^python -m benchmarks\.flow_law .*": r"\g<0> --minutes 0.02 --iterations 20 --sets 2",
    # tests/report/test_ship.py and tests/benchmarks/test_mechanism.py do it: here are no results.
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
    shipped = ROOT / "src/uqsonet/weights/diffusion1d.safetensors"
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


@pytest.mark.parametrize("name", [name for name, blocks in FENCES.items() if blocks])
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
def test_examples_run(
    name: str, tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    needed = [*ROOT.glob("config*"), ROOT / "published"]
    if name == "docs/gallery.md":
        needed += [*ROOT.glob("docs/own-data/*.npz"), ROOT / "docs/own-data/sensors.csv"]
    for path in needed:
        (tmp_path / path.name).symlink_to(path)
    if name in ("README.md", "docs/reading-the-code.md", "docs/explore.md", "docs/inverse.md"):
        names = prepared((9,))
    if name in ("docs/api.md", "docs/own-data.md"):
        names = prepared((5, 6))
    if name == "docs/api.md":
        names |= {"x": names["x_axis"], "y": names["y_axis"], "u": names["U"][0].ravel()}
    for kind, block in FENCES[name]:
        for pattern, short in FASTER.items():
            block = re.sub(pattern, short, block, flags=re.M)
        if kind == "python":
            exec(block, names)
        elif kind == "console":
            for line in block.replace("\\\n", "").splitlines():
                run_line(line, checkout)
        elif block.startswith("x,"):
            Path("sensors.csv").write_text(block)


def test_every_block_says_what_it_is() -> None:
    for name, text in DOCUMENTS.items():
        if not name.startswith("docs/cli"):
            outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
            assert not re.search(r"^(?:<!--.*-->)?\n {4,}\S", outside, flags=re.M), name
            assert not re.search(r"^```\n\S", outside, flags=re.M), name
    kinds = {kind for blocks in FENCES.values() for kind, _ in blocks}
    assert kinds == {"console", "python", "text", "yaml"}


def holds(whole: Any, part: Any) -> bool:
    """Whether a configuration has all keys of an excerpt, with its values."""
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], part[key]) for key in part)
    return bool(whole == part)


def test_excerpts_of_configurations_are_those_of_files() -> None:
    files = [yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob("config/*.yaml"))]
    for kind, block in FENCES["docs/configuration.md"]:
        if kind == "yaml":
            assert any(holds(whole, yaml.safe_load(block)) for whole in files), block


@pytest.mark.parametrize(("page", "package"), [("cli", "uqsonet"), ("cli-study", "uqsonet_study")])
def test_the_pages_of_the_command_line_are_those_typer_writes(page: str, package: str) -> None:
    title = DOCUMENTS[f"docs/{page}.md"].partition("\n")[0].removeprefix("# ")
    options = ["utils", "docs", "--name", "uqsonet", "--title", title]
    done = CliRunner().invoke(typer.cli.app, [f"{package}.cli", *options])
    assert done.exit_code == 0 and done.output.strip() == DOCUMENTS[f"docs/{page}.md"].strip(), (
        f"python -m typer {package}.cli {' '.join(options[:-1])} '{title}' --output docs/{page}.md"
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    folder = (ROOT / name).parent
    assert [
        link for link in links(DOCUMENTS[name]) if not (folder / link.partition("#")[0]).exists()
    ] == []


def test_every_document_is_reached_from_readme() -> None:
    seen, queue = set[str](), ["README.md"]
    while queue:
        name = queue.pop()
        if name in DOCUMENTS and name not in seen:
            seen.add(name)
            folder = (ROOT / name).parent
            targets = [(folder / link).resolve() for link in links(DOCUMENTS[name])]
            queue += [str(t.relative_to(ROOT)) for t in targets if t.is_relative_to(ROOT)]
    assert seen == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_are_named_exist(name: str) -> None:
    cited = {text.split("::")[0] for text in code(DOCUMENTS[name]) if PATH.fullmatch(text)}
    cited = {text for text in cited if text.split("/")[0] not in MADE and ".snakemake" not in text}
    written = {"scorecard.csv", "provenance.json", "jobs.csv", "report.html"}
    written |= {"published/steps.csv"}  # by `make published`
    missing = [t for t in cited - written if not any((root / t).exists() for root in ROOTS)]
    assert set(missing) - NAMES == set()


def test_names_on_the_walk_through_the_code_are_in_the_files_it_links() -> None:
    text = DOCUMENTS["docs/reading-the-code.md"]
    files = [ROOT / "docs" / link for link in links(text) if link.endswith(".py")]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    words = {word for found in code(text) for word in re.findall(r"[A-Za-z_]{3,}", found)}
    assert words - set(re.findall(r"\w+", source)) - {"tuned"} == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_exist(name: str) -> None:
    known = {word for app in (library, study) for word in get_command(app).commands}  # type: ignore[attr-defined]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands(DOCUMENTS[name]):
        for word in re.findall(r"^uqsonet ([a-z][a-z-]+)", command):
            assert word in known, command
        for word in re.findall(r"^make ([a-z-]+)", command):
            assert re.search(rf"^{word}:", makefile, flags=re.M), command
        for file in re.findall(r"--configfile ((?:[\w./]+\.yaml ?)+)", command):
            assert all((ROOT / path).is_file() for path in file.split()), command
        for kind, label in re.findall(r"results/(tables|figures)/([\w-]+)\.", command):
            outputs = CONFIG.tables if kind == "tables" else CONFIG.figures
            assert label in outputs or label in ("all", "ablation", "parts", "placement"), command


def resolved(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema's alternatives, without references."""
    if "$ref" in schema:
        return resolved(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    choices = schema.get("anyOf") or schema.get("oneOf")
    return [found for s in choices for found in resolved(s)] if choices else [schema]


def entry(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the values of a mapping whose keys are names."""
    inner = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    return next((found for found in inner if isinstance(found, dict)), None)


def is_key(path: list[str], schema: dict[str, Any]) -> bool:
    """Whether a key such as ``problems.<problem>.training`` is one of the configuration."""
    if not path:
        return True
    for found in resolved(schema):
        inner = found.get("properties", {}).get(path[0]) or entry(found)
        if inner is not None and is_key(path[1:], inner):
            return True
    return False


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS) - {"docs/notation.md"}))
def test_keys_that_are_named_exist(name: str) -> None:
    tops = "|".join(SCHEMA["properties"])
    for text in code(DOCUMENTS[name]):
        if re.fullmatch(rf"({tops})(\.[\w<>]+)+", text) and not text.endswith((".py", ".yaml")):
            assert is_key(text.split("."), SCHEMA), text


def test_no_key_is_taken_for_one_that_is_none() -> None:
    assert is_key(["experiments", "<e>", "sweep", "latent_dim"], SCHEMA)
    assert not is_key(["experiments", "<e>", "sweep", "poem"], SCHEMA)
    assert not is_key(["jobs", "training"], SCHEMA)


def test_the_page_of_the_configuration_names_every_key() -> None:
    named = set(code(DOCUMENTS["docs/configuration.md"]))
    expected = {"seed", "recipe", "tables", "figures", "select", "scale", "results"}
    tables = {"problems": "problem", "experiments": "experiment", "evaluations": "evaluation"}
    for key, name in tables.items():
        inner = entry(SCHEMA["properties"][key])
        assert inner is not None
        (schema,) = resolved(inner)
        expected |= {f"{key}.<{name}>.{field}" for field in schema["properties"]}
    (jobs,) = resolved(SCHEMA["properties"]["jobs"])
    expected |= {f"jobs.{name}" for name in jobs["properties"]}
    expected |= {f"recipes.<recipe>.<problem>.<method>.{k}" for k in ("network", "training")}
    # A sweep has two keys, both named.
    expected = {name for name in expected if not name.endswith(".sweep")}
    assert expected - named == set()


def test_architectures_that_see_sensors_in_training_are_named() -> None:
    text = DOCUMENTS["docs/configuration.md"]
    for kind in (
        config.AttentionNetwork,
        config.AttentionPriorNetwork,
        config.KarhunenLoeveNetwork,
        config.KarhunenLoeveSetNetwork,
    ):
        architecture = kind.model_fields["architecture"].default
        before, _, _ = text.partition("The architecture `karhunen_loeve` ")
        assert (f"`{architecture}`" in before) == kind.per_sensors, architecture
    assert "protocol" in config.TrainingConfig.model_fields


def rows_of(document: str, marker: str) -> dict[str, list[str]]:
    """Return the rows of a generated table by their first cell."""
    block = DOCUMENTS[document].partition(f"<!-- {marker} -->")[2].partition("<!-- /")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
    return {row[0].strip("`"): row[1:] for row in rows if row}


def test_data_sets_are_those_configured_and_published() -> None:
    rows = rows_of("docs/data.md", "data")
    for name, data in CONFIG.problems.items():
        record = json.loads((ROOT / f"published/simulate/{name}.json").read_text())
        pairs, megabytes = (float(cell.replace(",", "")) for cell in rows[name][1:3])
        assert pairs == data.training == record["config"]["training"]
        assert megabytes == pytest.approx(record["file"]["bytes"] / 1e6, abs=0.05)


def test_references_have_the_samples_configured() -> None:
    rows = rows_of("docs/data.md", "references")
    for name in CONFIG.problems:
        samples = CONFIG.evaluation_of(name, "precise").reference_samples
        assert rows[name][0] == ("closed form" if name == "poisson2d" else f"{samples:,}")


def test_every_experiment_table_and_figure_is_in_the_reproduction() -> None:
    text = DOCUMENTS["docs/reproduction.md"]
    words = set(re.findall(r"[\w-]+", text))
    assert set(CONFIG.tables) | set(CONFIG.figures) <= words
    assert set(CONFIG.experiments) - words == {"elliptic_sde1d_more"}  # Table of 1D SDE, more pairs


def test_what_is_stated_of_the_results() -> None:
    text = DOCUMENTS["docs/reproduction.md"]
    card = pd.read_csv(ROOT / "published/scorecard.csv")
    below = int((card["ours"] <= card["paper"]).sum())
    assert f"{below} of the {len(card)} cells" in text
    assert (card["precise"] <= card["paper"]).all()
    for name in (name for name, used in CONFIG.experiments.items() if not used.sweep):
        found = pd.read_csv(ROOT / f"published/summary/{name}.csv")
        found = found[(found["method"] == "uqsonet") & found["metric"].str.startswith("within_")]
        level = found["metric"].str.removeprefix("within_").astype(float)
        off = (100 * found["value"] - level).abs().max()
        assert not off > (2.4 if name == "elliptic_sde2d" else 1), name


def test_readme_states_what_the_recipe_of_the_paper_reached() -> None:
    summary = pd.read_csv(ROOT / "published/paper_share/summary/diffusion1d.csv")
    of = summary[(summary["method"] == "uqsonet") & (summary["evaluation"] == "precise")]
    printed = paper_cells()
    printed = printed[(printed["table"] == "tab:1d-pde-error") & (printed["method"] == "uqsonet")]
    ratios = (
        100
        * of.set_index(["sensors", "metric"])["value"]
        / printed.set_index(["sensors", "metric"])["paper"]
    ).dropna()
    assert len(ratios) == 20 and ratios.min() > 1 and 3.5 < ratios.max() < 4
    assert "up to four times those that the paper prints" in " ".join(
        DOCUMENTS["README.md"].split()
    )
