"""From files to runs (`open_runs`)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from uqsonet.errors import DataError
from uqsonet.runs import FieldRuns, Runs


def open_runs(
    path: Path | str, input: str, output: str, points: object = None, transform: str | None = None
) -> Runs:
    """Return the runs of an npz file: arrays by name, and axes `x`, `y`, `z` where it has them.

    Parameters
    ----------
    path : path
    input, output : str
        Names of the arrays (N, n) or (N, n1, n2).
    points : optional
        Where the values stand, by default the axes of the file.
    transform : {"identity", "log"}, optional
        Of the input.

    Raises
    ------
    DataError
        If the file cannot be read or lacks a field.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    for name in (input, output):
        if name not in arrays:
            raise DataError(f"{path}: has no field {name!r}; there are {', '.join(arrays)}")
    if points is None and "x" in arrays:
        points = tuple(arrays[axis] for axis in "xyz" if axis in arrays)
    inputs = FieldRuns.of(arrays[input], points, transform, name=input)
    return Runs({input: inputs}, {output: FieldRuns.of(arrays[output], points, name=output)})
