"""From a merged configuration to a checked one: one line for each mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from uqsonet.errors import ConfigError, nearest
from uqsonet_study.config import Config

MOST, LONGEST = 50, 500  # lines of a message, and characters of a line


def load_config(raw: Mapping[str, Any], source: str = "the configuration") -> Config:
    """Validate a merged configuration.

    Raises
    ------
    ConfigError
        With one line per offending key: where it stands, what was found, what is allowed.
    """
    config = None
    try:
        config = Config.model_validate(raw)
        lines = [
            f"{key}: must be a number, found {value}" for key, value in _truths(raw, config, "")
        ]
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors(include_url=False)]
    if config is not None and not lines:
        return config
    more = [f"... and {len(lines) - MOST} more"] * (len(lines) > MOST)
    shown = [f"  {line[:LONGEST]}" for line in [*lines[:MOST], *more]]
    raise ConfigError("\n".join([f"{source} is not valid:", *shown]))


def read_config(paths: Sequence[Path]) -> Config:
    """Read YAML files, later ones over earlier ones.

    Raises
    ------
    ConfigError
        If a file cannot be read or the merged configuration is not valid.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: must hold a mapping, found {type(found).__name__}")
        merged = merge(merged, found)
    return load_config(merged, " + ".join(map(str, paths)))


def merge(base: Any, overlay: Any) -> Any:
    """Return a mapping with an overlay's keys over its own, as Snakemake merges files."""
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    return base | {key: merge(base.get(key), value) for key, value in overlay.items()}


def _truths(raw: object, found: object, where: str) -> Iterator[tuple[str, bool]]:
    """Yield the places where a truth value was taken for a number."""
    if isinstance(raw, bool) and not isinstance(found, bool) and isinstance(found, int | float):
        yield where, raw
    elif isinstance(raw, Mapping):
        of = found if isinstance(found, Mapping) else getattr(found, "__dict__", {})
        for key, value in raw.items():
            yield from _truths(value, of.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(found, list):
        values = raw if isinstance(raw, list) else [raw]
        for value, made in zip(values, found, strict=False):
            yield from _truths(value, made, where)


def _explain(item: Mapping[str, Any]) -> str:
    # Parts in angle brackets name a kind of method, not a key.
    parts = [str(part) for part in item["loc"] if not str(part).startswith("<")]
    key = ".".join(parts) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(item['loc'][-1], _known_keys(item['loc']))}"
    message, found = item["msg"].removeprefix("Value error, "), item.get("input")
    shown = found is not None and not isinstance(found, dict | BaseModel)
    return f"{key}: {message}" + (f" (found {found!r})" if shown else "")


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
