"""Training, validation and test functions of a problem: drawn, solved and stored.

Pairs are generated in shards, each from its own node of the seed tree, so the first N pairs of a
larger data set are the data set of size N, and any shard can be made again alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.config import ProblemConfig
from uqsonet.errors import DataError
from uqsonet.problems import Problem, get_problem
from uqsonet.seeds import numpy_generator
from uqsonet.storage import ArrayFile, write_arrays

SPLITS = ("training", "validation", "test")


def simulate_shard(
    problem: Problem, seed: int, split: str, shard: int, size: int
) -> tuple[Tensor, Tensor]:
    """Return pairs (kappa, u) of one shard, each (size, n), float64."""
    generator = numpy_generator(seed, problem.name, split, "functions", shard)
    return problem.sample(generator, size)


def simulate(name: str, config: ProblemConfig, seed: int, path: Path) -> None:
    """Generate all splits of a problem and store them.

    Training outputs are stored on the training grid, validation and test outputs on the full grid
    (they are the truths that bands and CRPS are scored against). Inputs are stored in full.
    """
    problem = get_problem(name)
    _, kept = problem.training_grid()
    sizes = {"training": config.training, "validation": config.validation, "test": config.test}
    arrays: dict[str, list[np.ndarray]] = {}
    for split, total in sizes.items():
        for shard, start in enumerate(range(0, total, config.shard)):
            # A whole shard is drawn even where only a part is kept: prefixes stay prefixes.
            kappa, u = simulate_shard(problem, seed, split, shard, config.shard)
            take = min(config.shard, total - start)
            u = u[:, kept] if split == "training" else u
            arrays.setdefault(f"{split}/kappa", []).append(kappa[:take].float().numpy())
            arrays.setdefault(f"{split}/u", []).append(u[:take].float().numpy())
    meta = {
        "problem": name,
        "seed": seed,
        "config": config.model_dump(),
        "grid": {"lower": problem.grid.lower, "upper": problem.grid.upper},
        "shape": problem.grid.shape,
        "output_stride": problem.output_stride,
        "sampled_in": "float64",
        "stored_in": "float32",
    }
    write_arrays(path, "functions", meta, arrays)


@dataclass(frozen=True)
class Functions:
    """Pairs of one split.

    Attributes
    ----------
    kappa : Tensor, shape (N, n)
        Inputs on the full grid, float32.
    u : Tensor, shape (N, M)
        Outputs: on the training grid for ``training``, else on the full grid, float32.
    """

    problem: Problem
    split: str
    kappa: Tensor
    u: Tensor

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.u)


def load_functions(path: Path, split: str) -> Functions:
    """Read and check one split of a functions file.

    Raises
    ------
    DataError
        If the file is damaged, its shapes disagree with the problem, or a value is not finite.
    """
    with ArrayFile(path, "functions") as file:
        problem = get_problem(file.meta["problem"])
        kappa, u = file.read(f"{split}/kappa"), file.read(f"{split}/u")
    points = problem.training_grid()[0].size if split == "training" else problem.grid.size
    for key, array, columns in (("kappa", kappa, problem.grid.size), ("u", u, points)):
        if array.ndim != 2 or array.shape[1] != columns or len(array) != len(kappa):
            raise DataError(
                f"{path}: {split}/{key} has shape {array.shape}, expected ({len(kappa)}, {columns})"
            )
    if problem.transform.name == "log" and not (kappa > 0).all():
        raise DataError(f"{path}: {split}/kappa must be positive, found {kappa.min()}")
    return Functions(problem, split, torch.from_numpy(kappa), torch.from_numpy(u))
