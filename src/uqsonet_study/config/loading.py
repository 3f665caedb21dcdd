"""From plain dictionaries to a checked configuration, and to its JSON schema."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from uqsonet.errors import ConfigError
from uqsonet_study.config.whole import Config

MOST, LONGEST = 50, 500
"""Lines of a message, and characters of a line."""
DEEPEST = 40
"""Levels of lists and mappings in a configuration; no key of the schema lies ten down."""

_SHORT = reprlib.Repr()
"""Shows a value in part where it is long or nested deep: a file may hold anything."""
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxstring, _SHORT.maxother = 3, 12, 80, 80


def load_config(raw: Mapping[str, Any], source: str = "configuration") -> Config:
    """Validate a merged configuration.

    Raises
    ------
    ConfigError
        With one line per offending key: where it stands, what was found, what is allowed.
    """
    if _deeper_than(raw, DEEPEST):
        raise ConfigError(f"{source} is not valid: nested more than {DEEPEST} levels deep")
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        lines = [_cut(_explain(item)) for item in found[:MOST]]
        if len(found) > MOST:
            lines.append(f"... and {len(found) - MOST} more")
        raise ConfigError(
            f"{source} is not valid:\n" + "\n".join(f"  {x}" for x in lines)
        ) from None


def _deeper_than(value: object, levels: int) -> bool:
    # Level by level, without recursion and each object once a level: an alias in YAML may hold
    # itself, or itself a million times. The library would print a line for each repr that failed.
    level: list[object] = [value]
    for _ in range(levels + 1):
        nodes = {id(node): node for node in level if isinstance(node, Mapping | list | tuple)}
        if not nodes:
            return False
        level = []
        for node in nodes.values():
            level += node.values() if isinstance(node, Mapping) else node
    return True


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def _explain(item: Mapping[str, Any]) -> str:
    # Parts in angle brackets name a kind of value (one or several, ...), not a key.
    parts = [str(part) for part in item["loc"] if not str(part).startswith("<")]
    key = ".".join(parts) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    message = item["msg"].removeprefix("Value error, ")
    found = item.get("input")
    shown = (
        ""
        if isinstance(found, dict | BaseModel) or found is None
        else f" (found {_SHORT.repr(found)})"
    )
    return f"{key}: {message}{shown}"


def json_schema() -> str:
    """Return the JSON schema of the configuration as text."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"
