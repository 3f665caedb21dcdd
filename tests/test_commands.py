"""The commands for one's own runs: describe, fit, predict, place, validate, info."""

import csv
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import uqsonet
from uqsonet.cli import app

runner = CliRunner()
SENSORS = "x,value\n0.1,0.3\n0.55,-0.2\n0.9,0.4\n"


def invoke(*words: object, code: int = 0) -> Result:
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def flat(text: str) -> str:
    """Return text without the line ends that a terminal's width has put in."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of u = the integral of a smooth Gaussian k, as npz, and sensors."""
    folder = tmp_path_factory.mktemp("own")
    x = np.linspace(0, 1, 21)
    covariance = np.exp(-((x[:, None] - x) ** 2) / 0.1) + 1e-9 * np.eye(21)
    root = np.linalg.cholesky(covariance)
    k = np.random.default_rng(3).normal(size=(120, 21)) @ root.T
    u = np.cumsum(k, 1) / 21
    np.savez(folder / "runs.npz", k=k[:90], u=u[:90], x=x)
    np.savez(folder / "more.npz", k=k[90:], u=u[90:], x=x)
    np.savez(folder / "two.npz", k=k[:90], u=u[:90], v=u[:90, ::2] + 1, u_x=x, k_x=x, v_x=x[::2])
    (folder / "sensors.csv").write_text(SENSORS)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "mine.safetensors"
    fields = ("--input", "k", "--output", "u")
    result = invoke(
        "fit", folder / "runs.npz", *fields, "-o", path, "--minutes", 0, "--sensors", "3,6"
    )
    assert "linear, 2 input modes: CRPS" in result.stderr and "scores on runs" in result.stdout
    return path


def test_help_lists_commands_in_the_order_of_their_use_and_each_has_an_example() -> None:
    text = invoke("--help").stdout
    names = ("describe", "fit", "predict", "place", "validate", "info")
    places = [re.search(rf"^\W*{name} ", text, flags=re.M) for name in names]
    starts = [found.start() for found in places if found]
    assert len(starts) == len(names) and starts == sorted(starts)
    for name in names:
        assert f"Example: uqsonet {name} " in flat(invoke(name, "--help").stdout)


def test_describe_says_what_is_there(folder: Path) -> None:
    text = invoke("describe", folder / "runs.npz", "--input", "k", "--output", "u").stdout
    assert "runs: 90 runs" in text and "k: 21 points" in text and "transform identity" in text


def test_fit_leaves_no_checkpoints_and_the_same_model_as_python(folder: Path, model: Path) -> None:
    assert not list(folder.glob("*.state"))
    runs = uqsonet.open_runs(folder / "runs.npz", "k", "u")
    same = uqsonet.fit(runs, minutes=0, sensors=[3, 6])
    given = [0.1, 0.55], [0.3, -0.2]
    mean = uqsonet.load(model).condition(*given).mean()
    np.testing.assert_allclose(mean, same.condition(*given).mean(), rtol=1e-6, atol=1e-9)


def read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_predict_writes_what_python_answers(folder: Path, model: Path, tmp_path: Path) -> None:
    words = ("predict", model, folder / "sensors.csv", "--level", 0.8, "--samples", 2)
    for suffix in ("csv", "npz"):
        invoke(*words, "-o", tmp_path / f"u.{suffix}")
    posterior = uqsonet.load(model).condition(folder / "sensors.csv")
    lower, upper = posterior.band(0.8)
    drawn = posterior.sample(2)
    table = read_csv(tmp_path / "u.csv")
    assert list(table) == ["x", "mean", "std", "lower", "upper", "sample_1", "sample_2"]
    expected = {"mean": posterior.mean(), "std": posterior.std(), "lower": lower, "upper": upper}
    with np.load(tmp_path / "u.npz") as arrays:
        for name, values in expected.items():
            np.testing.assert_allclose(table[name], values, rtol=1e-7, atol=1e-12)
            np.testing.assert_array_equal(arrays[name], values)
        np.testing.assert_array_equal(arrays["samples"], drawn)
        np.testing.assert_allclose(arrays["points"][:, 0], np.linspace(0, 1, 21))
    np.testing.assert_allclose(table["sample_2"], drawn[1], rtol=1e-7, atol=1e-12)


