"""Weights: safetensors with a JSON header and a digest of both.

A tensor may be stored factored (Tucker's form): a small core and one matrix for each axis, whose
product it is. Smooth modes on a grid of two axes take a twentieth of the space. The header's
`factored` maps the names of such tensors to their shapes; whoever reads a file gets whole tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors

from uqsonet.errors import DataError
from uqsonet.storage.common import FORMAT, SCHEMA, Meta, array_digest, readable, require_solid

if TYPE_CHECKING:
    from torch import Tensor  # deferred: whoever reads no weights has no use for torch

MOST_NUMBERS = 2**27
"""Of the factored tensors of a file together: a short one must not ask for all of the memory."""


def write_weights(path: Path, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write tensors and a JSON header as safetensors, atomically."""
    from safetensors.torch import save

    from uqsonet.storage.files import atomic_path

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
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

    Raises
    ------
    DataError
        If the file is missing, damaged or foreign, or holds values that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    require_solid(path)
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
        if (numbers := sum(math.prod(shape) for shape in factored.values())) > MOST_NUMBERS:
            raise ValueError(f"{numbers} numbers together, at most {MOST_NUMBERS}")
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
