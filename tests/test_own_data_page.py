"""Every command and every line of Python of docs/own-data.md runs, and gives what the page says."""

import csv
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import uqsonet

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/own-data"
PAGE = (ROOT / "docs/own-data.md").read_text(encoding="utf-8")
SETUP = (r"python3 -m venv ", r"pip install '\.\[runs\]'$", r"cd docs/own-data$")
"""What leads to the first command of the package; tests/test_bare.py installs it."""


def blocks(kind: str) -> list[str]:
    """Return the lines of the page's blocks of a kind."""
    found = re.findall(rf"<!-- {kind} -->\n(.*?)<!-- /{kind} -->", PAGE, flags=re.S)
    lines = [line.strip() for block in found for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("```")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page, without what its commands make and with a fifth of its runs."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "sensors.csv").symlink_to(FOLDER / "sensors.csv")
    for name in ("darcy_16.npz", "darcy_test_16.npz", "darcy_test_32.npz"):
        with np.load(FOLDER / name) as data:
            runs = len(data["a"])
            kept = {key: data[key][: runs // 5] if key in "ap" else data[key] for key in data}
        np.savez(folder / name, **kept)
    return folder


def test_six_commands_lead_to_the_first_picture() -> None:
    lines = blocks("commands")
    first = next(k for k, line in enumerate(lines) if "--plot" in line)
    assert first < 6
    assert all(re.match(a, b) for a, b in zip(SETUP, lines[:3], strict=True))


@pytest.mark.long
def test_the_commands_run_and_write_what_they_name(folder: Path) -> None:
    pytest.importorskip("h5netcdf")
    for line in blocks("commands")[len(SETUP) :]:
        # The closed forms alone: minutes of training change numbers, not what runs.
        # Nor do three numbers of sensors where one is scored.
        line = re.sub(r"(validate .*)--sensors \S+", r"\1--sensors 12", line)
        words = shlex.split(re.sub(r"--minutes \S+", "--minutes 0", line))
        assert words[0] == "uqsonet"
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, line + done.stderr
    for name in re.findall(r"-o (\S+)|--plot (\S+)|--csv (\S+)", "\n".join(blocks("commands"))):
        assert (folder / "".join(name)).stat().st_size > 1000 or name[2]


@pytest.mark.long
def test_the_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(re.sub(r"minutes=\d+", "minutes=0", "\n".join(blocks("python"))), names)
    assert np.shape(names["mean"]) == (256,) and np.shape(names["functions"]) == (100, 256)
    posterior = uqsonet.load(folder / "darcy.safetensors").condition(folder / "sensors.csv")
    np.testing.assert_allclose(posterior.mean(), names["mean"], rtol=1e-6)  # type: ignore[arg-type]


def test_the_sensors_read_the_first_test_function() -> None:
    with (FOLDER / "sensors.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    with np.load(FOLDER / "darcy_test_16.npz") as data:
        for row in rows:
            i, j = (round(16 * float(row[axis])) for axis in "xy")
            assert float(row["value"]) == data["a"][0, i, j]
    for line in re.findall(r"^([\d.]+,[\d.]+,[\d.]+)$", PAGE, flags=re.M):
        assert line in (FOLDER / "sensors.csv").read_text()


def test_the_picture_of_the_page_is_one() -> None:
    assert (FOLDER / "pressure.png").read_bytes().startswith(b"\x89PNG")


def test_the_data_holds_no_pickle() -> None:
    for path in FOLDER.glob("*.npz"):
        with zipfile.ZipFile(path) as archive:
            assert {info.filename for info in archive.infolist()} == {
                "a.npy", "p.npy", "x.npy", "y.npy"
            }  # fmt: skip
        with np.load(path, allow_pickle=False) as data:
            assert data["a"].dtype == bool and data["p"].dtype == np.float32
