"""Weight files: written, read, checked, and made into models."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from uqsonet.errors import DataError, nearest
from uqsonet.fields.numbers import real_numbers, require_noise
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import FORMAT, SCHEMA, Meta, array_digest, path_of, readable
from uqsonet.laws import law_of
from uqsonet.operator.base import OperatorModel, build_model, model_type

MAX_NUMBERS = 2**27  # in all factored tensors of a file: a short file must not fill the memory


def write_weights(path: Path, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write tensors and a JSON header as safetensors, atomically."""
    from safetensors.torch import save

    from uqsonet.files import atomic_path

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # As it is read: numbers that are keys become text, and the order of sorted keys may change.
    meta = json.loads(json.dumps(meta))
    content = {"schema": SCHEMA, "sha256": _tensors_digest(ready, meta), "meta": meta}
    # One key only: safetensors writes several in an order that differs from run to run.
    header = {FORMAT: json.dumps(content, sort_keys=True)}
    written = save(ready, metadata=header)
    with atomic_path(path) as temporary:
        # Not by `save_file`: it writes to a temporary file of its own, which a kill leaves behind.
        temporary.write_bytes(written)


def _tensors_digest(tensors: Mapping[str, Tensor], meta: Meta) -> str:
    digests = {name: array_digest(tensor.numpy()) for name, tensor in tensors.items()}
    return hashlib.sha256(json.dumps([digests, meta], sort_keys=True).encode()).hexdigest()


def read_weights(path: Path | str) -> tuple[dict[str, Tensor], Meta]:
    """Return tensors and header of a weight file, factored tensors multiplied out.

    It raises `DataError` if the file is missing, damaged or foreign, or holds values that are not
    finite.
    """
    path = path_of(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with readable(path, "not a readable safetensors file"):
        path.open("rb").close()  # safetensors calls a file that may not be read missing
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(FORMAT)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    if header is None:
        raise DataError(f"{path}: safetensors, but not written by uqsonet")
    with readable(path, "header cannot be read"):
        content = json.loads(header)
        schema, digest, meta = content["schema"], content["sha256"], content["meta"]
        if not isinstance(meta, dict):
            raise TypeError(f"found {type(meta).__name__}")
    if schema != SCHEMA:
        raise DataError(f"{path}: schema {schema}, this version reads {SCHEMA}")
    with readable(path, "tensors cannot be read"):
        for name, tensor in tensors.items():
            if tensor.is_complex():
                raise TypeError(f"{name!r} holds {tensor.dtype}")
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise DataError(f"{path}: tensor {name!r} holds a value that is not finite")
        found = _tensors_digest(tensors, meta)
    if digest != found:
        raise DataError(f"{path}: contents do not match their SHA-256 digest")
    factored = meta.pop("factored", {})
    with readable(path, "factored tensors do not fit together"):
        if (numbers := sum(math.prod(shape) for shape in factored.values())) > MAX_NUMBERS:
            raise ValueError(f"{numbers} numbers together, at most {MAX_NUMBERS}")
        for name, shape in factored.items():
            tensors[name] = _multiplied_out(tensors, name, shape)
    return tensors, meta


def _multiplied_out(tensors: dict[str, Tensor], name: str, shape: list[int]) -> Tensor:
    """Take ``name/core`` (k_0, k_1, ...) and factors ``name/i`` (n_i, k_i) out; return the product.

    An axis without a factor stays as it is in the core. The product is reshaped to `shape`, in
    double precision where the core is, else in single.
    """
    core = tensors.pop(f"{name}/core")
    factors = [tensors.pop(f"{name}/{axis}", None) for axis in range(core.ndim)]
    sizes = [k if f is None else len(f) for k, f in zip(core.shape, factors, strict=True)]
    # An axis never grows by its core, so no product on the way is larger than the last one.
    grown = any(n < k for n, k in zip(sizes, core.shape, strict=True))
    if grown or math.prod(sizes) != math.prod(shape):
        raise ValueError(f"{name}: {tuple(core.shape)} to {sizes}, shape {shape}")
    product = core.double()
    for factor in factors:  # each turn moves the first axis to the end: all of them, once round
        turned = product.movedim(0, -1)
        product = turned if factor is None else turned @ factor.double().T
    found = product if core.dtype.itemsize == 8 else product.float()
    if not bool(found.isfinite().all()):
        raise ValueError(f"{name}: a product is not finite")
    return found.reshape(shape)


def shipped() -> dict[str, Path]:
    """Return the operators whose weights come with the package, by name."""
    folder = Path(str(resources.files("uqsonet.emulator"))) / "weights"
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def weight_path(name_or_path: Path | str) -> Path:
    """Return the weight file that is meant.

    It is that path; the only file of a folder; or else an operator that comes with the package, by
    its name. A `DataError` says that a folder holds none or several, or that there is no such
    operator.
    """
    path, name = path_of(name_or_path), str(name_or_path)
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
        Number of the trial, in a file of several; by default its first.

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
    path = weight_path(path)
    tensors, meta = read_weights(path)
    if "dynamics" in meta:
        raise DataError(f"{path}: a model over time, which uqsonet.Dynamics.load reads")
    model, others = built(path, meta, tensors, trial)
    return model, meta, others


def built(
    path: Path | str, meta: Meta, tensors: Mapping[str, Tensor], trial: int | None = None
) -> tuple[OperatorModel, dict[str, Tensor]]:
    """Return the model that a header describes, and the tensors that are not the model's.

    It raises `DataError` if they do not fit together; `path` is named.
    """
    with readable(path, "header cannot be read"):
        kind = model_type(meta["method"], meta["config"]["network"]["architecture"])
        network = kind.config_type.model_validate(meta["config"]["network"])
        trials = [int(t) for t in meta["trials"]]
        if not 0 < len(set(trials)) == len(trials):
            raise DataError(f"trials are {trials}")
        fields = OperatorFields.from_dict(meta["fields"])
        require_noise(real_numbers(meta["noise_std"] + 0.0, "noise_std"))  # no text and no list
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
    return model.eval(), others
