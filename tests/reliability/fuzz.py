"""What the fuzzers share: odd values, a log and a command line.

Every case is drawn from `random.Random(number)`, so its number alone makes it again.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

Case = tuple[str, str]
"""What was done, and the outcome."""

NUMBERS = [0, -1, -0.5, 3, 5e-324, 1e30, 1e39, 1e154, 1e200, -1e308, 2**63, 10**400]
NUMBERS += [float("nan"), float("inf"), -float("inf")]
TEXTS = ["", " ", "a", "0.1", "1e400", "true", "~", "\x00", "\ud800", "é" * 40, "../../etc"]
TEXTS += ["__import__('os')", "!!python/object:os.system", "{0.__class__}", "$(id)", "a" * 100_000]
ODD = [*NUMBERS, *TEXTS, None, True, [], {}, [[]], [1, 2, 3], {"a": {"b": []}}, [0] * 5000]
"""What stands where something else should."""


def main(text: str, judged: Callable[[int], Iterator[Case]], fine: tuple[str, ...]) -> None:
    """Read the command line, judge cases, log them by kind, and fail if an outcome is not fine."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    counts: Counter[Case] = Counter()
    for number, (kind, outcome) in enumerate(judged(options.count)):
        counts[kind, outcome] += 1
        if outcome not in fine:
            print(f"case {number}, {kind}: {outcome}", flush=True)
    with options.log.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("kind", "outcome", "cases"))
        writer.writerows((*case, number) for case, number in sorted(counts.items()))
    outcomes = Counter(outcome for _, outcome in counts.elements())
    print(f"{counts.total()} cases: {dict(outcomes)}")
    sys.exit(bool(set(outcomes) - set(fine)))
