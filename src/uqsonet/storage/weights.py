"""Weights: safetensors with a JSON header and a digest of both."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors

from uqsonet.errors import DataError
from uqsonet.storage.files import FORMAT, SCHEMA, Meta, array_digest, atomic_path, system_error

if TYPE_CHECKING:
    from torch import Tensor  # deferred: whoever reads no weights has no use for torch


def write_weights(path: Path, tensors: Mapping[str, Tensor], meta: Meta) -> None:
    """Write tensors and a JSON header as safetensors, atomically."""
    from safetensors.torch import save_file

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = {"schema": SCHEMA, "sha256": _tensors_digest(ready, meta), "meta": meta}
    # One key only: safetensors writes several in an order that differs from run to run.
    header = {FORMAT: json.dumps(content, sort_keys=True)}
    with atomic_path(path) as temporary:
        try:
            save_file(ready, temporary, metadata=header)
        except safetensors.SafetensorError as error:  # its way to say that the disk is full
            raise system_error(error) or DataError(f"{path}: {error}") from None


def _tensors_digest(tensors: Mapping[str, Tensor], meta: Meta) -> str:
    digests = {name: array_digest(tensor.numpy()) for name, tensor in tensors.items()}
    return hashlib.sha256(json.dumps([digests, meta], sort_keys=True).encode()).hexdigest()


def read_weights(path: Path | str) -> tuple[dict[str, Tensor], Meta]:
    """Return tensors and header of a weight file.

    Raises
    ------
    DataError
        If the file is missing, damaged or foreign, or holds values that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        path.open("rb").close()  # safetensors calls a file that may not be read missing
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(FORMAT)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (
        *(safetensors.SafetensorError, OSError, RuntimeError, struct.error),
        *(KeyError, TypeError, ValueError, OverflowError, MemoryError),
    ) as error:
        cause = system_error(error) or error
        raise DataError(f"{path}: not a readable safetensors file ({cause})") from None
    if header is None:
        raise DataError(f"{path}: safetensors, but not written by uqsonet")
    try:
        content = json.loads(header)
        schema, digest, meta = content["schema"], content["sha256"], content["meta"]
        if not isinstance(meta, dict):
            raise TypeError(f"found {type(meta).__name__}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: header cannot be read ({error!r})") from None
    if schema != SCHEMA:
        raise DataError(f"{path}: schema {schema}, this version reads {SCHEMA}")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DataError(f"{path}: tensor {name!r} holds a value that is not finite")
    if digest != _tensors_digest(tensors, meta):
        raise DataError(f"{path}: contents do not match their SHA-256 digest")
    return tensors, meta
