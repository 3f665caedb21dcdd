"""What an edit of the sources changes: a digest of all modules that a script imports.

It goes to Snakemake as a parameter of the rule. Imports are followed within both packages, also
those within functions, and names that a package hands on are followed to the module that defines
them. Models, problems and laws, which jobs find by name, are named. Left out is what changes no
number: comments, docstrings, layout, the version, messages (what is raised or logged) and imports
for the type checker alone. Data files beside a module count.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from uqsonet.errors import ConfigError
from uqsonet_study.config.recipes import AUTO

PACKAGES = ("uqsonet", "uqsonet_study")
CODE = (".py", ".pyc", ".safetensors")
PROBLEMS = ("uqsonet_study.problems", "uqsonet_study.beyond.problems")


class Sources:
    """The sources of both packages below a folder, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = cache(self._tree)
        self.text = cache(lambda module: ast.dump(self.tree(module)))

    def path(self, module: str) -> Path | None:
        """Return the file of a module, None where there is none."""
        base = self.root.joinpath(*module.split("."))
        paths = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in paths if path.is_file()), None)

    def _tree(self, module: str) -> ast.AST:
        path = self.path(module)
        if path is None:
            raise ModuleNotFoundError(f"no such module: {module}")
        return _read(path)

    def _home(self, package: str, name: str) -> str:
        """Return the module that defines a name which is imported from a package or module."""
        if name and self.path(f"{package}.{name}"):
            return f"{package}.{name}"
        path = self.path(package)
        if path is not None and path.name == "__init__.py":
            for module, handed_on in _imports(self.tree(package)):
                if handed_on == name and module != package:
                    return self._home(module, name)
        return package

    def closure(self, trees: Iterable[ast.AST], modules: Iterable[str]) -> list[str]:
        """Return modules, and all that they and other syntax trees import, sorted."""
        seen, waiting = set[str](), list(modules)
        waiting += [self._home(*pair) for tree in trees for pair in _imports(tree)]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += [self._home(*pair) for pair in _imports(self.tree(module))]
        return sorted(seen)

    def digest(self, scripts: Iterable[Path] = (), modules: Iterable[str] = ()) -> str:
        """Return the digest of scripts and modules, and of all that these import.

        Which problem, model or figure a script runs is no import of it: their modules are named.
        """
        trees, total = [_read(path) for path in scripts], hashlib.sha256()
        imported = self.closure(trees, modules)
        for text in [*map(ast.dump, trees), *map(self.text, imported)]:
            total.update(text.encode())
        for folder in sorted({path.parent for m in imported if (path := self.path(m))}):
            for path in sorted(folder.iterdir()):
                if path.is_file() and path.suffix not in CODE:
                    total.update(path.read_bytes())
        return total.hexdigest()[:8]


def _read(path: Path) -> ast.AST:
    return _WithoutWords().visit(ast.parse(path.read_text(encoding="utf-8")))


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

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, None)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant)
        logged = isinstance(node.value, ast.Call) and ast.unparse(node.value).startswith("LOG.")
        return None if text or logged else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__version__" else node


SOURCES = Sources(Path(__file__).parents[2])


def _names(package: str) -> list[str]:
    folder = SOURCES.root.joinpath(*package.split("."))
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


@cache
def _models() -> dict[tuple[str, str], str]:
    """Return (method, architecture) -> the module that registers it."""
    found = {}
    for package in ("uqsonet.operator", "uqsonet.networks", "uqsonet_study.beyond"):
        for name in _names(package):
            text = (SOURCES.path(f"{package}.{name}") or Path()).read_text(encoding="utf-8")
            pattern = r'@register\("(\w+)"\)\s*class .*?^    method = "(\w+)"'
            for architecture, method in re.findall(pattern, text, re.DOTALL | re.MULTILINE):
                found[method, architecture] = f"{package}.{name}"
    return found


def model_module(method: str, architecture: str) -> str:
    """Return the module that defines a method in an architecture.

    Raises
    ------
    ConfigError
        If no file defines it.
    """
    known = _models()
    if (method, architecture) in known:
        return known[method, architecture]
    methods = sorted({m for m, _ in known})
    if method not in methods:
        raise ConfigError(f"method {method!r} is unknown; there are {', '.join(methods)}")
    there = ", ".join(sorted(a for m, a in known if m == method))
    raise ConfigError(f"method {method!r} has no architecture {architecture!r}; there are {there}")


def problem_modules(names: Iterable[str]) -> list[str]:
    """Return the modules of problems; own data have none."""
    found = (f"{package}.{name}" for name in names for package in PROBLEMS)
    return [module for module in found if SOURCES.path(module)]


def law_modules(law: str | None) -> list[str]:
    """Return the modules of a law of the input, or of all that are tried; a Gaussian has none."""
    names = _names("uqsonet.laws") if law == AUTO else [str(law)]
    return [f"uqsonet.laws.{name}" for name in names if SOURCES.path(f"uqsonet.laws.{name}")]


def require_problem(name: str, own: bool) -> None:
    """Refuse a problem without a file, and own data under the name of one that has a file.

    Raises
    ------
    ConfigError
        Naming those that have one.
    """
    known = sorted({name for package in PROBLEMS for name in _names(package)} - {"base"})
    if own and name in known:
        raise ConfigError(f"problems.{name}.data: {name} is a problem of the paper; rename yours")
    if not own and name not in known:
        raise ConfigError(
            f"problem {name!r} is unknown; there are {', '.join(known)}, and those with `data`"
        )
