"""Thousands of configurations from the real one, damaged: a clear refusal or a valid configuration.

python -m tests.reliability.fuzz_config --count 10000 --log docs/fuzz-config.csv     (make fuzz)
"""

from __future__ import annotations

import argparse
import copy
import csv
import sys
from collections import Counter
from pathlib import Path

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from uqsonet.errors import ConfigError
from uqsonet_study.config import Config, load_config
from uqsonet_study.pipeline import Plan

ROOT = Path(__file__).resolve().parents[2]
BASE = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))

Place = tuple[str | int, ...]


def places(node: object, path: Place = ()) -> list[Place]:
    """Return the way to every key and entry."""
    items = node.items() if isinstance(node, dict) else enumerate(node)  # type: ignore[arg-type]
    found: list[Place] = []
    for key, value in items:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


PLACES = places(BASE)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, -(2**63), 10**30, 10**400, 1e308, -1e308, 5e-324, -0.0]),
    st.floats(allow_nan=True, allow_infinity=True),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *(
                "",
                " ",
                "\x00",
                "\ud800",
                "é" * 40,
                "‮",
                "a" * 100_000,
                "../../etc",
                "__import__('os')",
            ),
            *("!!python/object:os.system", "{0.__class__}", "$(id)", "1e400", "true", "~", "1_000"),
        ]
    ),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.binary(max_size=4), st.dates())
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(TEXTS, st.integers(-2, 9), st.none()), inner, max_size=4),
    ),
    max_leaves=8,
)


def deep(levels: int) -> object:
    """Return a list in a list in a list."""
    found: object = 1
    for _ in range(levels):
        found = [found]
    return found


KINDS = {
    "leaf": LEAVES,
    "number": NUMBERS,
    "text": TEXTS,
    "junk": JUNK,
    "deep": st.sampled_from([10, 500, 5000]).map(deep),
    "long": st.sampled_from([1000, 30_000]).map(lambda n: list(range(1, n))),
    "other": st.sampled_from(PLACES),
}
"""What is put in a place; `other` is the value of another place. Besides: gone, added, text."""


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, object]:
    """Return the kind of the first mutation and the configuration after one to four."""
    raw, first = copy.deepcopy(BASE), ""
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([*KINDS, "gone", "added", "renamed", "whole"]))
        first = first or kind
        path = draw(st.sampled_from(PLACES))
        if kind == "whole":
            if draw(st.integers(0, 9)) == 0:
                return kind, draw(JUNK)
            continue
        node = raw
        try:
            for key in path[:-1]:
                node = node[key]
            if kind == "gone":
                del node[path[-1]]
            elif kind == "added":
                node[path[-1]][draw(TEXTS)] = draw(JUNK)
            elif kind == "renamed":
                node[draw(TEXTS)] = node.pop(path[-1])
            elif kind == "other":
                other: object = BASE
                for key in draw(KINDS[kind]):
                    other = other[key]  # type: ignore[index]
                node[path[-1]] = copy.deepcopy(other)
            else:
                node[path[-1]] = draw(KINDS[kind])
        except (KeyError, TypeError, IndexError, AttributeError):
            continue  # an earlier mutation removed this place, or it takes no such change
    return first, raw


def outcome(raw: object, planned: bool) -> str:
    """Return `refused`, `accepted`, or what was raised instead; plan the run too where asked."""
    try:
        config = load_config(raw)  # type: ignore[arg-type]
        assert isinstance(config, Config)
        if planned:
            plan = Plan(config)
            for name in plan.tables():
                plan.table_inputs(name)
    except ConfigError as error:
        str(error).encode("utf-8", "backslashreplace")
        return "refused" if len(str(error)) < 100_000 else "a message of 100 kB"
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:200]}"
    return "accepted"


CHUNK = 500
"""Configurations drawn from one seed: hypothesis slows down with their number."""


def run(count: int, log: Path | None = None) -> Counter[tuple[str, str]]:
    """Judge `count` configurations; return counts by mutation and outcome, kept in `log`."""
    counts: Counter[tuple[str, str]] = Counter()
    number = 0
    while counts.total() < count:
        judge_chunk(number, min(CHUNK, count - counts.total()), counts)
        number += 1
        if log is not None:
            write(log, counts)
    return counts


def judge_chunk(number: int, count: int, counts: Counter[tuple[str, str]]) -> None:
    """Judge a chunk, the same one for the same number."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated())
    def judge(case: tuple[str, object]) -> None:
        kind, raw = case
        counts[kind, outcome(raw, counts.total() % 20 == 0)] += 1  # plans are slow

    judge()


def write(log: Path, counts: Counter[tuple[str, str]]) -> None:
    """Write the counts as CSV."""
    with log.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("mutation", "outcome", "configurations"))
        writer.writerows((*key, number) for key, number in sorted(counts.items()))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--log", type=Path, default=Path("fuzz-config.csv"))
    options = parser.parse_args()
    counts = run(options.count, options.log)
    print(f"{counts.total()} configurations")
    bad = sorted({key for key in counts if key[1] not in ("refused", "accepted")})
    print(*bad, sep="\n")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
