"""Own data: a user's file of pairs, read as functions of a problem that has no equation.

The file of functions that comes out is like that of any other problem. There is no reference
posterior, because nobody gave a prior or a solver: scores compare with the true functions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uqsonet.errors import ConfigError, DataError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.files import file_digest, provenance, write_text
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.runs.files import open_runs
from uqsonet.runs.runs import COARSE_STD, Runs
from uqsonet_study.config import OwnDataConfig, ProblemConfig
from uqsonet_study.storage import write_arrays

if TYPE_CHECKING:  # an edit of another section makes no data anew
    from uqsonet_study.config import Config


def require_own_data(config: Config) -> None:
    """Read the files of all selected experiments with own data, before any job does.

    Raises
    ------
    UQSONetError
        If a file cannot be read, lacks a field or has too few runs.
    """
    for name, problem in config.own_data.items():
        open_splits(name, problem, config.seed)


def open_splits(
    name: str, config: ProblemConfig, seed: int
) -> tuple[OperatorFields, dict[str, Runs]]:
    """Return what a model has to know of own data, and the runs of each split.

    Test functions are the first rows of `test_file`, or else the last of `file`. All other rows of
    `file` are shuffled by the seed tree and cut into training and validation, so the first N
    training pairs are a random sample.

    Raises
    ------
    ConfigError
        If there are too few runs, or the two files have different points.
    DataError
        If a file cannot be read or lacks a field.
    """
    data = config.data
    assert data is not None
    where = f"problems.{name}"
    runs = _open(where, data, data.file)
    own_test = 0 if data.test_file else config.test
    wanted = config.training + config.validation + own_test
    if wanted > len(runs):
        parts = f"training {config.training} + validation {config.validation}"
        parts += f" + test {config.test}" if own_test else ""
        raise ConfigError(f"{where}: {parts} = {wanted} runs, but {data.file} has {len(runs)}")
    rest = len(runs) - own_test
    order = numpy_generator(seed, name, "own_data").permutation(rest)
    found = {
        "training": runs[order[: config.training]],
        "validation": runs[order[config.training :][: config.validation]],
        "test": runs[rest:],
    }
    if data.test_file is not None:
        tested = _open(where, data, data.test_file)
        if config.test > len(tested):
            raise ConfigError(
                f"{where}: test {config.test} runs, but {data.test_file} has {len(tested)}"
            )
        found["test"] = tested[: config.test]
        for side, key in (("inputs", data.input), ("outputs", data.output)):
            shapes = [getattr(r, side)[key].domain for r in (runs, tested)]
            if shapes[0] != shapes[1]:
                raise ConfigError(
                    f"{where}: {key} has other points in {data.test_file} "
                    f"({_points(shapes[1])}) than in {data.file} ({_points(shapes[0])})"
                )
    fields = OperatorFields(
        name,
        Field(symbol(data.input), runs.inputs[data.input].domain, Transform(data.transform)),
        Field(symbol(data.output), runs.outputs[data.output].domain),
    )
    return fields, found


def _open(where: str, data: OwnDataConfig, path: str) -> Runs:
    try:
        runs = open_runs(path, input=data.input, output=data.output, transform=data.transform)
    except DataError as error:
        raise DataError(f"{where}.data: {error}") from None
    for name, field in (runs.inputs | runs.outputs).items():
        size, spread = np.abs(field.values).max(), field.values.std()
        if field.values.dtype == np.float64 and size > COARSE_STD * spread:
            raise DataError(
                f"{where}.data: {path}, {name}: values up to {size:g} that vary by {spread:g} are "
                "rounded where they are stored, in float32; subtract a constant"
            )
    return runs


def _points(domain: object) -> str:
    shape = " x ".join(str(n) for n in domain.shape)  # type: ignore[attr-defined]
    ends = f"{list(domain.lower)} to {list(domain.upper)}"  # type: ignore[attr-defined]
    return f"{shape} on {ends}"


def symbol(name: str) -> str:
    """Return a field's name as figures print it: a letter as a variable, all else upright."""
    if re.fullmatch("[A-Za-z]", name):
        return name
    words = r"\ ".join(re.findall("[A-Za-z0-9]+", name))
    return rf"\mathrm{{{words}}}"


def read_own_data(name: str, config: ProblemConfig, seed: int, path: Path, record: Path) -> None:
    """Store own data as the functions of a problem.

    Parameters
    ----------
    name : str
        Of the problem.
    config : ProblemConfig
        With `data`.
    path : Path
        HDF5 file to write.
    record : Path
        Where to write what was read, as JSON.

    Raises
    ------
    UQSONetError
        As `open_splits`.
    """
    fields, splits = open_splits(name, config, seed)
    data = config.data
    assert data is not None
    arrays = {}
    for split, runs in splits.items():
        arrays[f"{split}/kappa"] = [_rows(runs.inputs[data.input].values)]
        arrays[f"{split}/u"] = [_rows(runs.outputs[data.output].values)]
    meta = {
        "problem": name,
        "fields": fields.as_dict(),
        "seed": seed,
        "config": config.model_dump(),
    }
    digests = write_arrays(path, "functions", meta | {"stored_in": "float32"}, arrays)
    content = {
        "problem": name,
        "seed": seed,
        "config": config.model_dump(),
        "read": {file: file_digest(Path(file)) for file in data.files},
        "file": {"sha256": file_digest(path), "bytes": path.stat().st_size},
        "arrays": {
            key: {"shape": list(parts[0].shape), "sha256": digests[key]}
            for key, parts in arrays.items()
        },
        **provenance(),
    }
    write_text(record, json.dumps(content, indent=2) + "\n")


def _rows(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float32)
