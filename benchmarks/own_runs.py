"""The paper's problems through `uqsonet.Runs` and `uqsonet.fit` alone, as a user's own data.

Errors of mean and standard deviation are measured against the study's reference posteriors:

    snakemake --cores 2 -- results/reference/diffusion1d/precise-2f44f436.h5
    python -m benchmarks.own_runs results/simulate/diffusion1d.h5 \\
        results/reference/diffusion1d/precise-2f44f436.h5 --runs 10000 --csv diffusion1d.csv
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import uqsonet
from uqsonet.gauss.metrics import relative_error
from uqsonet_study.evaluation.scores import uniform_grid
from uqsonet_study.reference.files import load_reference
from uqsonet_study.storage import load_functions


def as_runs(path: Path, size: int, stride: int) -> uqsonet.Runs:
    """Return the first training pairs of a functions file, the input on every stride-th point."""
    data = load_functions(path, "training", size)
    given = data.fields.input
    grid, kept = uniform_grid(given).subgrid(stride)
    kappa = torch.cat([block[:, kept] for block in data.kappa_rows.blocks(2000)])
    u = torch.cat(list(data.u_rows.blocks(2000)))
    outputs = data.fields.training_grid()[0]
    return uqsonet.Runs(
        {given.symbol: uqsonet.FieldRuns.of(kappa.numpy(), grid)},
        {data.fields.output.symbol: uqsonet.FieldRuns.of(u.numpy(), outputs)},
        name=data.fields.name,
    )


def scores(model: uqsonet.Emulator, path: Path) -> Any:
    """Return errors in percent, averaged over the reference's sets, by number of sensors."""
    reference, fields, noise_std = load_reference(path)
    o, points, rows = reference.observations, fields.output.grid.points(), []
    for s in range(len(o.values)):
        used = o.mask[s]
        answer = model.condition(o.locations[s][used], o.values[s][used], noise_std=noise_std)
        row: dict[str, float] = {"sensors": int(used.sum())}
        row["err_mean"] = 100 * float(relative_error(answer.mean(points), reference.mean[s]))
        row["err_std"] = 100 * float(relative_error(answer.std(points), reference.std[s]))
        rows.append(row)
    table: Any = pd.DataFrame(rows)
    return table.groupby("sensors").mean().reset_index()


def main() -> None:
    """Fit, score and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("functions", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--stride", type=int, default=1, help="Of the input's grid.")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", uqsonet.ObservationWarning)
    runs = as_runs(options.functions, options.runs, options.stride)
    start = time.process_time()
    model = uqsonet.fit(runs)
    seconds = time.process_time() - start
    found = scores(model, options.reference)
    table = found.to_string(index=False, float_format="%.3f")
    print(model, f"\nfitted in {seconds:.0f} s of a core\n", table, sep="\n")
    if options.csv:
        found.to_csv(options.csv, index=False, lineterminator="\n", float_format="%.3f")


if __name__ == "__main__":
    main()
