"""Every error that a user can cause, so that one `except` clause or one line of output is enough.

Messages follow one form: which file or key, what was found, what is allowed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import isfunction, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class UQSONetError(ValueError):
    """Base class; the command line and the workflow print its message without a traceback."""

    def __str__(self) -> str:
        """Return the message without what a file may hide in names, such as a terminal's codes."""
        return printable(super().__str__())


class ConfigError(UQSONetError):
    """A configuration key is unknown, out of range or in conflict with another."""


class DataError(UQSONetError):
    """A file is missing, truncated, corrupted, foreign, or holds values that cannot be used."""


class ObservationError(UQSONetError):
    """Sensor locations or values that no posterior can be conditioned on."""


class TrainingError(UQSONetError):
    """Training cannot start, continue or resume."""


class NoUncertaintyError(UQSONetError):
    """A deterministic method was asked for a spread, samples or quantiles."""


class MissingLibraryError(UQSONetError, ImportError):
    """A library of an extra is not installed."""


class ObservationWarning(UserWarning):
    """Sensors that a model can answer, but that are unlike those it has learned from."""


class DataWarning(UserWarning):
    """Runs that can be read, but that may not be what they seem."""


def printable(text: object) -> str:
    """Return a text in which characters that nobody can print are written as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(text))


def nearest(name: object, known: Iterable[object], likeness: float = 0.6) -> str:
    """Return the end of a message that names what was probably meant; empty if nothing is near."""
    near = get_close_matches(str(name), [str(one) for one in known], 1, likeness)
    return f"; did you mean {near[0]!r}?" if near else ""


def removed(**arguments: str) -> Callable[[Function], Function]:
    """Refuse arguments of earlier versions, with what there is in their place."""

    def refusing(function: Any) -> Any:
        @wraps(function)
        def call(*values: Any, **named: Any) -> Any:
            for name in named.keys() & arguments.keys():
                raise ConfigError(f"{name} is no argument any more: {arguments[name]}")
            return function(*values, **named)

        return call

    return refusing


def renamed(**names: str) -> Callable[[Function], Function]:
    """Take arguments by their earlier names, too, with a `DeprecationWarning`.

    Of a class it is about all methods that have the new ones.
    """

    def taking(one: Any) -> Any:
        if isinstance(one, type):
            for key, method in list(vars(one).items()):
                if isfunction(method) and signature(method).parameters.keys() & names.values():
                    setattr(one, key, taking(method))
            return one

        @wraps(one)
        def call(*values: Any, **named: Any) -> Any:
            for old in named.keys() & names.keys():
                warnings.warn(f"{old}= is {names[old]}= now", DeprecationWarning, stacklevel=2)
                named[names[old]] = named.pop(old)
            return one(*values, **named)

        return call

    return taking


def library(name: str, extra: str = "runs") -> Any:
    """Return a library that only an extra brings along.

    Raises
    ------
    MissingLibraryError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("sklearn", "scikit-learn")
        way = f"'uqsonet[{extra}]', or {package} alone" if extra else package
        raise MissingLibraryError(f"this needs {package}: pip install {way}") from None
