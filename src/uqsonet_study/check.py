"""Validation of files on disk: checksums, schema, finiteness, whether weights load."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from uqsonet.emulator import emulator
from uqsonet.errors import DataError, UQSONetError
from uqsonet.files import readable, require_solid
from uqsonet.operator.base import OperatorModel
from uqsonet.operator.file import load, read_weights
from uqsonet.runs.functions import SPLITS
from uqsonet_study.config.loading import require_readable
from uqsonet_study.kept_modes import MODES
from uqsonet_study.layouts import load_layouts
from uqsonet_study.reference.files import load_sets
from uqsonet_study.storage import ArrayFile, array_kind, load_functions

NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
LARGEST_FIELD = 1 << 20  # characters in one field of a CSV file; ours are far shorter


def _check_arrays(path: Path) -> None:
    kind = array_kind(path)
    if kind == "functions":
        for split in SPLITS:
            for _ in load_functions(path, split).blocks():
                pass  # values are checked as they are read
    elif kind == "sensors":
        for split in SPLITS:
            load_layouts(path, split)
    elif kind == "reference":
        load_sets(path)
    elif kind == "part":
        with ArrayFile(path, kind) as file:
            for name in file.names():
                file.read(name)
    else:
        raise DataError(f"{path}: unknown kind {kind!r}")


def _check_weights(path: Path) -> None:
    tensors, meta = read_weights(path)
    if "identity" not in meta:
        first = load(path)  # refuses a header that names no trials
        for index, trial in enumerate(meta["trials"]):
            _check_answer(load(path, trial) if index else first, f"{path}: trial {trial}")
        if {"emulator", "card"} & set(meta):
            str(emulator.load(path))
        return
    # A checkpoint has no model of its own to build.
    missing = [key for key in ("iteration", "seconds", "history") if key not in meta]
    for kind in ("parameter/", "adam/", "generator/"):
        if not any(name.startswith(kind) for name in tensors):
            missing.append(kind)
    if missing:
        raise DataError(f"{path}: a checkpoint without {', '.join(missing)}")


def _check_answer(model: OperatorModel, what: str) -> None:
    """Refuse weights whose answer to one usual sensor is not finite."""
    given = model.fields.input
    place = given.grid.points()[given.grid.size // 3][None]
    try:
        answer = model.condition(place, given.transform.inverse(torch.zeros(1)))
        found = [answer.mean(), *([answer.std()] if model.probabilistic else [])]
        finite = all(bool(one.float().isfinite().all()) for one in found)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        finite = False
    if not finite:
        raise DataError(f"{what} answers a sensor with values that are not finite")


def _check_table(path: Path) -> None:
    """Rows as wide as the header, and no number that is none; a field may be empty."""
    csv.field_size_limit(LARGEST_FIELD)
    with readable(path, "not a readable CSV file"), path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, strict=True)
        header = next(rows, [])
        if not header:
            raise ValueError("it is empty")
        for row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"line {rows.line_num} has {len(row)} fields, expected {len(header)}"
                )
            for name, field in zip(header, row, strict=True):
                if NO_NUMBER.fullmatch(field):
                    raise ValueError(f"line {rows.line_num}, {name}: found {field!r}")


def _check_json(path: Path) -> None:
    def finite(number: str) -> float:
        if math.isfinite(found := float(number)):
            return found
        raise ValueError(f"{number:.80} is not finite")

    with readable(path, "not a readable JSON file"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=finite, parse_float=finite)


CHECKS = {
    ".h5": _check_arrays,
    ".safetensors": _check_weights,
    ".csv": _check_table,
    ".json": _check_json,
}
NAMED = dict.fromkeys((".yaml", ".yml"), lambda path: require_readable([path]))
"""Only for files that are named: others of a tree may be anything."""


def check_path(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield (file, what is wrong or None) for a file, or for all files of a folder.

    Files are arrays (``.h5``), weights and checkpoints (``.safetensors``), and tables of scores
    and results (``.csv``, ``.json``); others are not looked at, but a file of a configuration
    (``.yaml``) that is named itself, and modes, which a training makes again if they are damaged.
    """
    path = Path(path)
    unread: list[OSError] = []
    # Not `rglob`, which passes over folders that cannot be read.
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(path, onerror=unread.append)
        for name in names
        if not Path(folder).name.endswith(MODES)
    ]
    files = sorted(file for file in found if file.suffix in CHECKS)
    if len(unread) == 1 and isinstance(unread[0], NotADirectoryError | FileNotFoundError):
        files, unread = [path], []
    elif not unread and not any(file.suffix in (".h5", ".safetensors") for file in files):
        yield path, "holds no .h5 or .safetensors file"
    for error in unread:
        yield Path(error.filename), f"cannot be read: {error.strerror}"
    for file in files:
        check = (CHECKS | NAMED).get(file.suffix)
        try:
            if not file.is_file():
                raise DataError(f"{file}: no such file")
            if check is None:
                raise DataError(f"{file}: neither .h5 nor .safetensors, .csv, .json or .yaml")
            require_solid(file)
            with readable(file, "cannot be read"):
                check(file)
        except MemoryError:
            yield file, "asks for more memory than there is"
        except UQSONetError as error:
            yield file, str(error).removeprefix(f"{file}: ")
        except OSError as error:
            yield file, f"cannot be read: {error.strerror or error}"
        else:
            yield file, None
