"""Files of models over time: that of one instant's emulator, and what follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uqsonet.dynamics.filters import LeftOver, Library, Model
from uqsonet.dynamics.steps import Circular, Step
from uqsonet.dynamics.trajectories import Clock
from uqsonet.emulator.emulator import Emulator
from uqsonet.emulator.files import content, read_fitted
from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import domain_as_dict, domain_from_dict
from uqsonet.files import path_of, readable
from uqsonet.operator.kernel_branch import KernelBranch
from uqsonet.operator.weight_files import built, read_weights, write_weights

Dynamics = Any  # `uqsonet.dynamics.dynamics.Dynamics`, whose methods call this file
HOME = "dynamics/"  # of tensors beside those of the emulator


def save_dynamics(model: Dynamics, path: Path | str) -> None:
    """Write a model over time to a file that `read_dynamics` reads."""
    tensors, meta = content(model.emulator)
    parts: dict[str, Any] = {"left": model.model.left, "library": model.model.library}
    parts["calibration"] = model.calibration
    found = {f"step/{k}": v for k, v in model.model.step.state_dict().items()}
    for name, one in parts.items():
        found |= {f"{name}/{k}": v for k, v in vars(one).items() if k in one.__annotations__}
    tensors |= {HOME + name: tensor for name, tensor in found.items()}
    network: Any = model.model.step.network
    meta["dynamics"] = {
        "clock": model.clock.as_dict(),
        "over_time": model.over_time,
        "grid": domain_as_dict(network.grid) if hasattr(network, "grid") else None,
    }
    meta["card"] = json.dumps(model.card)
    write_weights(path_of(path), tensors, meta)


def read_dynamics(path: Path | str) -> dict[str, Any]:
    """Return what a file holds of a model over time, as `Dynamics` takes it.

    It raises `DataError` if the file is missing, damaged, or holds something else.
    """
    path = path_of(path)
    tensors, meta = read_weights(path)
    if "dynamics" not in meta:
        raise DataError(f"{path}: no model over time; uqsonet.load reads others")
    # Copies are aligned in memory as fresh tensors are: products then have the same bytes.
    own = {k.removeprefix(HOME): v.clone() for k, v in tensors.items() if k.startswith(HOME)}
    operator, others = built(path, meta, {k: v for k, v in tensors.items() if HOME not in k})
    fitted = read_fitted(path, operator, meta["emulator"], others, _no_parts)
    with readable(path, "what it holds over time cannot be read"):
        stored, card = meta["dynamics"], json.loads(meta["card"])
        step = _step(own, stored["grid"])
        left, library, calibration = (
            {k.removeprefix(f"{name}/"): v for k, v in own.items() if k.startswith(f"{name}/")}
            for name in ("left", "library", "calibration")
        )
        model = Model(step, LeftOver(**left), Library(**library))
        count, clock = int(stored["over_time"]), Clock.from_dict(stored["clock"])
        kept, emulator = Library(**calibration), Emulator(operator, **fitted)
        _require_fitting(emulator, model, kept, count)
    return {"emulator": emulator, "over_time": count, "clock": clock, "model": model,
            "calibration": kept, "card": card}  # fmt: skip


def _no_parts(*_: object) -> Emulator:
    raise ValueError("parts of a model over time are no models")


def _step(own: dict[str, Tensor], grid: Any) -> Step:
    """Return the step whose tensors a file has."""
    state = {k.removeprefix("step/"): v for k, v in own.items() if k.startswith("step/")}
    r, q = len(state["scale"]), len(state["offset"])
    network: nn.Module | None = None
    if "network.centres" in state:
        network = KernelBranch(r, q, len(state["network.centres"]))
    elif grid is not None:
        domain = domain_from_dict(grid)
        if not isinstance(domain, Grid):
            raise TypeError("convolutions need a grid")
        fields = len(state["network.factor"]) // domain.size
        shape = domain.size, fields
        network = Circular(torch.zeros(shape), torch.zeros(*shape, r), q, domain)
    step = Step(torch.ones(r), q, network)
    step.load_state_dict(state)
    return step.eval()


def _require_fitting(emulator: Emulator, model: Model, kept: Library, over_time: int) -> None:
    """Refuse tensors whose shapes do not belong together."""
    left, library, bases = model.left, model.library, emulator.bases
    assert bases is not None
    q, r = model.step.weight.shape
    points = sum(one.domain.size for one in emulator.inputs)
    size, count = len(library.run), len(kept.run)
    shapes: list[tuple[Tensor, tuple[int, ...]]] = [
        (bases.input_factor, (points, r)),
        (left.root, (q, q)), (left.states, (len(left.left), r)), (left.left, (len(left.left), q)),
        (library.states, (size, r)), (library.run, (size,)), (library.instant, (size,)),
        (kept.states, (count, points)), (kept.instant, (count,)),
    ]  # fmt: skip
    if any(tuple(tensor.shape) != shape for tensor, shape in shapes):
        raise ValueError(f"shapes {[tuple(one.shape) for one, _ in shapes]} do not fit together")
    if not size or not 1 <= over_time <= len(emulator.inputs):
        raise ValueError(f"{size} snapshots, {over_time} fields over time")
