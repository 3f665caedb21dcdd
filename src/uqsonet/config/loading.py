"""From plain dictionaries to a checked configuration, and to its JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from uqsonet.config.whole import Config
from uqsonet.errors import ConfigError


def load_config(raw: Mapping[str, Any], source: str = "configuration") -> Config:
    """Validate a merged configuration.

    Raises
    ------
    ConfigError
        With one line per offending key: where it stands, what was found, what is allowed.
    """
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors(include_url=False)]
        raise ConfigError(
            f"{source} is not valid:\n" + "\n".join(f"  {x}" for x in lines)
        ) from None


def _explain(item: Mapping[str, Any]) -> str:
    # Parts in angle brackets name a kind of value (one or several, ...), not a key.
    parts = [str(part) for part in item["loc"] if not str(part).startswith("<")]
    key = ".".join(parts) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    message = item["msg"].removeprefix("Value error, ")
    found = item.get("input")
    shown = "" if isinstance(found, dict | BaseModel) or found is None else f" (found {found!r})"
    return f"{key}: {message}{shown}"


def json_schema() -> str:
    """Return the JSON schema of the configuration as text."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"
