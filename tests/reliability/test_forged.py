"""Files that are damaged, forged under right checksums, or of another job: one line each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import uqsonet
from tests.reliability.files import Arrays, Meta, content, make_files, rewrite
from tests.workflow.conftest import CONFIG
from uqsonet.errors import DataError
from uqsonet.operator.file import shipped
from uqsonet_study.check import check_path
from uqsonet_study.config import BASELINES
from uqsonet_study.headers import require_headers
from uqsonet_study.jobs import job
from uqsonet_study.report.summary import read_case


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "files"
    make_files(folder)
    (folder / "t.csv").write_text("method,metric,value\nuqsonet,crps,0.5\nuqsonet,w2,\n")
    (folder / "t.json").write_text('{"a": [1, null]}')
    return folder


def problem_of(path: Path) -> str:
    """Return why a file is refused: one line of bounded length, within bounds of time."""
    start = time.process_time()
    ((_, problem),) = check_path(path)
    assert problem is not None and "\n" not in problem and len(problem) < 2000, problem
    assert problem.encode() and time.process_time() - start < 10, problem
    return problem


def test_a_sound_tree_passes_file_by_file(files: Path) -> None:
    found = dict(check_path(files))
    assert {path.name for path in found} == {
        *("f.h5", "s.h5", "r.h5", "test_000000.h5", "w.safetensors", "c.safetensors"),
        *("m.safetensors", "sensors.csv", "t.csv", "t.json"),
    }
    assert set(found.values()) == {None}


Change = Callable[[Meta, Arrays], object]


def array(name: str, change: Callable[[np.ndarray], Any]) -> Change:
    return lambda meta, arrays: arrays.update({name: np.array(change(arrays[name]), order="C")})


def endless(array: np.ndarray) -> np.ndarray:
    """Return values so large that an answer overflows, of the last trial if there are several."""
    found = array.copy()
    found[-1:] += np.finfo(array.dtype).max / 2
    return found


def many_factored(meta: Meta, arrays: Arrays) -> None:
    """Add tensors of 2^27 numbers, each from factors of 100 kB."""
    meta["factored"] = {f"x{k}": [1 << 13, 1 << 14] for k in range(8)}
    for name in meta["factored"]:
        arrays[f"{name}/core"] = np.ones((1, 1), "f4")
        arrays |= {f"{name}/{k}": np.ones((1 << 13 + k, 1), "f4") for k in range(2)}


HUGE = {"architecture": "attention", "branch": [4096] * 12}
GRID = {"lower": [0], "upper": [1], "shape": [99], "periodic": False}
KEPT = "emulator/calibration/"
FORGED: dict[str, list[tuple[str, Change]]] = {
    "f.h5": [("has no array 'test/u'", lambda m, a: a.pop("test/u"))],
    "s.h5": [("has no array 'test/3'", lambda m, a: a.pop("test/3"))],
    "r.h5": [
        ("arrays std are missing or unknown", lambda m, a: a.pop("std")),
        ("fields cannot be read", lambda m, a: m["fields"]["input"].update(transform=[])),
    ],
    "w.safetensors": [
        ("are far larger than its tensors", lambda m, a: m["config"].update(network=HUGE)),
        ("trials are []", lambda m, a: m.update(trials=[])),
        ("of 2 trials, the header of [0, 1, 2]", lambda m, a: m.update(trials=[0, 1, 2])),
        ("unhashable type: 'list'", lambda m, a: m.update(method=["uqsonet"])),
        ("found list", lambda m, a: m.update(fields=[1])),
        ("torch.complex64", array("parameter/linear.bias", lambda t: t.astype("c8"))),
        ("numbers together, at most 134217728", many_factored),
        ("noise_std must be finite, at most", lambda m, a: m.update(noise_std=1e200)),
        ("not negative, found -0.1", lambda m, a: m.update(noise_std=-0.1)),
        ("trial 1 answers a sensor", array("parameter/network.layers.0.weight", endless)),
    ],
    "m.safetensors": [
        ("are not from 0 to 40", array(f"{KEPT}columns", lambda t: t - 99)),
        ("(14, 41), expected (7, 41)", array(f"{KEPT}outputs", lambda t: t.repeat(2, 0))),
        ("(40,), expected (41,)", array("emulator/remainder", lambda t: t[:-1])),
        ("have other points", lambda m, a: m["emulator"]["inputs"][0].update(grid=GRID)),
        ("scale 0", lambda m, a: m["emulator"]["inputs"][0].update(scale=0.0)),
        ("the card of this model cannot be read", lambda m, a: m.update(card={"scores": "x"})),
    ],
    "c.safetensors": [("a checkpoint without generator/", lambda m, a: a.pop("generator/0"))],
    "shipped": [("answers a sensor with values", array("buffer/bases.output_mean", endless))],
}
"""File -> what its refusal must say, and the change, under checksums that fit it."""


@pytest.mark.parametrize(
    ("source", "message", "change"),
    [(source, *row) for source, rows in FORGED.items() for row in rows],
)
def test_a_forged_file_is_refused_in_a_line(
    files: Path, tmp_path: Path, source: str, message: str, change: Change
) -> None:
    good = shipped()["diffusion1d"] if source == "shipped" else files / source
    kind, meta, arrays = content(good)
    change(meta, arrays)
    path = tmp_path / f"forged{good.suffix}"
    rewrite(path, kind, meta, arrays)
    assert message in problem_of(path)


def test_an_npz_whose_header_does_not_end_is_refused(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.npz"
    path.write_bytes((files / path.name).read_bytes().replace(b"}", b"("))
    with pytest.raises(DataError, match="not a readable npz file"):
        uqsonet.open_runs(path, "k", "u")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b\n1,2,3\n", "line 2 has 3 fields, expected 2"),
        ("a.csv", b"a,value\nx,-inf\n", "line 2, value: found '-inf'"),
        ("a.csv", b'a\n"half', "not a readable CSV file"),
        ("a.json", b'{"a": ', "not a readable JSON file"),
        ("a.json", b'{"a": NaN}', "NaN is not finite"),
        ("a.json", b"[1, -1e999]", "-1e999 is not finite"),
        ("a.json", b"[" * 100_000, "not a readable JSON file"),
        ("note.txt", b"x", "neither .h5 nor .safetensors, .csv, .json or .yaml"),
        ("none.h5", None, "no such file"),
    ],
)
def test_a_damaged_table_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in problem_of(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.h5", "a.safetensors", "a.json"])
def test_a_file_of_holes_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.write(b"method,value\n")
        file.truncate(1 << 33)
    if (tmp_path / name).stat().st_blocks > 1 << 20:
        pytest.skip("a file system without holes")
    assert "nearly all of it is a hole" in problem_of(tmp_path / name)


BOTH = {"problem": "diffusion1d", "seed": 5}
INPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "f.h5": ("functions", BOTH),
    "s.h5": ("sensors", BOTH),
    "r.h5": ("reference", BOTH | {"noise_std": 0.0, "evaluation": "validation"}),
    "w.safetensors": ("weights", {"problem": "diffusion1d", "method": "uqsonet"}),
}


@pytest.mark.parametrize("name", INPUTS)
def test_each_key_of_a_header_is_compared(files: Path, name: str) -> None:
    kind, told = INPUTS[name]
    require_headers({kind: str(files / name)}, told)
    for key, value in told.items():
        with pytest.raises(DataError) as caught:
            require_headers({kind: [str(files / name)]}, told | {key: 77})
        for part in (files / name, key, repr(value), "expected 77"):
            assert str(part) in str(caught.value)


def test_weights_of_other_functions_and_sensors_of_the_other_side_are_refused(
    files: Path, tmp_path: Path
) -> None:
    kind, meta, arrays = content(files / "w.safetensors")
    path = tmp_path / "w.safetensors"
    rewrite(path, kind, meta | {"inputs": {"functions": "0" * 64}}, arrays)
    with pytest.raises(DataError, match=r"inputs\.functions '0000"):
        require_headers({"functions": str(files / "f.h5"), "weights": str(path)}, {})
    with pytest.raises(DataError, match="expected of the output"):
        require_headers({"output_sensors": str(files / "s.h5")}, {})


@pytest.mark.parametrize("method", ["uqsonet", "vidon"])
def test_a_job_with_a_wrong_file_does_not_start(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    path, started = str(files / "w.safetensors"), []
    told = {"seed": 1, "method": "law", "trained": method}
    snakemake = SimpleNamespace(
        params=SimpleNamespace(told=told),
        input={"weights": [path]},
        **{"threads": 1, "log": [str(tmp_path / "job.log")], "output": [], "rule": "evaluate"},
    )
    try:
        with job(snakemake) as found:
            started.append(found)
    except SystemExit:
        message = f"{path}: of another run or job: its header has method 'uqsonet', expected"
        assert message in capsys.readouterr().err
    assert started == ([told] if method == "uqsonet" else [])


def scores(case: str) -> pd.DataFrame:
    chosen = CONFIG.cases[case]
    rows = [
        (method, trial, label, m, s, metric, 0.5)
        for label in chosen.evaluations
        for method in (*BASELINES, *chosen.methods)
        for trial in range(chosen.trials if method in chosen.methods else 1)
        for m in chosen.counts
        for s in range(CONFIG.evaluation_of(case, label).sets)
        for metric in (["err_mean"] if method == "vidon" else ["err_mean", "err_std", "crps"])
    ]
    columns = "method trial evaluation sensors set metric value".split()
    return pd.DataFrame(rows, columns=pd.Index(columns))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(method=t["method"].replace("uqsonet", "=1+1")), "of 'uqsonet'"),
        (lambda t: t.iloc[:-1], r"\d+ scores of crps of 'uqsonet', expected \d+"),
        (lambda t: t[t["evaluation"] != "paper"], "paper: 0 scores of err_mean"),
    ],
)
def test_scores_that_no_job_wrote_are_refused(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    case, path = CONFIG.cases["diffusion1d"], tmp_path / "a.csv"
    sound = scores(case.name)
    sound.to_csv(path, index=False)
    assert len(read_case([path], case, CONFIG)) == len(sound)
    change(sound).to_csv(path, index=False)
    with pytest.raises(DataError, match=message):
        read_case([path], case, CONFIG)
