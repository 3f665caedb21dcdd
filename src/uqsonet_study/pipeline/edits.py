"""What an edit of the sources changes: a digest of all modules that a script imports.

It goes to Snakemake as a parameter of the rule. Imports are followed within both packages, also
those within functions, and names that a package hands on are followed to the module that defines
them. Left out is what changes no number: comments, docstrings, layout, the version, messages (what
is raised or logged) and imports for the type checker alone. Data files beside a module count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder of both packages."""

PACKAGES = ("uqsonet", "uqsonet_study")
CODE = (".py", ".pyc", ".safetensors")


class Sources:
    """The sources below a folder, each read once.

    Parameters
    ----------
    root : Path
        The folder of the packages.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = cache(self._path)
        self.tree = cache(self._tree)
        self.text = cache(self._text)

    def _path(self, module: str) -> Path | None:
        base = self.root.joinpath(*module.split("."))
        paths = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in paths if path.is_file()), None)

    def _tree(self, module: str) -> ast.AST:
        path = self.path(module)
        if path is None:
            raise ModuleNotFoundError(f"no such module: {module}")
        return _read(path)

    def _text(self, module: str) -> str:
        return ast.dump(self.tree(module))

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
        trees = [_read(path) for path in scripts]
        found, total = self.closure(trees, modules), hashlib.sha256()
        for text in [*map(ast.dump, trees), *map(self.text, found)]:
            total.update(text.encode())
        for folder in sorted({path.parent for m in found if (path := self.path(m)) is not None}):
            for path in sorted(folder.iterdir()):
                if path.is_file() and path.suffix not in CODE:
                    total.update(path.read_bytes())
        return total.hexdigest()[:8]


SOURCES = Sources(ROOT)


def _read(path: Path) -> ast.AST:
    return _WithoutWords().visit(ast.parse(path.read_text(encoding="utf-8")))


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield modules and packages of this project, and the name that is taken from each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        else:
            continue
        yield from (pair for pair in found if pair[0].split(".")[0] in PACKAGES)


class _WithoutWords(ast.NodeTransformer):
    """Leaves out docstrings, messages, the version, and imports for the type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, None)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        logged = isinstance(node.value, ast.Call) and ast.unparse(node.value.func)
        return None if logged and logged.startswith("LOG.") else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node.targets[0]) == "__version__" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Leave out texts, too, that were put together for a message only."""
        self.generic_visit(node)
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        return _WithoutUnread(read).generic_visit(node)


class _WithoutUnread(ast.NodeTransformer):
    def __init__(self, read: set[str]) -> None:
        self._read = read

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        text = isinstance(node.value, ast.JoinedStr | ast.Constant)
        unread = all(isinstance(t, ast.Name) and t.id not in self._read for t in node.targets)
        return None if text and unread else node
