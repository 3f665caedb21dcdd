"""Whether a file is the one that a job is about: its header beside what the job expects of it.

A file may be sound and still be another's: weights of another method or problem, references of
another evaluation, functions of another seed. The plan knows what the job that made each input was
told (`pipeline.files.Files.headers`), and every job compares before it works (`jobs.job`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uqsonet.errors import DataError

Header = Mapping[str, Any]

LATER = ("inputs", "law")
"""Keys that not every file has."""


def require_header(path: Path | str, kind: str, expected: Header) -> None:
    """Refuse a file whose header is not the expected one.

    Parameters
    ----------
    path : Path
    kind : str
        ``weights``, or the kind of an array file: ``functions``, ``sensors``, ``reference``.
    expected : mapping
        Key -> value. A mapping within is compared where both have a key: files of earlier versions
        lack some. The problem of weights is that of their fields; sensors read the input unless
        they say otherwise.

    Raises
    ------
    DataError
        If the file is damaged, of another kind, or lacks a key or has another value.
    """
    # Deferred: the plan needs neither torch nor HDF5.
    from uqsonet.operator.file import read_weights
    from uqsonet_study.storage.reading import ArrayFile

    if kind == "weights":
        meta = read_weights(path)[1]
    else:
        with ArrayFile(path, kind) as file:
            meta = file.meta
    fields = meta.get("fields")
    name = fields.get("name") if isinstance(fields, Mapping) else None
    stated = {"problem": name, "side": "input", **meta}
    for key, found, wanted in _differences(expected, stated):
        raise DataError(
            f"{path}: of another run or job: its header has {key} {found!r}, expected {wanted!r}"
        )


def require_headers(headers: Mapping[str, tuple[str, Header]]) -> None:
    """Refuse files of a job (path -> kind and expected header) as `require_header` does.

    Weights that say which functions they were trained on must say those of this job.
    """
    from uqsonet.files import file_digest

    for path, (kind, expected) in headers.items():
        require_header(path, kind, expected)
    weights = [path for path, (kind, _) in headers.items() if kind == "weights"]
    for path, (kind, _) in headers.items():
        if kind == "functions" and weights:
            inputs = {"inputs": {kind: file_digest(Path(path))}}
            for file in weights:
                require_header(file, "weights", inputs)


def _differences(
    expected: Header, found: Header, above: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key, wanted in expected.items():
        if key not in found:
            if not above and key not in LATER:
                yield key, None, wanted
        elif isinstance(wanted, Mapping) and isinstance(found[key], Mapping):
            yield from _differences(wanted, found[key], f"{above}{key}.")
        elif found[key] != wanted:
            yield above + key, found[key], wanted
