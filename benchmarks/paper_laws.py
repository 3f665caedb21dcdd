"""Which law `auto` chooses for the paper's five operators, with the weights that are shipped.

    python -m benchmarks.paper_laws published/any_law/paper.csv

Training inputs are those of the default run (the first 10,000 of its streams), held-out pairs its
first 100 validation functions. Where the choice is `gaussian`, a model of recipe `tuned` with the
law `auto` is the published one, and so are its scores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch

from uqsonet.fitting.choose_law import equip
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.operator.file import load
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet_study.problems import get_problem
from uqsonet_study.simulation import simulate_shard

SEED, SHARD, SHARDS, HELD = 2026, 1000, 10, 100
COUNTS = {1: (1, 4, 10), 2: (1, 2, 4)}


def choice(name: str) -> dict[str, object]:
    """Return the chosen law of a problem, and how far its coefficients are from Gaussian."""
    problem, model = get_problem(name), load(name)
    assert isinstance(model, KarhunenLoeveModel)
    inputs = []
    for shard in range(SHARDS):
        generator = numpy_generator(SEED, name, "training", "functions", shard)
        xi, _ = problem.normals(generator, SHARD)
        inputs.append(problem.transform.inverse(problem.gaussian_prior.field(xi)).float())
    kappa = torch.cat(inputs)
    training = Functions(model.fields, "training", kappa, torch.zeros(len(kappa), 1))
    pairs = simulate_shard(problem, SEED, "validation", 0, HELD)
    held = Functions(model.fields, "validation", *(t.float() for t in pairs))
    generator = numpy_generator(SEED, name, "laws", "layouts")
    layouts = {
        m: torch.from_numpy(generator.integers(0, problem.grid.size, (HELD, m)))
        for m in COUNTS[problem.grid.dim]
    }
    rows = equip(model, "auto", training, held, layouts=layouts, seed=SEED)
    first = rows[0]
    found: dict[str, object] = {"problem": name, "tried": " ".join(row["law"] for row in rows)}
    found |= {key: round(first[key], 5) for key in ("distance", "chance")}
    return found | {"chosen": next(row["law"] for row in rows if row["chosen"])}


def main() -> None:
    """Print the table and, if a path is given, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    out = parser.parse_args().out
    names = ["diffusion1d", "poisson2d", "elliptic_sde1d", "elliptic_sde2d", "navier_stokes"]
    table = pd.DataFrame([choice(name) for name in names])
    print(table.to_string(index=False))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(out, index=False)


if __name__ == "__main__":
    main()
