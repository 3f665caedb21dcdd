"""Thousands of damaged configurations: each is refused by a `ConfigError`, or it is a valid one.

    python -m tests.reliability.fuzz_config --count 12000 --log results/fuzz-config.csv  (make fuzz)

Each is `config.yaml` after one to four changes. Those that are valid are planned, too.
"""

from __future__ import annotations

import copy
import datetime
import random
from collections.abc import Iterator
from functools import reduce
from typing import Any

import yaml

from tests.reliability import fuzz
from tests.workflow.conftest import ROOT
from uqsonet.errors import ConfigError
from uqsonet_study.config import load_config
from uqsonet_study.pipeline import Plan

FINE = ("refused", "accepted")
BASE = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
DEEP = [reduce(lambda found, _: [found], range(levels), 1) for levels in (10, 500, 5000)]
VALUES = [*fuzz.ODD, *DEEP, b"x", datetime.date(2020, 1, 1), {None: 1}, list(range(30_000))]


def anywhere(node: Any, chance: random.Random) -> tuple[Any, Any]:
    """Return a mapping or list somewhere in nested ones, and a key of it."""
    while True:
        key = chance.choice([*node] if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or chance.random() < 0.2:
            return node, key
        node = node[key]


def damaged(chance: random.Random) -> tuple[str, Any]:
    """Return the kind of the last change, and the configuration after all of them."""
    raw, kind = copy.deepcopy(BASE), ""
    for _ in range(chance.randint(1, 4)):
        kind = chance.choice(("value", "value", "value", "value of another", "gone", "renamed"))
        node, key = anywhere(raw, chance)
        if kind == "value":
            node[key] = copy.copy(chance.choice(VALUES))
        elif kind == "value of another":
            other, name = anywhere(BASE, chance)
            node[key] = copy.deepcopy(other[name])
        else:
            old = node.pop(key)
            if kind == "renamed" and isinstance(node, dict):
                node[chance.choice(fuzz.TEXTS)] = old
    return kind, raw if chance.random() > 0.01 else chance.choice(VALUES)


def outcome(raw: Any) -> str:
    """Return `refused`, `accepted` with all that it plans, or what was raised instead."""
    try:
        plan = Plan(load_config(raw))
        for name in plan.tables():
            plan.table_files(name)
    except ConfigError as error:
        return "refused" if len(str(error)) < 100_000 else "a message of 100 kB"
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:200]}"
    return "accepted"


def judged(count: int) -> Iterator[fuzz.Case]:
    """Judge damaged configurations."""
    for number in range(count):
        kind, raw = damaged(random.Random(number))
        yield kind, outcome(raw)


if __name__ == "__main__":
    fuzz.main(__doc__ or "", judged, FINE)
