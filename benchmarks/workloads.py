"""What is trained in the benchmarks: recipes of config.yaml on real data, one batch per count."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.base import Batch, OperatorModel, build_model
from uqsonet.runs.functions import Functions
from uqsonet_study.cases import Study
from uqsonet_study.gradients import ChunkOptimiser
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.loading import read_config
from uqsonet_study.problems import get_problem
from uqsonet_study.settings import Method

CONFIG = Path(__file__).parents[1] / "config.yaml"


@cache
def study_of(recipe: str) -> Study:
    """Return the study of `config.yaml` with one recipe."""
    config = read_config([CONFIG])
    return Study(config.model_copy(update={"recipe": recipe}))


@cache
def functions(problem_name: str, size: int, device: str = "cpu") -> Functions:
    """Return training pairs of a problem, on the CPU; equations are solved on a device."""
    problem = get_problem(problem_name)
    kept = problem.training_grid()[1]
    generator = np.random.default_rng(0)
    kappa = torch.empty(size, problem.grid.size)
    u = torch.empty(size, len(kept))
    for first in range(0, size, 1000):
        rows = slice(first, min(first + 1000, size))
        left, right = problem.sample(generator, rows.stop - first, device)
        kappa[rows], u[rows] = left, right[:, kept]
    return Functions(problem.fields, "training", kappa, u)


@dataclass
class Workload:
    """A model ready to train, with a batch for each number of sensors.

    Attributes
    ----------
    method : Method
    model : OperatorModel
    batches : list of Batch
        With ``u`` as the model's loss reads it.
    plain : list of Tensor
        The outputs of each batch on the training grid.
    """

    method: Method
    model: OperatorModel
    batches: list[Batch]
    plain: list[Tensor] = field(default_factory=list)

    def on(self, device: str) -> Workload:
        """Move everything to a device."""
        self.model.to(device)
        self.batches = [{k: v.to(device) for k, v in batch.items()} for batch in self.batches]
        self.plain = [u.to(device) for u in self.plain]
        return self

    def normals(self) -> Tensor:
        """Draw the latent normals of a batch, on its device."""
        shape = self.method.training.batch_size, self.model.latent_dim
        return torch.randn(shape, device=self.plain[0].device)

    def optimiser(self) -> ChunkOptimiser:
        """Return a fresh optimiser of a copy of the model."""
        return ChunkOptimiser(copy.deepcopy(self.model), self.method.training)


def workload(
    problem: str,
    recipe: str,
    counts: list[int] | None = None,
    batch_size: int | None = None,
    pairs: int | None = None,
    method: str = "uqsonet",
) -> Workload:
    """Return a recipe's training of a problem.

    Parameters
    ----------
    problem : str
        Also the name of the experiment whose recipe and sensor counts are used.
    recipe : str
    counts : list of int, optional
        Other numbers of sensors.
    batch_size, pairs : int, optional
        Another batch size; training pairs to make (by default one batch, at least 2,000).
    method : str
    """
    study = study_of(recipe)
    case = study.first(problem)
    chosen = study.settings(case, method)
    if batch_size is not None:
        training = chosen.training.model_copy(update={"batch_size": batch_size})
        chosen = chosen.model_copy(update={"training": training})
    size = chosen.training.batch_size
    data = functions(problem, pairs or max(size, 2000))
    torch.manual_seed(0)
    model = build_model(method, data.fields, chosen.network, 0.0)
    with torch.no_grad():
        model.fit_constants(data)
    targets = model.targets(data)
    numbers: list[int] = counts or (case.counts if model.reads_sensors else [0])
    shared = chosen.training.protocol == "batch_shared"
    found = Workload(chosen, model, [])
    generator = np.random.default_rng(1)
    for m in numbers:
        rows = torch.from_numpy(generator.permutation(data.size)[:size].copy())
        batch = {name: value[rows] for name, value in targets.items()}
        if model.reads_sensors:
            drawn = uniform_layouts(
                generator, data.fields.input.grid.size, m, 1 if shared else size
            )
            layout = torch.from_numpy(drawn).long().expand(size, m)
            locations, values = data.fields.input.read(data.kappa[rows], layout)
            mask = torch.ones(size, m, dtype=torch.bool)
            batch |= {"index": layout, "values": values, "mask": mask}
            batch["locations"] = locations.float()
        found.batches.append(batch)
        found.plain.append(data.u[rows])
    return found


def flops(network: AttentionNetwork, dim: int, points: int, batch: int, m: int) -> float:
    """Return the operations of one step of the paper's formulas, matrix products only.

    Forward is two operations for each weight and row it meets. Backward is twice that: one
    product for the gradient of the weight, one for that of the input. The input of the
    location and value perceptrons and u need no gradient, the trunk meets M points only.
    """

    def weights(inputs: int, hidden: list[int], outputs: int) -> int:
        widths = [inputs, *hidden, outputs]
        return sum(a * b for a, b in pairwise(widths))

    d, heads, z, p = network.embedding_dim, network.heads, network.latent_dim, network.truncation
    h = heads * network.head_width
    token = weights(dim, network.location_embedding, d) + weights(1, network.value_embedding, d)
    token += heads * weights(d, network.attention, 1)
    token += heads * weights(d, network.attention, network.head_width)
    sample = weights(h + points, network.encoder, 2 * z) + weights(h + z, network.branch, p)
    sample += p * points  # the expansion on the grid
    unneeded = points * network.encoder[0]  # the gradient with respect to u
    return 6.0 * (batch * (m * token + sample) + points * weights(dim, network.trunk, p)) - (
        2.0 * batch * unneeded
    )
