"""Files that are forged under right checksums: refused in one line by those who read them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uqsonet
from tests.reliability.files import Arrays, Meta, content, make_files, refusal, rewrite
from uqsonet.errors import DataError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "files"
    make_files(folder)
    return folder


def test_sound_files_are_read(files: Path) -> None:
    ours = [path for path in files.iterdir() if path.suffix in (".h5", ".safetensors")]
    assert len(ours) > 5 and [path for path in ours if refusal(path) is not None] == []


Change = Callable[[Meta, Arrays], object]


def array(name: str, change: Callable[[np.ndarray], Any]) -> Change:
    return lambda meta, arrays: arrays.update({name: np.array(change(arrays[name]), order="C")})


def many_factored(meta: Meta, arrays: Arrays) -> None:
    """Add tensors of 2^27 numbers, each from factors of 100 kB."""
    meta["factored"] = {f"x{k}": [1 << 13, 1 << 14] for k in range(8)}
    for name in meta["factored"]:
        arrays[f"{name}/core"] = np.ones((1, 1), "f4")
        arrays |= {f"{name}/{k}": np.ones((1 << 13 + k, 1), "f4") for k in range(2)}


GRID = {"lower": [0], "upper": [1], "shape": [99], "periodic": False}
KEPT = "emulator/calibration/0/"
FORGED: dict[str, list[tuple[str, Change]]] = {
    "f.h5": [("has no array 'test/u'", lambda m, a: a.pop("test/u"))],
    "s.h5": [("has no array 'test/3'", lambda m, a: a.pop("test/3"))],
    "r.h5": [
        ("arrays std are missing or unknown", lambda m, a: a.pop("std")),
        ("fields cannot be read", lambda m, a: m["fields"]["input"].update(transform=[])),
    ],
    "w.safetensors": [
        ("trials are []", lambda m, a: m.update(trials=[])),
        ("of 2 trials, the header of [0, 1, 2]", lambda m, a: m.update(trials=[0, 1, 2])),
        ("unhashable type: 'list'", lambda m, a: m.update(method=["uqsonet"])),
        ("found list", lambda m, a: m.update(fields=[1])),
        ("torch.complex64", array("parameter/linear.bias", lambda t: t.astype("c8"))),
        ("numbers together, at most 134217728", many_factored),
        ("noise_std must be finite, at most", lambda m, a: m.update(noise_std=1e200)),
        ("not negative, found -0.1", lambda m, a: m.update(noise_std=-0.1)),
    ],
    "m.safetensors": [
        ("are not from 0 to 40", array(f"{KEPT}columns", lambda t: t - 99)),
        ("have shapes", array(f"{KEPT}outputs", lambda t: t.repeat(2, 0))),
        ("expected (41, ", array("emulator/remainder/output", lambda t: t[:-1])),
        (
            "is of other fields",
            lambda m, a: m["emulator"]["calibration"][0]["emulator"].update(
                inputs=[m["emulator"]["inputs"][0] | {"scale": 2.0}]
            ),
        ),
        ("have other points", lambda m, a: m["emulator"]["inputs"][0].update(grid=GRID)),
        ("scale 0", lambda m, a: m["emulator"]["inputs"][0].update(scale=0.0)),
        ("the card of this model cannot be read", lambda m, a: m.update(card={"scores": "x"})),
    ],
}
"""File -> what its refusal must say, and the change, under checksums that fit it."""


@pytest.mark.parametrize(
    ("source", "message", "change"),
    [(source, *row) for source, rows in FORGED.items() for row in rows],
)
def test_a_forged_file_is_refused_in_a_line(
    files: Path, tmp_path: Path, source: str, message: str, change: Change
) -> None:
    kind, meta, arrays = content(files / source)
    change(meta, arrays)
    path = tmp_path / f"forged{Path(source).suffix}"
    rewrite(path, kind, meta, arrays)
    start, found = time.process_time(), refusal(path)
    assert found is not None and message in found and "\n" not in found and len(found) < 2000
    assert time.process_time() - start < 10


def test_an_npz_whose_header_does_not_end_is_refused(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.npz"
    path.write_bytes((files / path.name).read_bytes().replace(b"}", b"("))
    with pytest.raises(DataError, match="not a readable npz file"):
        uqsonet.open_runs(path, "k", "u")
