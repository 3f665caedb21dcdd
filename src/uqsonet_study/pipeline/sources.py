"""Digests of the sources behind a result: what an edit changes, and what it does not.

A digest covers a module and all that it imports from this project, as far as numbers depend on it.
Comments, docstrings, types and layout do not count, nor do messages (what is raised or logged) and
modules that no number comes from.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from uqsonet.errors import ConfigError

ROOT = Path(__file__).parents[2]
"""The folder of both packages."""

PACKAGES = ("uqsonet", "uqsonet_study")

MODELS = ("uqsonet.operator", "uqsonet.networks")
"""The packages whose modules define models."""

WITHOUT_INFLUENCE = {
    "uqsonet.operator.config": "every configured value reaches a job as a parameter",
    "uqsonet.operator.settings": "the same",
    "uqsonet_study.config": "the same",
    "uqsonet.errors": "classes of errors",
    "uqsonet.operator.devices": "where a job runs, not what it computes",
    "uqsonet.operator.progress": "shows how far a job is",
    "uqsonet.operator.checkpoint": "a training that goes on ends with the same weights",
    "uqsonet_study.parts": "parts that were kept hold the same rows",
    "uqsonet.files": "files keep numbers as they are, or refuse them",
    "uqsonet_study.storage": "the same",
}
"""Modules and packages that change no number of a result, and why."""


@dataclass(frozen=True)
class _Module:
    """What is known of a module from its text.

    Attributes
    ----------
    text : str
        What counts of it.
    imports : tuple of (str, str)
        Module or package of this project, and the name that is taken from it.
    models : tuple of (str, str)
        Method and architecture of the models that it registers.
    """

    text: str
    imports: tuple[tuple[str, str], ...]
    models: tuple[tuple[str, str], ...]


class Sources:
    """The sources below a folder, read once.

    Parameters
    ----------
    root : Path
        The folder of the packages.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = cache(self._find)
        self._module = cache(self._read)
        self._digest = cache(self._summed)
        self.models = cache(self._find_models)

    def digest(self, modules: Iterable[str]) -> str:
        """Return a digest of modules and of all that they import within the project."""
        return self._digest(tuple(sorted(set(modules))))

    def names(self, folder: str) -> list[str]:
        """Return the modules of a package."""
        found = self._root.joinpath(*folder.split(".")).glob("*.py")
        return sorted(path.stem for path in found if path.stem != "__init__")

    def _find(self, module: str) -> Path | None:
        base = self._root.joinpath(*module.split("."))
        found = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in found if path.is_file()), None)

    def _read(self, module: str) -> _Module:
        path = self._path(module)
        if path is None:
            raise ModuleNotFoundError(f"no such module: {module}")
        tree = _Untyped().visit(ast.parse(path.read_text(encoding="utf-8")))
        imports: list[tuple[str, str]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                imports += [(str(node.module), alias.name) for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names if a.name.split(".")[0] in PACKAGES]
                imports += [(name, "") for name in names]
        models = _models(tree)
        return _Module(ast.dump(_Bare().visit(tree)), tuple(imports), models)

    def _defining(self, package: str, name: str) -> str:
        """Return the module that a name comes from which is imported from a package or module."""
        if name and self._path(f"{package}.{name}"):
            return f"{package}.{name}"
        path = self._path(package)
        if path is not None and path.name == "__init__.py":
            for module, imported in self._module(package).imports:
                if imported == name and module != package:
                    return self._defining(module, name)
        return package

    def _summed(self, modules: tuple[str, ...]) -> str:
        seen: set[str] = set()
        queue = list(modules)
        while queue:
            module = queue.pop()
            if module not in seen and _counts(module):
                seen.add(module)
                queue.extend(self._defining(*found) for found in self._module(module).imports)
        digest = hashlib.sha256()
        for module in sorted(seen):
            digest.update(f"{module}\n{self._module(module).text}\n".encode())
        return digest.hexdigest()[:16]

    def _find_models(self) -> dict[tuple[str, str], str]:
        """Return (method, architecture) -> module."""
        modules = [f"{folder}.{name}" for folder in MODELS for name in self.names(folder)]
        return {model: module for module in modules for model in self._module(module).models}


SOURCES = Sources(ROOT)


def _counts(module: str) -> bool:
    """Return whether a module can change a number."""
    parts = module.split(".")
    parents = {".".join(parts[:k]) for k in range(1, len(parts) + 1)}
    return module not in PACKAGES and not parents & set(WITHOUT_INFLUENCE)


def _models(tree: ast.Module) -> tuple[tuple[str, str], ...]:
    """Return method and architecture of the models that a module registers."""
    found = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        values = {
            ast.unparse(item.targets[0]): getattr(item.value, "value", None)
            for item in node.body
            if isinstance(item, ast.Assign)
        }
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "register":
                architecture = getattr(call.args[0], "value", None)
                found.append((str(values.get("method")), str(architecture)))
    return tuple(found)


class _Untyped(ast.NodeTransformer):
    """Leaves out what is imported for the type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


class _Bare(ast.NodeTransformer):
    """Leaves out what changes no number: docstrings, messages, imports of what has no influence."""

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(called, None)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None  # a docstring, or a comment below an attribute
        logged = isinstance(node.value, ast.Call) and ast.unparse(node.value.func)
        return None if logged and logged.startswith("LOG.") else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return node if _counts(node.module or "") else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        # A text that was put together for a message only is not read any more.
        names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
        return _Unread({n.id for n in names if isinstance(n.ctx, ast.Load)}).generic_visit(node)


class _Unread(ast.NodeTransformer):
    """Leaves out texts that are assigned to names which nobody reads."""

    def __init__(self, read: set[str]) -> None:
        self._read = read

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        text = isinstance(node.value, ast.JoinedStr | ast.Constant)
        unread = all(isinstance(t, ast.Name) and t.id not in self._read for t in node.targets)
        return None if text and unread else node


def source_digest(modules: Iterable[str]) -> str:
    """Return a digest of modules and of all that they import within the project."""
    return SOURCES.digest(modules)


def model_module(method: str, architecture: str) -> str:
    """Return the module that defines a method in an architecture.

    Raises
    ------
    ConfigError
        If no file defines it.
    """
    known = SOURCES.models()
    found = known.get((method, architecture))
    if found is not None:
        return found
    methods = sorted({m for m, _ in known})
    if method not in methods:
        raise ConfigError(f"method {method!r} is unknown; there are {', '.join(methods)}")
    there = ", ".join(sorted(a for m, a in known if m == method))
    raise ConfigError(f"method {method!r} has no architecture {architecture!r}; there are {there}")


def _problems() -> list[str]:
    return [problem for problem in SOURCES.names("uqsonet_study.problems") if problem != "base"]


def problem_modules(names: Iterable[str]) -> list[str]:
    """Return the modules of problems; own data have none."""
    return [f"uqsonet_study.problems.{name}" for name in names if name in _problems()]


def require_problem(name: str, own: bool = False) -> None:
    """Refuse a problem without a file, and own data under the name of one that has a file.

    Raises
    ------
    ConfigError
        Naming those that have one.
    """
    known = _problems()
    if own and name in known:
        raise ConfigError(f"problems.{name}.data: {name} is a problem of the paper; rename yours")
    if not own and name not in known:
        raise ConfigError(
            f"problem {name!r} is unknown; there are {', '.join(known)}, and those with `data`"
        )


def file_digests(paths: Iterable[str], where: str) -> dict[str, str]:
    """Return path -> SHA-256 of a user's files.

    Raises
    ------
    ConfigError
        If one cannot be read.
    """
    found = {}
    for path in paths:
        try:
            found[path] = _file_digest(path)
        except OSError as error:
            raise ConfigError(
                f"{where}: {path}: {error.strerror or error} (sought from {Path.cwd().name}/)"
            ) from None
    return found


@cache
def _file_digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def data_digest(suffix: str = "") -> str:
    """Return a digest of what the reports read besides sources: the paper's numbers, the page."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "uqsonet_study/report").rglob("*")):
        code = path.suffix in (".py", ".pyc")
        if path.is_file() and not code and path.name.endswith(suffix):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
