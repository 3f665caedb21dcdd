"""The operators of section 4, one file each, found by name; `beyond.problems` has nine more."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path

from uqsonet.errors import ConfigError
from uqsonet_study.problems.base import Problem

STUDY = Path(__file__).parents[1]
PACKAGES = {
    __name__: STUDY / "problems",
    "uqsonet_study.beyond.problems": STUDY / "beyond/problems",
}
"""Where problems are looked for: package -> its folder."""


def _homes() -> dict[str, str]:
    """Return problem -> the package that has its file."""
    found = {
        module.name: package
        for package, folder in PACKAGES.items()
        for module in pkgutil.iter_modules([str(folder)])
    }
    return {name: package for name, package in found.items() if name != "base"}


def problem_names() -> list[str]:
    """Return the names of all problems."""
    return sorted(_homes())


@cache
def get_problem(name: str) -> Problem:
    """Return the problem called `name`; its grid factor is computed once a process.

    Raises
    ------
    ConfigError
        If there is no such problem.
    """
    if name not in problem_names():
        raise ConfigError(f"problem {name!r} is unknown; there are {', '.join(problem_names())}")
    module = importlib.import_module(f"{_homes().get(name, __name__)}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Problem) and value is not Problem:
            if getattr(value, "name", None) == name:
                return value()
    raise ConfigError(f"problems/{name}.py defines no Problem whose name is {name!r}")
