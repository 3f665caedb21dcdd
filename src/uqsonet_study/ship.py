"""From full trainings to the small weight files that the library brings along, each with a card.

Modes on a grid of two axes and slopes are stored factored, to `TOLERANCE`. What random operators
leave open is known from samples only: residuals and the core of slopes are in half precision. What
this changes in answers is measured and stands in the card.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.files import file_digest
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.file import load, read_weights, write_weights
from uqsonet_study.config import Config
from uqsonet_study.headers import require_headers
from uqsonet_study.pipeline import Paths
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.report.cards import OPERATORS, card, is_published, rounded

TOLERANCE = 1e-5  # of a factored tensor: norm of what is left out, relative to the tensor's own
SMALLER = 0.75  # share of a tensor's size above which factors of it are not worth it
LARGEST_HALF = 1e4
"""Largest number of a core in half precision, where small ones still keep their digits."""

INPUTS = 200
"""Functions that show what values an input has, and that the sensors of a comparison read."""

SETS, MOST_SENSORS, SAMPLES = 100, 10, 8
"""Of a comparison: sets of sensors of each kind, sensors in the largest, samples of each set."""

CLUSTER = 0.05  # half the width of a cluster of sensors, relative to the box
SEEN = 0.01
"""Points whose std is below this share of the largest one are not compared: u is fixed there."""


def ship(config: Config, results: Path, published: Path, out: Path) -> list[Path]:
    """Write the small weights of all operators whose full ones are in a folder of results.

    Parameters
    ----------
    config : Config
        Its experiments are those of the trainings and scores.
    results : Path
        Has ``train/<problem>/<method>-<digest>/...``.
    published : Path
        Its summaries are behind the cards.
    out : Path
        The library's folder of weights.

    Returns
    -------
    list of Path
        The files written. Those whose full weights are missing stay as they are.

    Raises
    ------
    DataError
        If no scores of an operator are published, its experiments do not share a training, or a
        file is not that training's.
    """
    done = []
    for name in OPERATORS:
        file = training_of(name, config)
        full = results / file
        if not full.is_file():
            continue
        case = config.cases_of(OPERATORS[name].experiments)[0]
        told = {"problem": case.problem, "method": "uqsonet", "training": case.training}
        require_headers({"weights": str(full)}, told)
        tensors, meta = shrunk(full)
        meta["source"] = {"file": str(file), "sha256": file_digest(full)}
        path = out / f"{name}.safetensors"
        about = _card(name, config, published, full, (tensors, meta))
        write_weights(path, tensors, meta | {"card": about})
        done.append(path)
    return done


def _card(
    name: str, config: Config, published: Path, full: Path, small: tuple[dict[str, Tensor], Any]
) -> dict[str, Any]:
    """Return the card of an operator, with what its small form changes in answers."""
    tensors, meta = small
    about, file = card(name, config, published, meta), meta["source"]["file"]
    if not is_published(meta["source"], published):
        # The last validation skills of the repeated training and of the published one.
        paths = (full, published / file)
        logs = [pd.read_csv(path.with_suffix(".csv")).iloc[-1] for path in paths]
        names = [str(key) for key in logs[0].index if str(key).startswith("skill_")]
        about["repeated"] = {name: [rounded(log[name], 4) for log in logs] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.safetensors"
        write_weights(path, tensors, meta)
        return about | compared(load(full), load(path), get_problem(name))


def training_of(name: str, config: Config) -> Path:
    """Return where a folder of results has the first training behind an operator."""
    paths, experiments = Paths(config), OPERATORS[name].experiments
    cases = config.cases_of(experiments)
    found = {paths.trained(case, "uqsonet", "safetensors")[0] for case in cases}
    if len(found) != 1:
        raise DataError(f"{', '.join(experiments)}: several trainings of UQ-SONet, not one")
    return Path(found.pop()).relative_to(config.results)


def shrunk(source: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and header of a weight file in its small form."""
    tensors, meta = read_weights(source)
    fields = meta["fields"]
    inputs, outputs = (fields[side]["grid"]["shape"] for side in ("input", "output"))
    views = {
        "buffer/bases.input_factor": [*inputs, -1],
        "buffer/bases.output_modes": [*(-(-n // fields["output_stride"]) for n in outputs), -1],
        "buffer/residual_slopes": [*tensors.get("buffer/residual_slopes", torch.empty(0)).shape],
    }
    small, factored = {}, {}
    for name, tensor in tensors.items():
        parts = _factors(tensor.view(views[name])) if name in views else {}
        if parts and sum(part.numel() for part in parts.values()) < SMALLER * tensor.numel():
            if name == "buffer/residual_slopes":
                # Its core is brought to half precision; the scale goes into the first factor.
                scale = LARGEST_HALF / parts["core"].abs().max()
                first = next(part for part in parts if part != "core")
                parts["core"] = (parts["core"] * scale).half()
                parts[first] = parts[first] / scale
            small |= {f"{name}/{part}": value for part, value in parts.items()}
            factored[name] = list(tensor.shape)
        else:
            small[name] = tensor.half() if name == "buffer/residuals" else tensor
    return small, meta | {"factored": factored}


def _factors(tensor: Tensor) -> dict[str, Tensor]:
    """Return a core and factors of orthonormal columns (Tucker's form), to `TOLERANCE`.

    Axis by axis, the leading left singular vectors that leave out no more than its share. An axis
    that needs all of them stays as it is.
    """
    core, factors = tensor.double(), {}
    allowed = TOLERANCE * core.norm() / core.ndim**0.5
    for axis, size in enumerate(tensor.shape):
        rows = core.movedim(axis, 0)
        vectors, values, _ = torch.linalg.svd(rows.flatten(1), full_matrices=False)
        left = values.square().flip(0).cumsum(0).flip(0).sqrt()
        kept = vectors[:, : max(1, int((left > allowed).sum()))]
        if kept.shape[1] < size:
            factors[str(axis)] = kept.to(tensor.dtype)
            core = torch.tensordot(kept.T, rows, 1).movedim(0, axis)
    return {"core": core.to(tensor.dtype), **factors}


def compared(full: OperatorModel, small: OperatorModel, problem: Problem) -> dict[str, Any]:
    """Return what the law of the input gives: typical values, and how far answers are apart.

    Returns
    -------
    dict
        `typical_input`: the values of the input below which 5 % and 95 % of it are.
        `difference`: for `random` and `clustered` layouts, the median and the largest difference
        of `mean`, `std` and (for equal draws) `sample` over sets and points of the output's grid,
        in units of the posterior std there.
    """
    generator = torch.Generator().manual_seed(0)
    xi = torch.randn(INPUTS, problem.gaussian_prior.rank, generator=generator, dtype=torch.float64)
    inputs = problem.transform.inverse(problem.gaussian_prior.field(xi))
    ordered = inputs.flatten().sort().values
    ends = [ordered[int(level * len(ordered))] for level in (0.05, 0.95)]
    lower = torch.tensor(problem.grid.lower, dtype=torch.float64)
    width = torch.tensor(problem.grid.upper, dtype=torch.float64) - lower
    found: dict[str, Any] = {"sets": SETS, "sensors": [1, MOST_SENSORS]}
    for kind, functions in zip(("random", "clustered"), inputs.split(SETS)[:2], strict=True):
        away: list[list[Tensor]] = [[], [], []]
        for index, values in enumerate(functions):
            x = torch.rand(1 + index % MOST_SENSORS, len(width), generator=generator).double()
            if kind == "clustered":
                centre = torch.rand(len(width), generator=generator)
                x = (centre + CLUSTER * (2 * x - 1)).clamp(0, 1)
            x = lower + width * x
            field = problem.grid.interpolate(problem.transform.forward(values)[:, None], x)
            y = problem.transform.inverse(field[:, 0])
            theirs, ours = (model.condition(x, y) for model in (full, small))
            std = theirs.std()
            drawn = ours.sample(SAMPLES), theirs.sample(SAMPLES)
            pairs = (ours.mean(), theirs.mean()), (ours.std(), std), drawn
            for kept, (a, b) in zip(away, pairs, strict=True):
                kept.append(((a - b).abs() / std)[..., std > SEEN * std.max()].flatten())
        found[kind] = {
            what: {"median": rounded(values.median(), 2), "largest": rounded(values.max(), 2)}
            for what, values in zip(("mean", "std", "sample"), map(torch.cat, away), strict=True)
        }
    return {"typical_input": [rounded(end, 2) for end in ends], "difference": found}
