"""The operators of section 4, one file each, found by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from uqsonet.errors import ConfigError
from uqsonet_study.problems.base import Problem


def problem_names() -> list[str]:
    """Return the names of all problems in this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "base")


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
    module = importlib.import_module(f"{__name__}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Problem) and value is not Problem:
            if getattr(value, "name", None) == name:
                return value()
    raise ConfigError(f"problems/{name}.py defines no Problem whose name is {name!r}")
