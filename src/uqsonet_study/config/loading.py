"""From plain dictionaries to a checked configuration, and to its JSON schema."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from uqsonet.errors import ConfigError, nearest
from uqsonet_study.config.whole import Config

MOST, LONGEST = 50, 500  # lines of a message, and characters of a line
DEEPEST, VALUES, CHARACTERS = 40, 100_000, 1 << 19
"""Levels of lists and mappings in a configuration, values with each alias written out, and
characters; the whole of `config.yaml` has 12 levels, 2,000 values and 13,000 characters."""
CODE = "__use_yte__"  # key by which Snakemake takes a file for a program
DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
"""Integers whose value is what they look like: ``010`` is 8 in YAML, ``1:30`` is 90."""


class _Short(reprlib.Repr):
    """Shows a value in part where it is long or nested deep: a file may hold anything."""

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits, or how many bits there are where Python prints none."""
        return super().repr_int(x, level) if x.bit_length() < 1000 else f"{x.bit_length()} bits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxstring, _SHORT.maxother = 3, 12, 80, 80


def load_config(raw: Mapping[str, Any], source: str = "configuration") -> Config:
    """Validate a merged configuration.

    Raises
    ------
    ConfigError
        With one line per offending key: where it stands, what was found, what is allowed.
    """
    try:
        _measure(raw)
    except ValueError as error:
        raise ConfigError(f"{source} is not valid: {error}") from None
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        lines = [_explain(item) for item in found[:MOST]]
        lines = [x if len(x) <= LONGEST else x[: LONGEST - 4] + " ..." for x in lines]
        if len(found) > MOST:
            lines.append(f"... and {len(found) - MOST} more")
        raise ConfigError(
            f"{source} is not valid:\n" + "\n".join(f"  {x}" for x in lines)
        ) from None
    for key, found in _truths(raw, config, ""):
        raise ConfigError(f"{source} is not valid:\n  {key}: must be a number, found {found}")
    return config


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """Return what a YAML or JSON file of the configuration holds; nothing in it is run.

    Parameters
    ----------
    source : str
        The file, for messages.

    Raises
    ------
    ConfigError
        If it is no mapping, too large, nested too deep or holds itself; if a key stands twice in a
        mapping, an integer is written to another base, or Snakemake would run code in it.
    """
    try:
        if len(text) > CHARACTERS:
            raise ValueError(f"{len(text)} characters, at most {CHARACTERS} are read")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            kind = "nothing" if root is None else root.tag.rpartition(":")[2]
            raise ConfigError(f"{source}: must hold a mapping, found {kind}")
        _measure(root)
        found = yaml.safe_load(text)
    except (ValueError, RecursionError, TypeError, yaml.YAMLError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{source}: cannot be read: {error}") from None
    return found


def require_readable(paths: Iterable[Path]) -> None:
    """Refuse configuration files that `read_mapping` refuses.

    Raises
    ------
    ConfigError
    """
    for path in paths:
        try:
            with path.open(encoding="utf-8") as file:
                read_mapping(file.read(CHARACTERS + 1), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None


def _truths(raw: object, found: object, where: str) -> Iterator[tuple[str, bool]]:
    """Yield the places where a truth value was taken for a number."""
    if isinstance(raw, bool) and not isinstance(found, bool) and isinstance(found, int | float):
        yield where, raw
    pairs: Iterable[tuple[object, object, object]] = []
    if isinstance(raw, Mapping):
        of = found if isinstance(found, Mapping) else getattr(found, "__dict__", {})
        pairs = [(key, value, of.get(key)) for key, value in raw.items()]
    elif isinstance(raw, list | tuple) and isinstance(found, list | tuple):
        pairs = [(k, *pair) for k, pair in enumerate(zip(raw, found, strict=False))]
    for key, value, made in pairs:
        yield from _truths(value, made, f"{where}.{key}".lstrip("."))


def _inner(value: object) -> list[Any]:
    """Return what a mapping, a list or a node of YAML holds; refuse what would be misread."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, yaml.SequenceNode):
        return value.value
    if isinstance(value, yaml.MappingNode):
        seen = set[str]()
        for key, _ in value.value:
            line = f"line {key.start_mark.line + 1}"
            if key.value == CODE:
                raise ValueError(f"{line}: {CODE} makes Snakemake run code; remove it")
            if isinstance(key.value, str) and key.value in seen:
                raise ValueError(f"{line}: {key.value[:80]} stands twice")
            seen.add(str(key.value) if isinstance(key.value, str) else "")
        return [one for _, one in value.value]
    if isinstance(value, yaml.ScalarNode) and value.tag.endswith((":int", ":float")):
        line = f"line {value.start_mark.line + 1}"
        if ":" in value.value:
            raise ValueError(f"{line}: {value.value[:80]} would be read to the base of 60")
        if value.tag.endswith(":int") and not DECIMAL.fullmatch(value.value):
            raise ValueError(f"{line}: {value.value[:80]} is no integer in plain decimal digits")
    return []


def _measure(root: object) -> None:
    """Refuse what is nested too deep, or has too many values with each alias written out."""
    waiting, values = [(root, 0)], 0
    while waiting:
        node, level = waiting.pop()
        values += 1
        if level > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep, or it holds itself")
        if values > VALUES:
            raise ValueError(f"more than {VALUES} values with each alias written out")
        waiting += [(one, level + 1) for one in _inner(node)]


def _explain(item: Mapping[str, Any]) -> str:
    # Parts in angle brackets name a kind of value (one or several, ...), not a key.
    parts = [str(part) for part in item["loc"] if not str(part).startswith("<")]
    key = ".".join(parts) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(item['loc'][-1], _known_keys(item['loc']))}"
    message = item["msg"].removeprefix("Value error, ")
    found = item.get("input")
    shown = (
        ""
        if isinstance(found, dict | BaseModel) or found is None
        else f" (found {_SHORT.repr(found)})"
    )
    return f"{key}: {message}{shown}"


def _known_keys(place: Sequence[object]) -> set[str]:
    """Return the keys that may stand where an unknown one was found."""
    models: set[type[BaseModel]] = {Config}
    for part in place[:-1]:
        fields = (model.model_fields.get(str(part)) for model in models)
        # Numbers, names and kinds of values (of lists, mappings, unions) are no fields.
        models = {m for f in fields if f is not None for m in _models(f.annotation)} or models
    return {key for model in models for key in model.model_fields}


def _models(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for one in get_args(annotation) for model in _models(one)}


def json_schema() -> str:
    """Return the JSON schema of the configuration as text."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"
