"""What an edit of the sources changes: a digest of all modules that a script imports.

It goes to Snakemake as a parameter of the rule. Imports are followed within both packages, also
those within functions, and names that a package hands on are followed to the module that defines
them. Problems, models and laws, which jobs find by name, are given by name. Left out is what
changes no number: comments, docstrings, layout, messages, the version and imports for the type
checker alone. A data file or template counts where a module names it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from uqsonet.errors import ConfigError

ROOT = Path(__file__).parents[1]
PACKAGES = ("uqsonet", "uqsonet_study")
CODE = (".py", ".pyc", ".safetensors")

METHODS = ("uqsonet.operator", "uqsonet.networks", "uqsonet_study.beyond")
"""Packages in which models are found by method and architecture."""

PROBLEMS = ("uqsonet_study.problems", "uqsonet_study.beyond.problems")
"""Packages in which problems are found by name."""


def model_module(method: str, architecture: str) -> str:
    """Return the module that defines a method in an architecture.

    Raises
    ------
    ConfigError
        If there is none.
    """
    known = _models()
    if (method, architecture) not in known:
        there = ", ".join(f"{m} ({a})" for m, a in sorted(known))
        raise ConfigError(
            f"no method {method!r} of architecture {architecture!r}; there are {there}"
        )
    return known[method, architecture]


@cache
def _models() -> dict[tuple[str, str], str]:
    """Return method and architecture -> module, by the classes that are registered."""
    found = {}
    for module in (f"{package}.{name}" for package in METHODS for name in _names(package)):
        for node in ast.walk(_tree(module)):
            if not isinstance(node, ast.ClassDef):
                continue
            own = {
                ast.unparse(n.targets[0]): n.value for n in node.body if isinstance(n, ast.Assign)
            }
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "register":
                    method, architecture = map(ast.literal_eval, (own["method"], mark.args[0]))
                    found[method, architecture] = module
    return found


def problem_module(name: str) -> str:
    """Return the module that defines a problem.

    Raises
    ------
    ConfigError
        If there is none, with the names of those that there are.
    """
    for package in PROBLEMS:
        if _path(f"{package}.{name}"):
            return f"{package}.{name}"
    known = sorted(name for package in PROBLEMS for name in _names(package))
    raise ConfigError(f"problem {name!r} is unknown; there are {', '.join(known)}")


def law_modules(law: str | None) -> list[str]:
    """Return the modules of a law of the input, of all that `auto` tries, or none (Gaussian)."""
    names = _names("uqsonet.laws") if law == "auto" else [str(law)]
    return [f"uqsonet.laws.{name}" for name in names if _path(f"uqsonet.laws.{name}")]


def digest(scripts: Iterable[Path] = (), modules: Iterable[str] = ()) -> str:
    """Return the digest of scripts and modules, and of all that these import."""
    trees, total = [_read(path) for path in scripts], hashlib.sha256()
    imported = closure(trees, modules)
    for text in [*map(ast.dump, trees), *map(_text, imported)]:
        total.update(text.encode())
    for path in sorted({path for module in imported for path in _data(module)}):
        total.update(path.read_bytes())
    return total.hexdigest()[:8]


def closure(trees: Iterable[ast.AST], modules: Iterable[str]) -> list[str]:
    """Return modules, and all that they and other syntax trees import, sorted."""
    seen, waiting = set[str](), list(modules)
    waiting += [_home(*pair) for tree in trees for pair in _imports(tree)]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += _needed(module)
    return sorted(seen)


@cache
def _needed(module: str) -> list[str]:
    return [_home(*pair) for pair in _imports(_tree(module))]


def _path(module: str) -> Path | None:
    """Return the file of a module, None where there is none."""
    base = ROOT.joinpath(*module.split("."))
    paths = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in paths if path.is_file()), None)


def _names(package: str) -> list[str]:
    folder = ROOT.joinpath(*package.split("."))
    return sorted(
        path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "base")
    )


@cache
def _tree(module: str) -> ast.AST:
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"no such module: {module}")
    return _read(path)


def _text(module: str) -> str:
    return _dump(_tree(module))


@cache
def _dump(tree: ast.AST) -> str:
    return ast.dump(tree)


@cache
def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix not in CODE]


@cache
def _data(module: str) -> list[Path]:
    """Return the data files and templates beside a module whose names stand in it."""
    path = _path(module)
    constants = (node for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant))
    names = {node.value for node in constants if isinstance(node.value, str)}
    return [file for file in _files(path.parent) if file.name in names] if path else []


def _home(package: str, name: str) -> str:
    """Return the module that defines a name which is imported from a package or module."""
    if name and _path(f"{package}.{name}"):
        return f"{package}.{name}"
    path = _path(package)
    if path is not None and path.name == "__init__.py":
        for module, handed_on in _imports(_tree(package)):
            if handed_on == name and module != package:
                return _home(module, name)
    return package


def _read(path: Path) -> ast.AST:
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> ast.AST:
    return _WithoutWords().visit(ast.parse(text))


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield modules and packages of this project, and the name that is taken from each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            pairs = [(node.module or "", alias.name) for alias in node.names]
        else:
            names = node.names if isinstance(node, ast.Import) else []
            pairs = [(alias.name, "") for alias in names]
        yield from (pair for pair in pairs if pair[0].split(".")[0] in PACKAGES)


class _WithoutWords(ast.NodeTransformer):
    """Leaves out docstrings, messages, the version, and imports for the type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "description" else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, None)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant)
        logged = isinstance(node.value, ast.Call) and ast.unparse(node.value).startswith("LOG.")
        return None if text or logged else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__version__" else node
