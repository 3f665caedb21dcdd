"""From weight files to models: `uqsonet.load`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor
from torch.overrides import TorchFunctionMode

from uqsonet.config import Network
from uqsonet.errors import DataError, nearest
from uqsonet.fields import real_numbers, require_noise
from uqsonet.laws import law_of
from uqsonet.models.base import OperatorModel, build_model
from uqsonet.operator_fields import OperatorFields
from uqsonet.storage.common import Meta, readable
from uqsonet.storage.weights import read_weights

NETWORK: TypeAdapter[Any] = TypeAdapter(Network)
SPARE = 1 << 22
"""Numbers that any model may make besides those of its file: grids, tables, other precision."""


def shipped() -> dict[str, Path]:
    """Return the operators whose weights come with the package, by name."""
    folder = Path(str(resources.files("uqsonet"))) / "weights"
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def weight_path(name_or_path: Path | str) -> Path:
    """Return the weight file that is meant.

    Parameters
    ----------
    name_or_path : path or str
        A weight file, a folder that holds exactly one, or the name of an operator that comes with
        the package. What exists under that path comes first.

    Raises
    ------
    DataError
        If a folder does not hold exactly one weight file, or a name is neither a file nor an
        operator of the package.
    """
    path, name = Path(name_or_path), str(name_or_path)
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            raise DataError(f"{path}: holds {len(files)} weight files, name one of them")
        return files[0]
    known = shipped()
    if path.exists() or path.suffix or path.name != name:
        return path
    if name not in known:
        hint = nearest(name.lower().replace("-", "_"), known, 0.4)
        there = ", ".join(known)
        raise DataError(
            f"{name!r} is no such file and no operator of the package; there are {there}{hint}"
        )
    return known[name]


def load(path: Path | str, trial: int | None = None) -> OperatorModel:
    """Return a trained operator model, ready for `condition`.

    Parameters
    ----------
    path : path or str
        A weight file, a folder that holds exactly one, or the name of an operator that comes with
        the package (`weight_path`).
    trial : int, optional
        Number of the trial in a stacked file; by default its first.

    Raises
    ------
    DataError
        If the file is missing, damaged, foreign, or does not fit the networks it describes.
    """
    return read_model(path, trial)[0]


def read_model(
    path: Path | str, trial: int | None = None
) -> tuple[OperatorModel, Meta, dict[str, Tensor]]:
    """Return a model with the header of its file and the tensors that an `Emulator` keeps there.

    Parameters and errors are those of `load`.
    """
    if not isinstance(path, str | Path):
        raise DataError(f"a path is needed, found {type(path).__name__}")
    path = weight_path(path)
    tensors, meta = read_weights(path)
    with readable(path, "header cannot be read"):
        network = NETWORK.validate_python(meta["config"]["network"])
        trials = [int(t) for t in meta["trials"]]
        if not 0 < len(set(trials)) == len(trials):
            raise DataError(f"trials are {trials}")
        fields = OperatorFields.from_dict(meta["fields"])
        require_noise(real_numbers(meta["noise_std"] + 0.0, "noise_std"))  # no text and no list
        # A short header must not make networks that the tensors of the file cannot fill.
        with _Within(4 * sum(tensor.numel() for tensor in tensors.values()) + SPARE):
            model = build_model(meta["method"], fields, network, meta["noise_std"])
    if trial is not None and trial not in trials:
        raise DataError(f"{path}: has trials {trials}, asked for {trial}")
    index = 0 if trial is None else trials.index(trial)
    # Copies are aligned in memory as fresh tensors are: products then have the same bytes.
    state, others, law = {}, {}, {}
    with readable(path, "tensors do not fit the networks described"):
        for name, tensor in tensors.items():
            kind, _, key = name.partition("/")
            if kind == "parameter":
                if len(tensor) != len(trials):
                    raise DataError(f"{name} is of {len(tensor)} trials, the header of {trials}")
                state[key] = tensor[index]
            elif kind == "buffer":
                state[key] = tensor
            elif kind == "law":
                law[key] = tensor.clone()
            else:
                others[name] = tensor.clone()
        if wrong := sorted(name for name in others if not name.startswith("emulator/")):
            raise DataError(", ".join(wrong))
        model.load_state_dict(state)
    name = getattr(network, "law", "gaussian")
    if law or name != "gaussian":
        with readable(path, f"law {name!r} does not fit its tensors"):
            bases: Any = model.bases
            model.use_law(law_of(name, law, bases))
    return model.eval(), meta, others


class _Within(TorchFunctionMode):
    """Refuse to make tensors of more than so many numbers together."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._left = numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what is new: nothing has been written to it yet."""
        found = func(*args, **(kwargs or {}))
        if func in (torch.empty, torch.zeros, torch.ones):
            self._left -= found.numel()
            if self._left < 0:
                raise DataError("its networks are far larger than its tensors")
        return found


def load_trials(paths: Iterable[Path]) -> Iterator[tuple[int, OperatorModel]]:
    """Yield (trial, model) for every trial of some weight files."""
    for path in paths:
        _, meta = read_weights(path)
        for trial in meta["trials"]:
            yield trial, load(path, trial)
