"""Whether a file is about what its job is: its header beside what the job is told.

A file may be sound and still be another's: functions of another seed, references of another noise,
weights of another method.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uqsonet.errors import DataError

KEYS = {
    "functions": ("problem", "seed"),
    "sensors": ("problem", "seed"),
    "output_sensors": ("problem", "seed"),
    "reference": ("problem", "seed", "noise_std", "evaluation"),
    "weights": ("problem", "method", "training"),
}
"""Kind of an input -> what of its header has to be what the job is told."""


def read_header(path: Path | str, kind: str) -> dict[str, Any]:
    """Return the header of an input of a kind; the problem of weights is that of their fields.

    Raises
    ------
    DataError
        If the file is damaged or of another kind.
    """
    # Deferred: the plan needs neither torch nor HDF5.
    from uqsonet.operator.file import read_weights
    from uqsonet_study.storage import ArrayFile

    if kind == "weights":
        meta = read_weights(path)[1]
        fields = meta.get("fields")
        return {"problem": fields.get("name") if isinstance(fields, Mapping) else None, **meta}
    with ArrayFile(path, kind.removeprefix("output_")) as file:
        side = "output" if kind.startswith("output_") else "input"
        if kind.endswith("sensors") and file.meta.get("side", "input") != side:
            raise DataError(f"{path}: not sensors of this side, expected of the {side}")
        return file.meta


def require_headers(inputs: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Refuse inputs of a job that are about something else than it is told.

    Weights that say which functions they were trained on must say those of this job.

    Parameters
    ----------
    inputs : mapping of str to str or list of str
        Kind -> files. Other kinds than those of `KEYS` are not looked at.
    told : mapping
        An ensemble or a law is told the method whose weights it has as ``trained``.

    Raises
    ------
    DataError
    """
    from uqsonet.files import file_digest

    expected = {**told, "method": told.get("trained", told.get("method"))}
    for kind, keys in KEYS.items():
        paths = inputs.get(kind) or []
        for path in [paths] if isinstance(paths, str) else paths:
            header = read_header(path, kind)
            for key in keys:
                _compare(path, key, header.get(key), expected.get(key))
            functions = inputs.get("functions")
            known = header.get("inputs")
            if kind == "weights" and isinstance(functions, str) and isinstance(known, Mapping):
                digest = file_digest(Path(functions))
                _compare(path, "inputs.functions", known.get("functions", digest), digest)


def _compare(path: str, key: str, found: Any, expected: Any) -> None:
    if expected is not None and found != expected:
        raise DataError(
            f"{path}: of another run or job: its header has {key} {found!r}, expected {expected!r}"
        )
