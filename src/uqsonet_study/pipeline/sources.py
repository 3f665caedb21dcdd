"""Digests of the package's sources: what an edit changes, and what it does not."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from uqsonet.errors import ConfigError
from uqsonet_study.config import BASELINES

ROOT = Path(__file__).parents[2]
"""The folder of both packages."""

WITHOUT_INFLUENCE = {
    "uqsonet",
    "uqsonet.config",
    "uqsonet.config.networks",
    "uqsonet.config.recipes",
    "uqsonet.config.section",
    "uqsonet_study",
    "uqsonet_study.config",
    "uqsonet.errors",
    "uqsonet.progress",
    "uqsonet.training.progress",
}
"""Modules that cannot change a result: every configured value reaches a job as a parameter."""


def _path(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _parse(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the module's code without comments, docstrings and layout, and what it imports."""
    path = _path(module)
    if path is None:
        return "", ()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("uqsonet"):
            imports.add(node.module or "")
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            imports.update(a.name for a in node.names if a.name.startswith("uqsonet"))
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Docstrings are bare strings; so are the comments below attributes.
            kept = [x for x in body if not (isinstance(x, ast.Expr) and _is_text(x.value))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree), tuple(sorted(i for i in imports if _path(i) is not None))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def source_digest(modules: Iterable[str]) -> str:
    """Return a digest of modules and of all that they import within the package.

    Comments, docstrings and formatting have no influence.
    """
    return _digest(tuple(sorted(set(modules))))


@cache
def _digest(modules: tuple[str, ...]) -> str:
    seen: set[str] = set()
    queue = [m for m in modules if m not in WITHOUT_INFLUENCE]
    while queue:
        module = queue.pop()
        if module in seen:
            continue
        seen.add(module)
        queue.extend(m for m in _parse(module)[1] if m not in WITHOUT_INFLUENCE)
    digest = hashlib.sha256()
    for module in sorted(seen):
        digest.update(f"{module}\n{_parse(module)[0]}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _methods() -> dict[str, list[str]]:
    """Return method -> modules in `uqsonet.models` that define it, found by their text."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "uqsonet/nn").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "method":
                name = str(getattr(node.value, "value", None))
                found.setdefault(name, []).append(f"uqsonet.models.{path.stem}")
    return found


def method_modules(method: str) -> list[str]:
    """Return the modules in `uqsonet.models` that define a method; none for what is not trained.

    Raises
    ------
    ConfigError
        If no file defines it.
    """
    if method in BASELINES or method == "reference":
        return []
    known = _methods()
    if method not in known:
        raise ConfigError(f"method {method!r} is unknown; there are {', '.join(sorted(known))}")
    return known[method]


def require_problem(name: str) -> None:
    """Refuse a problem without a file.

    Raises
    ------
    ConfigError
        Naming those that have one.
    """
    known = {p.stem for p in (ROOT / "uqsonet/problems").glob("*.py")} - {"__init__", "base"}
    if name not in known:
        raise ConfigError(f"problem {name!r} is unknown; there are {', '.join(sorted(known))}")


def data_digest(suffix: str = "") -> str:
    """Return a digest of what the reports read besides sources: the paper's numbers, the page."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "uqsonet_study/report").rglob("*")):
        code = path.suffix in (".py", ".pyc")
        if path.is_file() and not code and path.name.endswith(suffix):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
