"""The commands for one's own runs: describe, fit, predict, place, validate, info."""

import io
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
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
    np.savez(folder / "all.npz", k=k, u=u, x=x)
    np.savez(folder / "more.npz", k=k[90:], u=u[90:], x=x)
    np.savez(folder / "two.npz", k=k[:90], u=u[:90], v=u[:90, ::2] + 1, u_x=x, k_x=x, v_x=x[::2])
    (folder / "sensors.csv").write_text(SENSORS)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "mine.safetensors"
    fields = ("--input", "k", "--output", "u")
    result = invoke("fit", folder / "runs.npz", *fields, "-o", path, "--sensors", "3,6")
    assert "linear, 2 input modes: CRPS" in result.stderr and "scores on runs" in result.stdout
    return path


def test_describe_and_info_say_what_is_there(folder, model):
    text = invoke("describe", folder / "runs.npz", "--input", "k", "--output", "u").stdout
    assert "runs: 90 runs" in text and "k: 21 points" in text and "transform identity" in text
    text = invoke("info", model).stdout
    assert "architecture karhunen_loeve" in text and "k: 21 points on [0, 1]" in text


@pytest.mark.parametrize("suffix", ["npz", "h5", "nc"])
def test_describe_lists_a_file_whose_names_are_not_known(suffix: str, tmp_path: Path) -> None:
    path, k = tmp_path / f"runs.{suffix}", np.linspace(0, 1, 200).reshape(20, 10)
    k[3, 4:6] = np.nan
    if suffix == "npz":
        np.savez(path, k=k, names=np.array(["a", "b"]))
    elif suffix == "h5":
        with h5py.File(path, "w") as file:
            file["k"], file["names"] = k, [b"a", b"b"]
            file["k"].attrs["units"] = "m"
    else:
        data = xr.Dataset({"k": (("run", "x"), k, {"units": "m"}), "names": ("n", ["a", "b"])})
        data.to_netcdf(path, engine="h5netcdf")
    text = invoke("describe", path).stdout
    units, dims = "" if suffix == "npz" else ", m", " (run, x)" if suffix == "nc" else ""
    assert f"k: 20 x 10{dims}{units}, 0 to 1, 2 values missing" in text
    assert "names: 2" in text and f"uqsonet describe {path} --input NAME --output NAME" in text


def test_predict_writes_what_python_answers(folder, model, tmp_path):
    words = ("predict", model, folder / "sensors.csv", "--level", 0.8, "--samples", 2)
    for suffix in ("csv", "npz"):
        invoke(*words, "-o", tmp_path / f"u.{suffix}")
    posterior = uqsonet.load(model).condition(folder / "sensors.csv")
    lower, upper = posterior.band(0.8)
    drawn = posterior.sample(2)
    table = pd.read_csv(tmp_path / "u.csv")
    assert list(table) == ["x", "mean", "std", "lower", "upper", "sample_1", "sample_2"]
    expected = {"mean": posterior.mean(), "std": posterior.std(), "lower": lower, "upper": upper}
    with np.load(tmp_path / "u.npz") as arrays:
        for name, values in expected.items():
            np.testing.assert_allclose(table[name], values, rtol=1e-7, atol=1e-12)
            np.testing.assert_array_equal(arrays[name], values)
        np.testing.assert_array_equal(arrays["samples"], drawn)
        np.testing.assert_allclose(arrays["points"][:, 0], np.linspace(0, 1, 21))
    np.testing.assert_allclose(table["sample_2"], drawn[1], rtol=1e-7, atol=1e-12)


