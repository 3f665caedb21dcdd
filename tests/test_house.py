"""The library stays small enough to hold: its size, its rooms, and what imports what."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[1] / "src/uqsonet"
FILES = sorted(LIBRARY.rglob("*.py"))
TOP_FILES = {path.name for path in LIBRARY.glob("*.py")}

ROOMS = (
    "fields", "gauss", "sensors", "runs", "laws", "operator", "networks", "show", "emulator",
    "fitting", "dynamics",
)  # fmt: skip
"""Rooms from the lowest to the highest: each may import those before it."""

MAX_LINES = {"core": 23_160, "all": 24_745}
"""Lines of the library without and with its networks. They are to fall to 11,500 and 13,500."""

MAX_FOLDERS = {
    "src/uqsonet_study": (".py", 11_675),
    "src/uqsonet_study/report": (".py", 2_971),
    "workflow/rules": (".smk", 557),
    "workflow/scripts": (".py", 242),
    "benchmarks": (".py", 4_875),
    "tests": (".py", 21_524),
    "docs": (".md", 4_057),
}
"""Suffix and lines of what stands beside the library."""

MAX_UPWARD = 5
"""Imports from a room to a higher one, as methods of a model call what is built on models."""

MAX_FUNCTION, MAX_CLASS = 60, 300

LOADED = """
import json, sys, warnings
import numpy as np
import uqsonet
warnings.simplefilter("ignore")
{work}
files = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "uqsonet"]
print(json.dumps([len(files), sum(len(open(f).readlines()) for f in files)]))
"""
WORK = {
    "load, condition, std": 'uqsonet.load("diffusion1d").condition([[0.5]], [1.0]).std()',
    "fit": "k = np.random.default_rng(0).standard_normal((60, 4)) @ np.eye(4, 21)\n"
    "uqsonet.fit(uqsonet.Runs({'k': k}, {'u': k.cumsum(1)}), bar=False)",
}
MAX_LOADED = {"load, condition, std": (34, 6_007), "fit": (63, 12_682)}
"""Modules and lines. They are to fall to (30, 3,500) and (45, 9,000)."""


def module_of(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(path): path for path in FILES}


def imports_of(path: Path) -> set[str]:
    """Return the modules that a file imports: at the top, in functions, and for types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "uqsonet":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
    return found - {module_of(path), "uqsonet"}


GRAPH = {name: imports_of(path) for name, path in MODULES.items() if name != "uqsonet"}


def test_the_top_floor_is_eleven_rooms_and_six_files() -> None:
    assert {path.relative_to(LIBRARY).parts[0] for path in FILES} - TOP_FILES == set(ROOMS)
    assert len(TOP_FILES) <= 6


def test_the_library_keeps_its_size() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    core = sum(n for path, n in lines.items() if "networks" not in path.parts)
    assert core <= MAX_LINES["core"] and sum(lines.values()) <= MAX_LINES["all"]


@pytest.mark.parametrize("folder", MAX_FOLDERS)
def test_what_stands_beside_the_library_keeps_its_size(folder: str) -> None:
    suffix, most = MAX_FOLDERS[folder]
    files = (LIBRARY.parents[1] / folder).rglob(f"*{suffix}")
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= most


@pytest.mark.parametrize("work", WORK)
def test_who_loads_or_fits_a_model_loads_no_more_than_that_needs(work: str) -> None:
    program = LOADED.format(work=WORK[work])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules, lines = json.loads(done.stdout.splitlines()[-1])
    most = MAX_LOADED[work]
    assert modules <= most[0] and lines <= most[1], (modules, lines)


def test_no_file_imports_a_file_that_imports_it() -> None:
    waiting, order = dict(GRAPH), []
    while leaves := sorted(name for name, needs in waiting.items() if not needs & waiting.keys()):
        order += leaves
        waiting = {name: needs for name, needs in waiting.items() if name not in leaves}
    assert not waiting, sorted(waiting)


def test_rooms_import_downwards() -> None:
    upward = [
        f"{name} -> {other}"
        for name, needs in GRAPH.items()
        for other in needs
        if name.split(".")[1] in ROOMS and other.split(".")[1] in ROOMS
        if ROOMS.index(name.split(".")[1]) < ROOMS.index(other.split(".")[1])
    ]
    assert len(upward) <= MAX_UPWARD, upward


def test_functions_and_classes_can_be_read_at_once() -> None:
    long = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines = int(node.end_lineno or 0) - node.lineno + 1
                if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                    text = node.body[0]
                    lines -= int(text.end_lineno or 0) - text.lineno + 1
                most = MAX_CLASS if isinstance(node, ast.ClassDef) else MAX_FUNCTION
                if lines > most:
                    long.append(f"{path.name}: {node.name} has {lines} lines")
    assert not long, long
