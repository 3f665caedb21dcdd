"""Files of fitted models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.emulator.calibration import Calibration, CalibrationRuns
from uqsonet.errors import DataError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import require_noise
from uqsonet.fields.stacked import join
from uqsonet.files import Meta, readable
from uqsonet.operator.weight_files import built, write_weights

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

RUNS = ("inputs", "outputs", "columns")  # tensors of calibration runs in a file
GAP = 3e38  # stands in a file for what calibration runs do not know
REMAINDER = "emulator/remainder/input", "emulator/remainder/output"
ANSWERERS = ("given_inputs", "given_outputs")  # names of what answers, in a header


def save_model(emulator: Emulator, path: Path) -> None:
    """Write a fitted model to a file that `uqsonet.load` reads.

    It raises `DataError` if it is no fitted model, or the file cannot be written.
    """
    if not emulator.encoded or not hasattr(emulator.operator, "state_dict"):
        raise DataError(f"{path}: only models of uqsonet.fit are saved this way")
    tensors, meta = content(emulator)
    meta["card"] = json.dumps(emulator.card)  # text keeps the order of rows and columns
    write_weights(path, tensors, meta)


def content(emulator: Emulator) -> tuple[dict[str, Tensor], Meta]:
    """Return tensors and header of a fitted model, and of those that calibrate it."""
    model: Any = emulator.operator
    parameters = dict(model.named_parameters())
    tensors = {f"parameter/{k}": v[None] for k, v in parameters.items()}
    state = model.state_dict()
    tensors |= {f"buffer/{k}": v for k, v in state.items() if k not in parameters}
    tensors |= model.law_tensors()
    extra: dict[str, Any] = {"noise_std": dict(emulator.noise_std or {})}
    for side in ("inputs", "outputs"):
        extra[side] = [one.as_dict() for one in getattr(emulator, side)]
    if emulator.remainder is not None:
        tensors |= dict(zip(REMAINDER, emulator.remainder, strict=True))
    for side in ANSWERERS:
        if (one := getattr(emulator, side)) is not None:
            extra[side] = one.method
            tensors |= {f"emulator/pairs/{name}": tensor for name, tensor in one.pairs.items()}
    if emulator.linear is not None:
        tensors["emulator/cokriging"] = emulator.linear
    extra["calibration"] = []
    for k, runs in enumerate(emulator.calibration):
        start = f"emulator/calibration/{k}/"
        tensors |= {start + name: getattr(runs, name).nan_to_num(GAP) for name in RUNS}
        more, meta = content(runs.emulator) if runs.emulator is not None else ({}, None)
        tensors |= {f"{start}{name}": tensor for name, tensor in more.items()}
        extra["calibration"].append(meta)
    return tensors, {
        "method": model.method,
        "fields": emulator.fields.as_dict(),
        "config": {"network": model.config.model_dump(mode="json")},
        "noise_std": model.noise_std,
        "trials": [0],
        "emulator": extra,
    }


def read_fitted(
    path: Path | str, operator: Any, extra: Any, tensors: Mapping[str, Tensor],
    read: Callable[[Any, Mapping[str, Tensor], Meta], Emulator],
) -> dict[str, Any]:  # fmt: skip
    """Return what `save_model` wrote besides operator and card, checked, as `Emulator` takes it.

    `read` returns an emulator from an operator, a header and tensors. It raises `DataError` if the
    file cannot be read, or does not belong to the operator.
    """
    with readable(path, "header cannot be read"):
        inputs, outputs = (
            [Field.from_dict(f) for f in extra[side]] for side in ("inputs", "outputs")
        )
        noise_std = {str(name): float(level) for name, level in extra["noise_std"].items()}
        require_noise(torch.tensor([0.0, *noise_std.values()], dtype=torch.float64))
        if "emulator/calibration/inputs" in tensors:
            raise DataError("its calibration runs are those of an earlier version: fit again")
        _require_fitting(operator, inputs, outputs, tensors)
        calibration = []
        for k, meta in enumerate(extra["calibration"]):
            start = f"emulator/calibration/{k}/"
            part = {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
            kappa, u, columns = (part.pop(name) for name in RUNS)
            kappa, u = (torch.where(one == GAP, torch.nan, one) for one in (kappa, u))
            _require_runs(operator, kappa, u, columns)
            if calibration and not torch.equal(columns, calibration[0].columns):
                raise DataError("what calibrates is of other points")
            model = None
            if meta is not None:
                own, others = built(path, meta, part)
                model = read(own, others, meta)
            if model is not None and (model.inputs, model.outputs) != (inputs, outputs):
                raise DataError("what calibrates is of other fields")
            calibration.append(Calibration(kappa, u, columns, model))
        answerers = _answerers(operator, extra, tensors)
    return {
        "inputs": inputs,
        "outputs": outputs,
        "noise_std": noise_std,
        "remainder": tuple(tensors[name] for name in REMAINDER if name in tensors) or None,
        "calibration": CalibrationRuns(tuple(calibration)),
        "linear": _linear(operator, tensors),
        **answerers,
    }


def _answerers(operator: Any, extra: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what answers in place of the operator, by the side that sensors read."""
    if "floor" in extra:
        raise DataError(
            "it says by number of sensors what answers, as an earlier version did: fit again"
        )
    names = {side: extra[side] for side in ANSWERERS if side in extra}
    if not names:
        return {}
    from uqsonet.operator.baselines import plain

    start = "emulator/pairs/"
    pairs = {key.removeprefix(start): one for key, one in tensors.items() if key.startswith(start)}
    linear = _linear(operator, tensors)
    if linear is None:
        raise DataError("what answers in place of the operator has no linear operator")
    return {side: plain(name, operator, linear, pairs) for side, name in names.items()}


