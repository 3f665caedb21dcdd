"""Operators that `uqsonet.fit` learns in closed form, by their number of pairs.

``python -m benchmarks.operators --out published/own_data/operators.csv`` takes some minutes of one
core. An error is that of the output's coefficients on 1,000 fresh pairs of section 4.1, given whole
inputs, over their size. `tuned` is the perceptron of the model in the package, which learned from
10,000 other pairs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd
import torch

import uqsonet
from uqsonet.files import write_text
from uqsonet.fitting.candidates import linear_model
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.operator.kernel_branch import LENGTHS, LINEAR, use_kernel
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study.problems import get_problem

PROBLEM, MODES, FRESH = "diffusion1d", 64, 1000
PAIRS = (40, 100, 300, 1000, 3000, 10_000)


def drawn(size: int, name: str) -> Functions:
    """Return pairs of the problem on its training grid."""
    problem = get_problem(PROBLEM)
    kappa, u = problem.pairs(*problem.normals(numpy_generator(0, "operators", name), size))
    points = problem.training_grid()[1]
    return Functions(problem.fields, "training", kappa.float(), u[:, points].float())


@torch.no_grad()
def error(model: KarhunenLoeveModel, pairs: Functions) -> float:
    """Return the error of a model's answers to whole inputs, over the size of outputs."""
    a = model.bases.coefficients_of(pairs.transformed_inputs().whole())
    c = model.bases.output_coefficients(pairs.u)
    return float((model.branch(a).double() - c).norm() / c.norm())


def main() -> None:
    """Fit to each number of pairs, and write a row for each operator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/operators.csv"))
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    options = parser.parse_args()
    fresh, rows = drawn(FRESH, "fresh"), []
    for size in options.pairs:
        pairs = drawn(size, f"{size} pairs")
        modes = min(size - 1, MODES)
        for name, lengths in (("least squares", ()), ("ridge", LINEAR), ("kernel", LENGTHS)):
            start = time.process_time()
            model = linear_model(pairs, modes, min(size // 3, MODES))
            if lengths:
                use_kernel(model, pairs, lengths)
            seconds = time.process_time() - start
            rows.append((size, name, 100 * error(model, fresh), seconds))
            print(*rows[-1], flush=True)
    tuned = uqsonet.load(PROBLEM).operator
    assert isinstance(tuned, KarhunenLoeveModel)
    rows.append((10_000, "tuned", 100 * error(tuned, fresh), float("nan")))
    table = pd.DataFrame(rows, columns=["pairs", "operator", "error_percent", "seconds"])
    write_text(options.out, table.to_csv(index=False, float_format="%.3g"))


if __name__ == "__main__":
    main()
