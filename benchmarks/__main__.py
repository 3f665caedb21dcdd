"""All benchmarks, one command: `python -m benchmarks [--quick] [--out FOLDER]`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks import data, inference, kriging, memory, training
from benchmarks.rows import Row, write
from benchmarks.timing import gemm_peak, hardware, threads
from uqsonet.networks.devices import keep_freed_memory

SUBJECTS = {
    "training": training.rows,
    "data": data.rows,
    "inference": inference.rows,
    "kriging": kriging.rows,
    "memory": memory.rows,
}


def peaks(cores: list[int]) -> list[Row]:
    """Return the peak of matrix products that the floors of training refer to."""
    found = []
    for number in cores:
        with threads(number):
            value = gemm_peak() / 1e9
        found.append(Row("peak of float32 matrix products", hardware(number), value, "GFLOP/s"))
    return found


def main(
    quick: Annotated[bool, typer.Option(help="Small sizes: does all of it run?")] = False,
    out: Annotated[Path, typer.Option(help="Folder for benchmarks.{csv,json}.")] = Path(
        "results/benchmarks"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help=f"Some subjects: {', '.join(SUBJECTS)}.")
    ] = None,
) -> None:
    """Measure data, training, inference and memory, against peers in the same run."""
    torch.set_num_threads(1)
    keep_freed_memory()  # for the peers, too
    rows = peaks([1] if quick else [1, 2])
    for name in only or SUBJECTS:
        start = time.monotonic()
        rows += SUBJECTS[name](quick)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        write(rows, out)
    for row in rows:
        cells = row.cells()
        peer = f"  {cells['ratio']} x  {row.peer}" if row.ratio else ""
        print(f"{row.name}: {cells['value']} {row.unit}{peer}")
    print(f"{out}/benchmarks.csv")


if __name__ == "__main__":
    typer.run(main)