def _linear(operator: Any, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the linear operator and what it leaves; earlier files have the latter alone."""
    found = tensors.get("emulator/cokriging")
    if found is None or found.shape[1] > found.shape[0]:
        return found
    return torch.cat([operator.bases.linear_weight.double(), found.double()], 1)


def _require_runs(operator: Any, inputs: Tensor, outputs: Tensor, columns: Tensor) -> None:
    """Refuse calibration runs that do not belong to an operator."""
    sizes = [side.grid.size for side in (operator.fields.input, operator.fields.output)]
    n, k, last = len(inputs), len(columns), sizes[1] - 1
    found = [tuple(one.shape) for one in (inputs, outputs, columns)]
    if found != [(n, sizes[0]), (n, sizes[1]), (k,)] or columns.dtype != torch.int64:
        raise DataError(f"calibration runs have shapes {found}, {columns.dtype}, of {sizes} points")
    if not k or not 0 <= int(columns.min()) <= int(columns.max()) <= last:
        raise DataError(f"columns of calibration runs are not from 0 to {last}")


def _require_fitting(
    operator: Any, inputs: list[Field], outputs: list[Field], tensors: Mapping[str, Tensor]
) -> None:
    """Refuse named fields and tensors of a file that do not belong to its operator."""
    fields = operator.fields
    sides: Any = fields.input, fields.output
    shapes: dict[str, tuple[int, ...]] = {}
    for side, named in zip(sides, (inputs, outputs), strict=True):
        if join([one.domain for one in named]) != side.grid:
            raise DataError(f"its fields {[one.name for one in named]} have other points")
    for name, side in zip(REMAINDER, sides, strict=True):
        columns = tensors[name].shape[1:] if {*REMAINDER} & {*tensors} else ()  # both or none
        shapes[name] = side.grid.size, *(columns or (1,))
    if "emulator/pairs/a" in tensors:
        size, bases = len(tensors["emulator/pairs/a"]), operator.bases
        shapes["emulator/pairs/a"] = size, bases.input_factor.shape[1]
        shapes["emulator/pairs/c"] = size, bases.output_modes.shape[1]
    if "emulator/cokriging" in tensors:
        p, r = operator.bases.linear_weight.shape
        earlier = tensors["emulator/cokriging"].shape == (p, p)  # without the operator (`_linear`)
        shapes["emulator/cokriging"] = (p, p) if earlier else (p, r + p)
    for name in shapes:
        if name in tensors and tensors[name].shape != shapes[name]:
            found = tuple(tensors[name].shape)
            raise DataError(f"{name} has shape {found}, expected {shapes[name]}")