def test_predict_writes_netcdf_with_named_coordinates(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    invoke("predict", model, folder / "sensors.csv", "-o", tmp_path / "u.nc")
    with h5py.File(tmp_path / "u.nc") as file:
        mean, x = np.asarray(file["u_mean"]), np.asarray(file["x"])
    posterior = uqsonet.load(model).condition(folder / "sensors.csv")
    np.testing.assert_array_equal(mean, posterior.mean())
    np.testing.assert_allclose(x, np.linspace(0, 1, 21))


def test_predict_prints_a_table_for_points_sets_and_noise(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "points.csv").write_text("name,x\na,0.25\nb,0.3\n")
    (tmp_path / "sets.csv").write_text("set,x,value\nfirst,0.1,0.3\nsecond,0.1,-0.3\n")
    words = ("--points", tmp_path / "points.csv", "--noise-std", 0.5, "--band", "plain")
    lines = invoke("predict", model, tmp_path / "sets.csv", *words).stdout.splitlines()
    rows = [line.split(",") for line in lines]
    assert rows[0] == ["set", "x", "mean", "std", "lower", "upper"]
    assert [row[0] for row in rows[1:]] == ["first", "first", "second", "second"]
    posterior = uqsonet.load(model).condition([[0.1]], [0.3], noise_std=0.5)
    mean = posterior.mean([[0.25], [0.3]])
    np.testing.assert_allclose([float(row[2]) for row in rows[1:3]], mean, rtol=1e-6)


def test_predict_draws(folder: Path, model: Path, tmp_path: Path) -> None:
    result = invoke("predict", model, folder / "sensors.csv", "--plot", tmp_path / "u.png")
    assert (tmp_path / "u.png").read_bytes().startswith(b"\x89PNG") and result.stdout == ""
    refused = invoke("predict", model, folder / "sensors.csv", "--plot", "u.bmp", code=1)
    assert "u.bmp: pictures end in .png, .pdf, .svg" in flat(refused.stderr)


def test_a_doubt_is_one_line(folder: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("x,value\n0.1,99\n")
    result = invoke("predict", model, tmp_path / "odd.csv")
    (line,) = [text for text in result.stderr.split("warning: ")[1:] if "reads 99" in text]
    assert "training saw" in flat(line) and "Warning" not in result.stderr


def test_several_output_fields_need_a_name(folder: Path, tmp_path: Path) -> None:
    fields = ("--input", "k", "--output", "u,v")
    path = tmp_path / "two.safetensors"
    invoke("fit", folder / "two.npz", *fields, "-o", path, "--minutes", 0, "--sensors", "3")
    refused = invoke("predict", path, folder / "sensors.csv", code=1)
    assert "several output fields: say --field, one of u, v" in flat(refused.stderr)
    table = invoke("predict", path, folder / "sensors.csv", "--field", "v").stdout
    assert len(table.splitlines()) == 12


def test_place_writes_what_python_chooses(folder: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "where.csv").write_text("x\n0.05\n0.3\n0.5\n0.8\n")
    words = ("--candidates", tmp_path / "where.csv", "--given", folder / "sensors.csv")
    words += ("--field", "u", "--target", "k", "--noise-std", 0.01)
    files = ("-o", tmp_path / "places.csv", "--plot", tmp_path / "map.png")
    assert invoke("place", model, "--n", 2, *words, *files).stdout == ""
    found = uqsonet.load(model).place(
        2, [0.05, 0.3, 0.5, 0.8], field="u", given=folder / "sensors.csv", target="k",
        noise_std=0.01,
    )  # fmt: skip
    with (tmp_path / "places.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["field", "x", "before", "after"]
    assert [row["field"] for row in rows] == ["u", "u"]
    for name, expected in (
        ("x", found.places[:, 0]), ("before", found.before), ("after", found.after)
    ):  # fmt: skip
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, rtol=1e-7)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    lines = invoke("place", model).stdout.splitlines()
    assert len(lines) == 2 and lines[1].startswith("k,")


def test_validate_prints_writes_a_table_and_a_page(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    files = ("-o", tmp_path / "page.html", "--csv", tmp_path / "scores.csv")
    files += "--pairs", folder / "runs.npz"
    text = invoke("validate", model, folder / "more.npz", "--sensors", 3, *files).stdout
    assert "30 runs of more" in text and "cokriging" in text
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    for method in ("uqsonet", "cokriging", "regression"):
        assert float(rows[method]["crps"]) < 0.5 * float(rows["sensor_free"]["crps"])
    assert 0 <= float(rows["uqsonet"]["conformal_90"]) <= 1
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_info_prints_the_card(model: Path) -> None:
    text = invoke("info", model).stdout
    assert "architecture karhunen_loeve" in text and "k: 21 points on [0, 1]" in text


FIT = ("fit", "runs.npz", "--input", "k", "--output", "u", "-o", "new.safetensors")
WRONG: list[tuple[tuple[Any, ...], str]] = [
    (
        ("describe", "runs.npz", "--input", "K", "--output", "u"),
        "no array 'K'; there are k (90 x 21)",
    ),
    (("describe", "none.nc", "--input", "k", "--output", "u"), "none.nc: no such file"),
    ((*FIT[:-1], "new.pt"), "new.pt: models are saved as .safetensors"),
    ((*FIT, "--sensors", "3;5"), "--sensors: whole numbers such as 5,12,50, found '3;5'"),
    ((*FIT, "--sensors", "0"), "counts must be from 1 to 21, found 0"),
    ((*FIT, "--transform", "k:log"), "--transform: k=log expected, found 'k:log'"),
    ((*FIT, "--transform", "q=log"), "'q' is none of the fields k, u"),
    ((*FIT, "--transform", "k=log"), "must be positive under log"),
    ((*FIT, "--missing", "ignore"), "there are error, drop and fill"),
    ((*FIT, "--minutes", "-1"), "minutes must be finite and not negative"),
    (("predict", "none.safetensors", "sensors.csv"), "none.safetensors"),
    (("predict", "mine.safetensors", "none.csv"), "none.csv: no such file"),
    (("predict", "mine.safetensors", "sensors.csv", "-o", "u.xlsx"), "answers are written to .csv"),
    (("predict", "mine.safetensors", "sensors.csv", "--band", "wide"), "'wide' is unknown"),
    (("predict", "mine.safetensors", "sensors.csv", "--level", "90"), "levels must be numbers"),
    (("predict", "mine.safetensors", "sensors.csv", "--field", "w"), "'w' is unknown; there are u"),
    (("predict", "mine.safetensors", "sensors.csv", "--points", "p.csv"), "p.csv: no column 'x'"),
    (("place", "mine.safetensors", "--n", "0"), "n must be a whole number from 1"),
    (("place", "mine.safetensors", "--field", "w"), "--field 'w' is unknown; there are k, u"),
    (("place", "mine.safetensors", "-o", "places.nc"), "places are written to .csv"),
    (("place", "mine.safetensors", "--plot", "map.bmp"), "map.bmp: pictures end in"),
    (("place", "mine.safetensors", "--candidates", "p.csv"), "p.csv: no column 'x'"),
    (("validate", "mine.safetensors", "other.npz"), "other.npz: no array 'k'"),
    (("info", "runs.npz"), "not a readable safetensors file"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(w) for w, _ in WRONG])
def test_what_a_user_can_mend_is_one_message(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, words: Any, message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "p.csv").write_text("y\n0.5\n")
    np.savez(folder / "other.npz", q=np.ones((3, 4)))
    result = invoke(*words, code=1)
    assert message in flat(result.stderr) and "Traceback" not in result.output
    assert result.stderr.count("error: ") == 1


def fitting(folder: Path, out: Path) -> list[str]:
    """Return a command that trains for seconds."""
    words = ["fit", str(folder / "runs.npz"), "--input", "k", "--output", "u", "--minutes", "0.1"]
    return [sys.executable, "-m", "uqsonet", *words, "--sensors", "3", "-o", str(out)]


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("whole") / "whole.safetensors"
    subprocess.run(fitting(folder, out), capture_output=True, check=True)
    return out.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_fit_goes_on_with_the_same_command(
    folder: Path, tmp_path: Path, number: signal.Signals, undisturbed: bytes
) -> None:
    out = tmp_path / "stopped.safetensors"
    process = subprocess.Popen(fitting(folder, out), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"iteration (\d+)/(\d+)", line)
        if found and int(found[2]) > 500 and int(found[1]) < 0.5 * int(found[2]):
            process.send_signal(number)
            break
    rest = process.stderr.read()
    assert process.wait() == 1, "".join(lines) + rest
    assert "the same command continues" in flat(rest) and "Traceback" not in rest
    assert not out.exists() and list(tmp_path.glob("stopped.safetensors.state/*"))
    again = subprocess.run(fitting(folder, out), capture_output=True, text=True, check=True)
    assert "continuing at iteration" in again.stderr
    assert not list(tmp_path.glob("*.state"))
    assert out.read_bytes() == undisturbed