def test_a_netcdf_file_of_a_stranger_becomes_a_field_and_a_picture(folder, tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    monkeypatch.chdir(tmp_path)
    with np.load(folder / "runs.npz") as runs:
        fields = {name: (("sample", "x"), runs[name]) for name in "ku"}
        xarray.Dataset(fields, {"x": runs["x"]}).to_netcdf("runs.nc", engine="h5netcdf")
    fit = ("fit", "runs.nc", "--input", "k", "--output", "u", "--sensors", 3)
    invoke(*fit, "--law", "gaussian", "-o", "model.safetensors")
    (tmp_path / "sensors.csv").write_text(SENSORS)
    words = ("predict", "model.safetensors", "sensors.csv", "-o", "field.nc")
    assert invoke(*words, "--plot", "field.png").stdout == ""
    assert not list(tmp_path.glob("*.state"))
    runs = uqsonet.open_runs("runs.nc", "k", "u")
    same = uqsonet.fit(runs, sensors=[3], law="gaussian")
    posterior = uqsonet.load("model.safetensors").condition("sensors.csv")
    np.testing.assert_allclose(posterior.mean(), same.condition("sensors.csv").mean(), rtol=1e-6)
    with h5py.File("field.nc") as file:
        np.testing.assert_array_equal(np.asarray(file["u_mean"]), posterior.mean())
        np.testing.assert_allclose(np.asarray(file["x"]), np.linspace(0, 1, 21))
    assert (tmp_path / "field.png").read_bytes().startswith(b"\x89PNG")


def test_predict_prints_a_table_for_points_sets_and_noise(folder, model, tmp_path):
    (tmp_path / "points.csv").write_text("name,x\na,0.25\nb,0.3\n")
    (tmp_path / "sets.csv").write_text("set,x,value\nfirst,0.1,0.3\nsecond,0.1,-0.3\n")
    words = ("--points", tmp_path / "points.csv", "--noise-std", 0.5, "--band", "plain")
    printed = invoke("predict", model, tmp_path / "sets.csv", *words).stdout
    table = pd.read_csv(io.StringIO(printed))
    assert list(table) == ["set", "x", "mean", "std", "lower", "upper"]
    assert list(table["set"]) == ["first", "first", "second", "second"]
    posterior = uqsonet.load(model).condition([[0.1]], [0.3], noise_std=0.5)
    np.testing.assert_allclose(table["mean"][:2], posterior.mean([[0.25], [0.3]]), rtol=1e-6)


def test_a_doubt_is_one_line(model, tmp_path):
    (tmp_path / "odd.csv").write_text("x,value\n0.1,99\n")
    result = invoke("predict", model, tmp_path / "odd.csv")
    (line,) = [text for text in result.stderr.split("warning: ")[1:] if "reads 99" in text]
    assert "training saw" in flat(line) and "Warning" not in result.stderr


def test_several_output_fields_need_a_name(folder, tmp_path):
    fields = ("--input", "k", "--output", "u,v")
    path = tmp_path / "two.safetensors"
    invoke("fit", folder / "two.npz", *fields, "-o", path, "--sensors", "3")
    refused = invoke("predict", path, folder / "sensors.csv", code=1)
    assert "several output fields: say --field, one of u, v" in flat(refused.stderr)
    table = invoke("predict", path, folder / "sensors.csv", "--field", "v").stdout
    assert len(table.splitlines()) == 12


def test_place_writes_what_python_chooses(folder, model, tmp_path):
    (tmp_path / "where.csv").write_text("x\n0.05\n0.3\n0.5\n0.8\n")
    words = ("--candidates", tmp_path / "where.csv", "--given", folder / "sensors.csv")
    words += ("--field", "u", "--target", "k", "--noise-std", 0.01)
    files = ("-o", tmp_path / "places.csv", "--plot", tmp_path / "map.png")
    assert invoke("place", model, "--n", 2, *words, *files).stdout == ""
    given = {"field": "u", "given": folder / "sensors.csv", "target": "k", "noise_std": 0.01}
    found = uqsonet.load(model).place(2, [0.05, 0.3, 0.5, 0.8], **given)
    table = pd.read_csv(tmp_path / "places.csv")
    assert list(table) == ["field", "x", "before", "after"] and set(table["field"]) == {"u"}
    expected = np.stack([found.places[:, 0], found.before, found.after], 1)
    np.testing.assert_allclose(table[["x", "before", "after"]], expected, rtol=1e-7)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    lines = invoke("place", model).stdout.splitlines()
    assert len(lines) == 2 and lines[1].startswith("k,")


def test_validate_prints_writes_a_table_and_a_page(folder, model, tmp_path):
    files = ("-o", tmp_path / "page.html", "--csv", tmp_path / "scores.csv")
    text = invoke("validate", model, folder / "more.npz", "--sensors", 3, *files).stdout
    assert "30 runs of more" in text and "cokriging" in text
    rows = pd.read_csv(tmp_path / "scores.csv").set_index("method")
    for method in ("uqsonet", "cokriging"):
        assert rows["crps"][method] < 0.5 * rows["crps"]["sensor_free"]
    assert 0 <= rows["conformal_90"]["uqsonet"] <= 1
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


FIT = ("fit", "runs.npz", "--input", "k", "--output", "u", "-o", "new.safetensors")
PREDICT = ("predict", "mine.safetensors", "sensors.csv")
WRONG: list[tuple[tuple[str, ...], str]] = [
    (
        ("describe", *FIT[1:2], "--input", "K", "--output", "u"),
        "no array 'K'; there are k (90 x 21)",
    ),
    ((*FIT[:-1], "new.pt"), "new.pt: models are saved as .safetensors"),
    (
        (*FIT, "--sensors", "3;5"),
        "--sensors: whole numbers such as 5,12,50, or a .csv, found '3;5'",
    ),
    ((*FIT, "--sensors", "0"), "counts must be from 1 to 21, found 0"),
    ((*FIT, "--transform", "k:log"), "--transform: k=log expected, found 'k:log'"),
    ((*FIT, "--transform", "q=log"), "'q' is none of the fields k, u"),
    ((*FIT, "--missing", "ignore"), "there are error, drop, fill, model"),
    (("predict", "mine.safetensors", "none.csv"), "none.csv: no such file"),
    ((*PREDICT, "-o", "u.xlsx"), "answers are written to .csv"),
    ((*PREDICT, "--plot", "u.bmp"), "u.bmp: pictures end in .png, .pdf, .svg"),
    ((*PREDICT, "--band", "wide"), "'wide' is unknown"),
    ((*PREDICT, "--field", "w"), "'w' is unknown; there are k, u"),
    ((*PREDICT, "--points", "p.csv"), "p.csv: no column 'x'"),
    (("place", "mine.safetensors", "-o", "places.nc"), "places are written to .csv"),
    (("export", "mine.safetensors"), "there is no export any more: differences of two answers"),
    (("validate", "m", "f", "--pairs", "g"), "no --pairs any more: uqsonet info has the scores of"),
    (("validate", "mine.safetensors", "other.npz"), "other.npz: no array 'k'"),
    (("info", "runs.npz"), "not a readable safetensors file"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(w) for w, _ in WRONG])
def test_what_a_user_can_mend_is_one_message(folder, model, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    (folder / "p.csv").write_text("y\n0.5\n")
    np.savez(folder / "other.npz", q=np.ones((3, 4)))
    result = invoke(*words, code=1)
    assert message in flat(result.stderr) and "Traceback" not in result.output
    assert result.stderr.count("error: ") == 1


def test_a_fit_leaves_what_stands_beside_its_file(folder, model, tmp_path):
    state = tmp_path / "mine.safetensors.state"
    state.mkdir()
    (state / "b.safetensors").write_bytes(model.read_bytes())
    words = ("fit", folder / "all.npz", "--input", "k", "--output", "u", "--sensors", 3)
    invoke(*words, "--law", "gaussian", "-o", tmp_path / "mine.safetensors")
    assert {one.name for one in tmp_path.iterdir()} >= {state.name, "mine.safetensors"}
    assert [one.read_bytes() for one in state.iterdir()] == [model.read_bytes()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "sensors.csv"), "sensors.csv: is read, or written twice"),
        (("-o", "new/a.npz", "--plot", "new/a.npz"), "is read, or written twice"),
        (("-o", "new/a.xyz"), "answers are written to .csv"),
        (("-o", "new/a.csv", "--plot", "a.bmp"), "pictures end in .png"),
        (("-o", "mine.safetensors"), "mine.safetensors: is read"),
    ],
)
def test_an_output_is_no_input_and_a_refusal_leaves_nothing(
    folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for one in (folder / "sensors.csv", model):
        Path(one.name).write_bytes(one.read_bytes())
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    result = invoke("predict", model.name, "sensors.csv", *words, code=1)
    assert message in flat(result.stderr)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_names_of_files_are_names_and_no_markup(
    folder: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    named = tmp_path / "a[red]" / "b[" / "]c.csv"
    result = invoke("predict", model, folder / "sensors.csv", "-o", named)
    assert named.exists() and named.name in flat(result.stderr)
    invoke("predict", model, folder / "sensors.csv", "-o", "~/at-home.csv")
    assert (tmp_path / "at-home.csv").exists() and not Path("~").exists()
