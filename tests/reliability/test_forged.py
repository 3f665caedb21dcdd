"""Files that are sound but wrong: forged with right checksums, or those of another job."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.reliability import forgeries
from tests.reliability.fuzz_files import make_files
from tests.workflow.conftest import CONFIG, PLAN
from uqsonet import load
from uqsonet.errors import DataError
from uqsonet.storage.weights import read_weights, write_weights
from uqsonet_study.check import check_path
from uqsonet_study.cli import read_config
from uqsonet_study.config import BASELINES, SensorsConfig
from uqsonet_study.headers import require_header, require_headers
from uqsonet_study.jobs import job
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.pipeline import Plan
from uqsonet_study.pipeline.files import Job
from uqsonet_study.report.summary import read_case


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "files"
    make_files(folder)
    return folder


@pytest.mark.parametrize("name", sorted(forgeries.ALL))
def test_a_forged_file_is_refused_in_a_line(files: Path, tmp_path: Path, name: str) -> None:
    path = forgeries.forge(name, files, tmp_path)
    start = time.monotonic()
    ((_, problem),) = check_path(path)
    assert problem is not None and "\n" not in problem and len(problem) < 2000, problem
    assert problem.encode() and time.monotonic() - start < 5, problem


def test_networks_that_the_tensors_cannot_fill_are_not_made(files: Path, tmp_path: Path) -> None:
    path = forgeries.forge("st:huge_network", files, tmp_path)
    with pytest.raises(DataError, match="networks are far larger than its tensors"):
        load(path)


def test_a_file_of_holes_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("a.csv", "a.h5", "a.safetensors", "a.json"):
        with (tmp_path / name).open("wb") as file:
            file.write(b"method,value\n")
            file.truncate(1 << 33)
        if (tmp_path / name).stat().st_blocks > 1 << 20:
            pytest.skip("a file system without holes")
        start = time.monotonic()
        ((_, problem),) = check_path(tmp_path / name)
        assert problem is not None and "nearly all of it is a hole" in problem
        assert time.monotonic() - start < 1
        (tmp_path / name).unlink()


def test_a_missing_file_and_a_kind_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("x")
    for name, expected in (
        ("none", "no such file"),
        ("none.txt", "no such file"),
        ("note.txt", "neither .h5 nor .safetensors, .csv, .json or .yaml"),
    ):
        ((_, problem),) = check_path(tmp_path / name)
        assert problem == expected


FUNCTIONS = {"problem": "diffusion1d", "seed": 5, "config": {"shard": 10}}
REFERENCE = {
    **{"problem": "diffusion1d", "seed": 5, "split": "validation", "evaluation": "validation"},
    **{"noise_std": 0.0, "config": {"sets": 2}},
}
WEIGHTS = {"problem": "diffusion1d", "method": "uqsonet", "trials": [0, 1]}
SENSORS = {"problem": "diffusion1d", "seed": 5}
OTHER = {
    **{"problem": "poisson2d", "seed": 6, "split": "test", "evaluation": "paper"},
    **{"noise_std": 0.5, "method": "vidon", "trials": [0]},
}


@pytest.mark.parametrize(
    ("name", "kind", "header"),
    [
        ("f.h5", "functions", FUNCTIONS),
        ("s.h5", "sensors", SENSORS),
        ("r.h5", "reference", REFERENCE),
        ("w.safetensors", "weights", WEIGHTS),
    ],
)
def test_each_key_of_a_header_is_compared(
    files: Path, name: str, kind: str, header: dict[str, Any]
) -> None:
    require_header(files / name, kind, header)
    for key in set(header) & set(OTHER):
        with pytest.raises(DataError) as caught:
            require_header(files / name, kind, header | {key: OTHER[key]})
        # File, key, what was found and what was expected.
        for part in (files / name, key, repr(header[key]), repr(OTHER[key])):
            assert str(part) in str(caught.value)
    if "config" in header:
        key, wrong = next(iter(header["config"])), {next(iter(header["config"])): 77}
        with pytest.raises(DataError, match=rf"config\.{key} .*, expected 77"):
            require_header(files / name, kind, header | {"config": wrong})
    with pytest.raises(DataError, match="has absent None, expected 1"):
        require_header(files / name, kind, {"absent": 1})


def test_a_key_of_later_versions_may_be_absent(files: Path) -> None:
    path = str(files / "w.safetensors")
    require_header(path, "weights", {"inputs": {"functions": "x"}, "config": {"later": 1}})


def test_layouts_of_the_other_side_are_refused(tmp_path: Path) -> None:
    expected = {"problem": "diffusion1d", "seed": 1}
    for side, other in (("input", "output"), ("output", "input")):
        path = tmp_path / f"{side}.h5"
        generate_layouts("diffusion1d", SensorsConfig(counts=[2]), 1, 3, 3, path, side=side)
        require_header(path, "sensors", expected | {"side": side})
        with pytest.raises(DataError, match=f"side '{side}', expected '{other}'"):
            require_header(path, "sensors", expected | {"side": other})


def test_weights_of_other_functions_are_refused(files: Path, tmp_path: Path) -> None:
    tensors, meta = read_weights(files / "w.safetensors")
    path = str(tmp_path / "w.safetensors")
    write_weights(Path(path), tensors, meta | {"inputs": {"functions": "0" * 64}})
    job = {str(files / "f.h5"): ("functions", FUNCTIONS), path: ("weights", WEIGHTS)}
    with pytest.raises(DataError, match=r"inputs\.functions '0000"):
        require_headers(job)


def every_job() -> list[Job]:
    return list(PLAN._jobs.values())


def test_every_job_expects_a_header_of_each_file_that_has_one() -> None:
    for one in every_job():
        inputs = [f for fs in one.inputs.values() for f in ([fs] if isinstance(fs, str) else fs)]
        assert set(one.headers) == {f for f in inputs if f.endswith((".h5", ".safetensors"))}
        for kind, header in one.headers.values():
            assert header["problem"] in CONFIG.problems
            assert {"functions": 3, "sensors": 3, "reference": 6, "weights": 5}[kind] <= len(header)
    assert {one.rule for one in every_job() if one.headers} >= {"reference", "train", "evaluate"}


def test_a_reference_given_sensors_of_the_output_has_their_noise() -> None:
    root = Path(__file__).resolve().parents[2]
    plan = Plan(read_config([root / "config.yaml", root / "config/either_side.yaml"]))
    for case in plan.config.cases_of(["either_side"]):
        for one in plan.evaluations(case.name, "precise"):
            header = next(header for kind, header in one.headers.values() if kind == "reference")
            assert header["output_noise"] == case.output_noise != 0


def test_a_figure_expects_headers_too() -> None:
    figures = [json.loads(PLAN.figure(name).spec) for name in PLAN.figures()]
    assert any(kind == "weights" for f in figures for kind, _ in f.get("headers", {}).values())


def snakemake_of(spec: dict[str, Any], folder: Path) -> SimpleNamespace:
    return SimpleNamespace(
        params=SimpleNamespace(spec=json.dumps(spec)),
        **{"threads": 1, "log": [str(folder / "job.log")], "output": [], "rule": "evaluate"},
    )


def test_a_job_with_a_wrong_file_does_not_start(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(files / "w.safetensors")
    for method in ("uqsonet", "vidon"):
        spec = {"seed": 1, "headers": {path: ["weights", WEIGHTS | {"method": method}]}}
        started = []
        try:
            with job(snakemake_of(spec, tmp_path)) as found:
                started.append(found)
        except SystemExit:
            message = f"{path}: of another run or job: its header has method 'uqsonet', expected"
            assert message in capsys.readouterr().err
        assert started == ([{"seed": 1}] if method == "uqsonet" else [])


def scores(case: str) -> pd.DataFrame:
    chosen, rows = CONFIG.cases[case], []
    for label in chosen.evaluations:
        for method in (*BASELINES, *chosen.methods):
            metrics = ["err_mean"] if method == "vidon" else ["err_mean", "err_std", "crps"]
            for trial in range(chosen.trials if method in chosen.methods else 1):
                for m in chosen.counts:
                    for s in range(CONFIG.evaluation_of(case, label).sets):
                        rows += [(method, trial, label, m, s, metric, 0.5) for metric in metrics]
    columns = "method trial evaluation sensors set metric value".split()
    return pd.DataFrame(rows, columns=pd.Index(columns))


def _set(column: str, value: object, row: int = -1) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[table.index[row], column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("value", -5, 0), "is -5.0, which is no such score"),
        (_set("value", 1e308), r"is 1e\+308, which is no such score"),
        (lambda t: t.assign(method=t["method"].replace("uqsonet", "=1+1")), "lacks 'uqsonet'"),
        (_set("method", "=1+1"), "methods: unknown '=1"),
        (_set("sensors", 77), "sensors: unknown 77"),
        (_set("set", 5000), "sets: unknown 5000"),
        (_set("trial", 12), "trials: lacks"),
        (_set("evaluation", "other"), "evaluations: unknown 'other'"),
        (lambda t: t[(t["method"] != "uqsonet") | (t["trial"] > 0)], "trials: lacks 0"),
        (lambda t: t[(t["method"] != "uqsonet") | (t["metric"] != "crps")], "lacks 'crps'"),
        (lambda t: t[(t["method"] != "uqsonet") | (t["metric"] != "err_mean")], "'err_mean'"),
        (lambda t: t.iloc[:-1], r"\d+ scores of crps, expected \d+"),
        (lambda t: t[t["evaluation"] != "paper"], "evaluations: lacks 'paper'"),
    ],
)
def test_scores_that_no_job_wrote_are_refused(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    case = CONFIG.cases["diffusion1d"]
    sound = scores(case.name)
    sound.to_csv(tmp_path / "a.csv", index=False)
    assert len(read_case([tmp_path / "a.csv"], case, CONFIG)) == len(sound)
    change(sound).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match=message):
        read_case([tmp_path / "a.csv"], case, CONFIG)


SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "workflow/scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_takes_the_lock_before_it_imports_torch(script: Path, tmp_path: Path) -> None:
    lines = [x for x in script.read_text().splitlines() if x.startswith(("import", "from"))]
    first = next(k for k, line in enumerate(lines) if "uqsonet" in line)
    assert lines[first].startswith("import uqsonet_study.at_work"), lines[first]
    if script != SCRIPTS[0]:
        return
    before = "\n".join(lines[: first + 1])
    code = f"""{before}
import sys
assert not {{"torch", "numpy", "h5py"}} & set(sys.modules), sorted(sys.modules)
import fcntl, os
from uqsonet_study import locks
file = os.open(f".snakemake/{{locks.NAME}}", os.O_RDWR)
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("held")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SCRIPTS[0].parents[2] / "src")},
    )
    assert done.stdout == "held\n", done.stderr
