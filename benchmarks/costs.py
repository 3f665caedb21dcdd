"""Seconds of `fit` and of an answer, by law, operator, dimension and number of sensors.

``python -m benchmarks.costs --out published/own_data/costs.csv`` takes more than an hour of one
core. 500 runs of an input that has the law, on 200 points of a line and on 64 x 64 of a square. The
output is the running mean s of the input (a linear operator), or s + s^2 (a kernel). Times are
processor time of one thread: of a fit once, of an answer the best of three layouts of sensors, each
new to the model. The column `operator` says what `fit` chose.
"""

from __future__ import annotations

import argparse
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import uqsonet
from uqsonet.files import write_text
from uqsonet.gauss.seeds import numpy_generator

RUNS, SENSORS, NOISE, BEST = 500, (3, 30), 0.02, 3
SIZES = {1: 200, 2: 64}
BOUND = 2.0  # of the absolute value of a bounded field


def gaussian(rng: np.random.Generator, size: int, dimension: int) -> np.ndarray:
    """Return Gaussian fields (size, n[, n]) of unit variance and squared exponential covariance."""
    x = np.linspace(0, 1, SIZES[dimension])
    values, vectors = np.linalg.eigh(np.exp(-((x[:, None] - x) ** 2) / 0.3**2))
    root = vectors * np.sqrt(values.clip(0))
    fields = rng.standard_normal((size, *(dimension * (len(x),)))) @ root.T
    return fields if dimension == 1 else root @ fields


def heavy(rng: np.random.Generator, size: int, dimension: int) -> np.ndarray:
    """Return Gaussian fields, each of random size."""
    scale = np.exp(0.7 * rng.standard_normal((size, *(dimension * (1,)))))
    return scale * gaussian(rng, size, dimension)


def bounded(rng: np.random.Generator, size: int, dimension: int) -> np.ndarray:
    """Return Gaussian fields that stay within `BOUND` everywhere."""
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < size:
        drawn = gaussian(rng, size, dimension)
        kept.append(drawn[np.abs(drawn).max(axis=tuple(range(1, drawn.ndim))) <= BOUND])
    return np.concatenate(kept)[:size]


INPUTS: dict[str, tuple[str, Callable[[np.random.Generator, int, int], np.ndarray]]] = {
    "gaussian": ("gaussian", gaussian),
    "mixture": ("mixture", heavy),
    "latent, two classes": ("latent", lambda *of: np.where(gaussian(*of) > 0, 0.8, -0.8)),
    "latent, margins": ("latent", lambda *of: np.maximum(gaussian(*of), 0) ** 1.5),
    "bounded": ("bounded", bounded),
}
"""Name of the law, and inputs that have it."""

ANSWERS: dict[str, Callable[[uqsonet.FieldPosterior], object]] = {
    "mean_std": lambda one: (one.mean(), one.std()),
    "quantiles": lambda one: one.quantile([0.05, 0.5, 0.95]),
    "samples": lambda one: one.sample(1000),
    "band": lambda one: one.band(0.9),
}
"""What is asked of a law: on all points of u."""


def outputs(k: np.ndarray, kind: str) -> np.ndarray:
    """Return the output of each input: its running mean s, or s + s^2."""
    s = k
    for axis in range(1, k.ndim):
        s = np.cumsum(s, axis) / k.shape[axis]
    return s if kind == "linear" else s + s**2


def rows(name: str, kind: str, dimension: int) -> list[dict[str, object]]:
    """Return the costs of a law and an operator, a row for each number of sensors."""
    law, draw = INPUTS[name]
    rng, axis = numpy_generator(0, "costs", name, dimension), np.linspace(0, 1, SIZES[dimension])
    k = draw(rng, RUNS + 1, dimension)
    both = [
        uqsonet.FieldRuns.of(values, (axis,) * dimension, transform="identity")
        for values in (k[:RUNS], outputs(k[:RUNS], kind))
    ]
    runs = uqsonet.Runs({"k": both[0]}, {"u": both[1]})
    start = time.process_time()
    model = uqsonet.fit(runs, sensors=SENSORS, law=law, bar=False)
    fit, points, found = time.process_time() - start, both[0].domain.points().numpy(), []
    for m in SENSORS:
        layouts = [rng.choice(len(points), m, replace=False) for _ in range(BEST)]
        reads = [(points[at], k[RUNS].reshape(-1)[at], NOISE) for at in layouts]
        row = {"law": name, "operator": model.card["recipe"]["branch"], "dimension": dimension}
        row |= {"sensors": m, "fit": fit}
        for title, answer in ANSWERS.items():
            again = iter(reads)
            once = lambda a=answer, r=again: a(model.condition(next(r)))  # noqa: E731
            row[title] = min(timeit.repeat(once, timer=time.process_time, number=1, repeat=BEST))
        found.append(row)
        print(*row.values(), flush=True)
    return found


def main() -> None:
    """Time every law and operator, and write a row for each number of sensors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/costs.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [(law, kind, d) for d in SIZES for law in INPUTS for kind in ("linear", "kernel")]
    table = pd.DataFrame([row for case in cases for row in rows(*case)])
    write_text(options.out, table.to_csv(index=False, float_format="%.3g"))


if __name__ == "__main__":
    main()
