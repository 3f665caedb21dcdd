"""Random calls of the interface: every answer is finite, or refused by one of our errors.

    python -m tests.reliability.fuzz_calls --count 3000 --log results/fuzz-calls.csv

Places, values, noise, sizes, levels and seeds are drawn by hypothesis: usual numbers, numbers of
any size, and things that are no numbers. Hypothesis shrinks what fails to its shortest form.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uqsonet
from uqsonet.baselines import Cokriging
from uqsonet.data import Functions
from uqsonet.errors import UQSONetError
from uqsonet.problems import get_problem
from uqsonet.regression import Regression

ODD = [
    *(0, -1, -0.5, 1e-300, 1e30, 1e39, 1e154, 1e200, -1e308, 10**400, np.int64(3), np.float32(0.1)),
    *(float("nan"), float("inf"), -float("inf"), True, None, "a", "0.1", b"1", 1j, object()),
    *([], [[0.1]], [0.1, 0.2], {}, np.datetime64("2020"), torch.ones(1, requires_grad=True)),
]
"""What stands where a number should."""

USUAL = st.floats(0.05, 0.95)
ANY = st.one_of(st.floats(), st.sampled_from(ODD))
NUMBER = st.one_of(USUAL, USUAL, ANY)
SIZE = st.one_of(st.integers(1, 20), st.sampled_from(ODD))
ASKED: dict[str, tuple[st.SearchStrategy, ...]] = {
    "mean": (),
    "std": (),
    "sample": (SIZE,),
    "quantile": (NUMBER,),
    "band": (NUMBER,),
    "covariance": (),
    "coefficient_moments": (SIZE,),
    "place": (NUMBER,),
}
OPERATORS = ("diffusion1d", "poisson2d", "elliptic_sde1d", "raw", "cokriging", "regression")


@cache
def operator(name: str) -> Any:
    """Return what answers: an emulator, its model alone, or a baseline fitted to 40 pairs."""
    if name == "raw":
        return uqsonet.load("diffusion1d").operator
    if name not in ("cokriging", "regression"):
        return uqsonet.load(name)
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(0), 40)
    u = u[:, problem.training_grid()[1]].contiguous()
    pairs = Functions(problem.fields, "training", kappa.float(), u.float())
    return {"cokriging": Cokriging, "regression": Regression}[name](pairs, 0.0)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one call: who is asked, sensors, the question and its arguments."""
    who, asked = draw(st.sampled_from(OPERATORS)), draw(st.sampled_from(sorted(ASKED)))
    dim, m = 2 if who == "poisson2d" else 1, draw(st.integers(1, 3))
    odd = draw(st.sampled_from(["places", "values", "noise", "question", "all"]))

    def numbers(name: str, count: int) -> list[Any]:
        one = NUMBER if odd in (name, "all") else USUAL
        return draw(st.lists(one, min_size=count, max_size=count))

    spread = np.linspace(0.1, 0.9, m)[:, None] * np.ones(dim)
    places = [numbers("places", dim) for _ in range(m)] if odd in ("places", "all") else spread
    noise = draw(st.one_of(st.none(), ANY)) if odd in ("noise", "all") else None
    given = places, numbers("values", m), noise
    usual = {"sample": 3, "quantile": 0.5, "band": 0.5, "coefficient_moments": 3}
    questions = [
        draw(one) if odd in ("question", "all") else usual.get(asked) for one in ASKED[asked]
    ]
    return {"who": who, "asked": asked, "given": given, "arguments": questions}


def answer(who: str, asked: str, given: tuple[Any, Any, Any], arguments: list[Any]) -> Any:
    """Return what a call returns."""
    places, values, noise = given
    if asked == "place":
        if not isinstance(operator(who), uqsonet.Emulator):
            raise UQSONetError("only emulators place sensors")
        rest = dict(
            noise_std=arguments[0], candidates=operator(who).fields.input.grid.points()[:20]
        )
        return operator(who).place(2, **rest).reduction
    posterior = operator(who).condition(places, values, noise_std=noise)
    emulator = isinstance(operator(who), uqsonet.Emulator)
    if (emulator and asked == "coefficient_moments") or (
        not emulator and asked in ("band", "covariance")
    ):
        asked, arguments = "mean", []
    if asked == "quantile" and not emulator:
        arguments = [arguments]
    where = (
        []
        if asked == "coefficient_moments"
        else [np.full((2, 2 if who == "poisson2d" else 1), 0.3)]
    )
    return getattr(posterior, asked)(*arguments, *where)


def outcome(call: dict[str, Any]) -> str:
    """Return finite or refused.

    Raises
    ------
    AssertionError
        If the answer holds a NaN or an infinity; any other error is that of the call.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = answer(**call)
    except UQSONetError:
        return "refused"
    for one in found if isinstance(found, tuple) else (found,):
        assert bool(np.isfinite(np.asarray(one)).all()), "an answer that is not finite"
    return "finite"


def run(count: int) -> Counter[tuple[str, str, str]]:
    """Make `count` calls; return how many there were by operator, question and outcome."""
    counts: Counter[tuple[str, str, str]] = Counter()

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], print_blob=False,
    )  # fmt: skip
    @given(calls())
    def each(call: dict[str, Any]) -> None:
        counts[call["who"], call["asked"], outcome(call)] += 1

    each()
    return counts


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--log", type=Path, default=Path("fuzz-calls.csv"))
    options = parser.parse_args()
    counts = run(options.count)
    with options.log.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("operator", "question", "outcome", "calls"))
        writer.writerows((*key, number) for key, number in sorted(counts.items()))
    print(f"{sum(counts.values())} calls, {Counter(k[2] for k in counts.elements())}")


if __name__ == "__main__":
    main()
