"""All problems of sensors over time, one table.

python -m benchmarks.over_time --only linear
python -m benchmarks.over_time --wind wind.csv --ours --out published/own_data/over_time.csv
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.over_time.common import Answer, Problem, scores
from benchmarks.over_time.kuramoto import dapper, lead, shred
from benchmarks.over_time.linear import linear
from benchmarks.over_time.lorenz96 import bocquet2010, spantini2019
from benchmarks.over_time.ours import ours
from benchmarks.over_time.wind import wind

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "linear": linear,
    "shred": shred,
    "shred1": partial(shred, sensors=1),
    "shred3": partial(shred, sensors=3),
    "shred5": partial(shred, sensors=5),
    "dapper": dapper,
    "lead": lead,
    "spantini2019": spantini2019,
    "bocquet2010": bocquet2010,
}
"""Problems by name, that are made anew; all take a seed and sizes."""

QUICK = {"runs": 40, "tests": 2}
"""Sizes that show that all of it runs."""


def rows(problem: Problem, peers: bool, own: bool) -> pd.DataFrame:
    """Return the scores of all methods of a problem, with the seconds that each took."""
    methods: list[Callable[[Problem], dict[str, Answer]]] = [ours] if own else []
    if peers:
        methods += [lambda p, n=name, one=one: {n: one(p)} for name, one in problem.peers.items()]
    tables = []
    for method in methods:
        start = time.monotonic()
        answers = method(problem)
        seconds = time.monotonic() - start
        tables += [scores(problem, *one).assign(seconds=seconds) for one in answers.items()]
    return pd.concat(tables).sort_values(
        "window", key=lambda names: names.map(list(problem.windows).index), kind="stable"
    )


def main() -> None:
    """Make, answer, score and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", choices=[*PROBLEMS, "wind"], help="Some of the problems."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="Small sizes: does it run?")
    parser.add_argument("--ours", action="store_true", help="Answer with uqsonet, too.")
    parser.add_argument("--no-peers", action="store_true", help="Leave the other methods out.")
    parser.add_argument("--wind", type=Path, help="CSV of the Irish wind (see wind.py).")
    parser.add_argument("--out", type=Path, help="CSV of all scores.")
    options = parser.parse_args()
    if "wind" in (options.only or []) and not options.wind:
        parser.error("the Irish wind needs --wind wind.csv; wind.py tells how to get it")
    tables = []
    problems = PROBLEMS | ({"wind": partial(wind, options.wind)} if options.wind else {})
    for name in options.only or problems:
        start = time.monotonic()
        sizes = QUICK if options.quick and name != "wind" else {}
        problem = problems[name](seed=options.seed, **sizes)
        print(f"{name}: data in {time.monotonic() - start:.1f} s, scale {problem.scale:.3g}")
        table = rows(problem, not options.no_peers, options.ours)
        print(table.drop(columns="problem").round(4).to_string(index=False), flush=True)
        tables.append(table)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        pd.concat(tables).to_csv(options.out, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
