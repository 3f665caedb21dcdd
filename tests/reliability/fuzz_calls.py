"""Thousands of random calls: every answer is finite, or the call is refused by one of our errors.

    python -m tests.reliability.fuzz_calls --count 3000 --log results/fuzz-calls.csv  (make attack)

Places, values, noise, sizes and levels are usual numbers, but for one kind of them, or all: those
may be of any size, or things that are no numbers.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch

import uqsonet
from tests.reliability import fuzz
from uqsonet.errors import UQSONetError
from uqsonet.operator.baselines import Cokriging
from uqsonet.runs.functions import Functions
from uqsonet_study.least_squares import LeastSquares
from uqsonet_study.problems import get_problem

FINE = ("finite", "refused")
ODD = [*fuzz.ODD, np.int64(3), np.float32(0.1), b"1", 1j, object(), [[0.1]], [0.1, 0.2]]
ODD += [np.datetime64("2020"), torch.ones(1, requires_grad=True)]
BASELINES = {"cokriging": Cokriging, "regression": LeastSquares}
OPERATORS = ("diffusion1d", "poisson2d", "elliptic_sde1d", *BASELINES)
USUAL = {"mean": (), "std": (), "sample": (3,), "quantile": (0.5,)}
USUAL |= {"band": (0.5,), "covariance": (), "place": (0.1,)}
"""Question -> its usual arguments. Baselines answer the first three."""


@cache
def operator(name: str) -> Any:
    """Return an emulator, or a baseline fitted to 40 pairs."""
    if name not in BASELINES:
        return uqsonet.load(name)
    problem = get_problem("diffusion1d")
    kappa, u = problem.sample(np.random.default_rng(0), 40)
    u = u[:, problem.training_grid()[1]].contiguous()
    return BASELINES[name](Functions(problem.fields, "training", kappa.float(), u.float()), 0.0)


def call(chance: random.Random, who: str, asked: str) -> Any:
    """Make one call; return its answer."""
    odd = chance.choice(("places", "values", "noise", "question", "all"))

    def number(what: str, usual: object) -> Any:
        if odd not in (what, "all") or chance.random() < 0.5:
            return usual
        return chance.choice([chance.uniform(-9, 9), chance.choice(ODD)])

    dim = 2 if who == "poisson2d" else 1
    spread = np.linspace(0.1, 0.9, 20)[:, None] * np.ones(dim)
    arguments = [number("question", usual) for usual in USUAL[asked]]
    if asked == "place":
        return operator(who).place(2, noise_std=arguments[0], candidates=spread).reduction
    places = [[number("places", x) for x in row] for row in spread[:: chance.randint(5, 20)]]
    values = [number("values", chance.uniform(0.05, 0.95)) for _ in places]
    posterior = operator(who).condition(places, values, noise_std=number("noise", None))
    return getattr(posterior, asked)(*arguments, np.full((2, dim), 0.3))


def outcome(chance: random.Random, who: str, asked: str) -> str:
    """Return `finite`, `refused`, or what came instead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call(chance, who, asked)
    except UQSONetError:
        return "refused"
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:200]}"
    parts = found if isinstance(found, tuple) else (found,)
    finite = all(bool(np.isfinite(np.asarray(part)).all()) for part in parts)
    return "finite" if finite else "an answer that is not finite"


def judged(count: int) -> Iterator[fuzz.Case]:
    """Judge calls of all operators."""
    for number in range(count):
        chance = random.Random(number)
        who = chance.choice(OPERATORS)
        asked = chance.choice([*USUAL][: 3 if who in BASELINES else None])
        yield f"{who}: {asked}", outcome(chance, who, asked)


if __name__ == "__main__":
    fuzz.main(__doc__ or "", judged, FINE)
