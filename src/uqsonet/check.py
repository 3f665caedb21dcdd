"""Validation of files on disk: checksums, schema, finiteness, whether weights load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from uqsonet.errors import DataError, UQSONetError
from uqsonet.layouts import load_layouts
from uqsonet.nn.weights import load
from uqsonet.reference import load_reference
from uqsonet.simulation import SPLITS, load_functions
from uqsonet.storage import ArrayFile, array_kind, read_weights


def _check_arrays(path: Path) -> None:
    kind = array_kind(path)
    if kind == "functions":
        for split in SPLITS:
            for _ in load_functions(path, split).blocks():
                pass  # values are checked as they are read
    elif kind == "sensors":
        for split in SPLITS:
            load_layouts(path, split)
    elif kind == "shard":
        with ArrayFile(path, kind) as file:
            for name in file.names():
                for _ in file.blocks(name):
                    pass
    elif kind == "reference":
        load_reference(path)
    else:
        raise DataError(f"{path}: unknown kind {kind!r}")


def _check_weights(path: Path) -> None:
    _, meta = read_weights(path)
    if "identity" not in meta:  # a checkpoint has no model of its own to build
        load(path)


def check_path(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield (file, what is wrong or None) for a file, or for all files of a folder.

    Files are HDF5 (``.h5``) and safetensors; others are not looked at.
    """
    path = Path(path)
    checks = {".h5": _check_arrays, ".safetensors": _check_weights}
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in checks)
        if not files:
            yield path, "holds no .h5 or .safetensors file"
    else:
        files = [path]
    for file in files:
        check = checks.get(file.suffix)
        if check is None:
            yield file, "neither .h5 nor .safetensors"
            continue
        try:
            check(file)
        except UQSONetError as error:
            yield file, str(error).removeprefix(f"{file}: ")
        else:
            yield file, None
