"""Files of fitted models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uqsonet.emulator.calibration import Calibration
from uqsonet.errors import DataError
from uqsonet.fields.field import Field
from uqsonet.fields.numbers import require_noise
from uqsonet.fields.stacked import join
from uqsonet.files import readable
from uqsonet.operator.file import write_weights

Emulator = Any  # `uqsonet.emulator.emulator.Emulator`, whose methods call this file

CALIBRATION = ("inputs", "outputs", "columns")  # tensors of the calibration runs in a file
ANSWERERS = ("given_inputs", "given_outputs")  # names of what answers, in a header


def save_model(
    emulator: Emulator, card: Mapping[str, Any], unexplained: Tensor | None, path: Path
) -> None:
    """Write a fitted model to a file that `uqsonet.load` reads.

    It raises `DataError` if it is no fitted model, or the file cannot be written.
    """
    model: Any = emulator.operator
    if not emulator.encoded or not hasattr(model, "state_dict"):
        raise DataError(f"{path}: only models of uqsonet.fit are saved this way")
    parameters = dict(model.named_parameters())
    tensors = {f"parameter/{k}": v[None] for k, v in parameters.items()}
    state = model.state_dict()
    tensors |= {f"buffer/{k}": v for k, v in state.items() if k not in parameters}
    tensors |= model.law_tensors()
    extra: dict[str, Any] = {"noise_std": emulator.noise_std}
    for side in ("inputs", "outputs"):
        extra[side] = [one.as_dict() for one in getattr(emulator, side)]
    if emulator.remainder is not None:
        tensors["emulator/remainder"] = emulator.remainder
    if emulator.calibration is not None:
        for name in CALIBRATION:
            tensors[f"emulator/calibration/{name}"] = getattr(emulator.calibration, name)
    for side in ANSWERERS:
        if (one := getattr(emulator, side)) is not None:
            extra[side] = one.method
            tensors |= {f"emulator/pairs/{name}": tensor for name, tensor in one.pairs.items()}
    if unexplained is not None:
        tensors["emulator/cokriging"] = unexplained
    meta = {
        "method": model.method,
        "fields": emulator.fields.as_dict(),
        "config": {
            "network": model.config.model_dump(mode="json"),
        },
        "noise_std": model.noise_std,
        "trials": [0],
        "emulator": extra,
        "card": json.dumps(card),  # text keeps the order of rows and columns
    }
    write_weights(path, tensors, meta)


def read_fitted(
    path: Path | str, operator: Any, extra: Any, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return what `save_model` wrote besides operator and card, checked, as `Emulator` takes it.

    It raises `DataError` if it cannot be read, or does not belong to the operator.
    """
    with readable(path, "header cannot be read"):
        inputs, outputs = (
            [Field.from_dict(f) for f in extra[side]] for side in ("inputs", "outputs")
        )
        noise_std = float(extra["noise_std"])
        require_noise(torch.tensor(noise_std, dtype=torch.float64))
        calibrated = any(key.startswith("emulator/calibration/") for key in tensors)
        names = CALIBRATION if calibrated else ()
        runs = [tensors[f"emulator/calibration/{name}"] for name in names]
        _require_fitting(operator, inputs, outputs, runs, tensors)
        answerers = _answerers(operator, extra, tensors)
    return {
        "inputs": inputs,
        "outputs": outputs,
        "noise_std": noise_std,
        "remainder": tensors.get("emulator/remainder"),
        "calibration": Calibration(*runs) if runs else None,
        "unexplained": tensors.get("emulator/cokriging"),
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
    root = tensors["emulator/cokriging"]
    return {side: plain(name, operator, root, pairs) for side, name in names.items()}


def _require_fitting(
    operator: Any, inputs: list[Field], outputs: list[Field], runs: list[Tensor],
    tensors: Mapping[str, Tensor],
) -> None:  # fmt: skip
    """Refuse named fields and tensors of a file that do not belong to its operator."""
    fields = operator.fields
    for side, named in ((fields.input, inputs), (fields.output, outputs)):
        if join([one.domain for one in named]) != side.grid:
            raise DataError(f"its fields {[one.name for one in named]} have other points")
    last = fields.output.grid.size - 1
    shapes: dict[str, tuple[int, ...]] = {"emulator/remainder": (last + 1,)}
    if "emulator/pairs/a" in tensors:
        size, bases = len(tensors["emulator/pairs/a"]), operator.bases
        shapes["emulator/pairs/a"] = size, bases.input_factor.shape[1]
        shapes["emulator/pairs/c"] = size, bases.output_modes.shape[1]
    if "emulator/cokriging" in tensors:
        shapes["emulator/cokriging"] = 2 * operator.bases.output_modes.shape[1:]
    if runs:
        n, k = len(runs[0]), len(runs[2])
        sizes = (n, fields.input.grid.size), (n, k), (k,)
        shapes |= {f"emulator/calibration/{c}": s for c, s in zip(CALIBRATION, sizes, strict=True)}
        if not k or not 0 <= int(runs[2].min()) <= int(runs[2].max()) <= last:
            raise DataError(f"emulator/calibration/columns are not from 0 to {last}")
    for name in shapes:
        if name in tensors and tensors[name].shape != shapes[name]:
            found = tuple(tensors[name].shape)
            raise DataError(f"{name} has shape {found}, expected {shapes[name]}")
