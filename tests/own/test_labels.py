"""Labelled data: coordinates, units and missing points of a file are used, and come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

import uqsonet
from uqsonet.cli import app
from uqsonet.errors import DataError, DataWarning, ObservationError
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet.fields.layout import Layout
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.runs import split_runs
from uqsonet.runs.soundness import crashed_runs, without_rounding
from uqsonet.show import terminal
from uqsonet.show.explore import description

LAT = np.linspace(60.0, 20.0, 9)
LON = np.arange(0.0, 360.0, 30.0)
N = 60


def waves(count: int, *axes: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return smooth random functions (count, *shape)."""
    rng = np.random.default_rng(seed)
    unit = [(axis - axis.min()) / np.ptp(axis) for axis in axes]
    mesh = np.meshgrid(*unit, indexing="ij")
    shapes = [np.cos(np.pi * (j * mesh[0] + k * mesh[-1])) for j in range(2) for k in range(2)]
    return np.tensordot(rng.standard_normal((count, 4)), np.array(shapes), 1)


def earth(land: bool = True, **names: str) -> xr.Dataset:
    """Return runs along time, falling latitudes, and longitudes; with land if wanted."""
    k = waves(N, LAT, LON)
    u = 2 * k
    if land:
        k = np.where(np.add.outer(LAT, LON) > 330, np.nan, k)
    dims = ("time", "lat", "lon")
    data = xr.Dataset(
        {"sst": (dims, k, {"units": "degC"}), "pr": (dims, u, {"units": "mm/day"})},
        {
            "lat": ("lat", LAT, {"units": "degrees_north"}),
            "lon": ("lon", LON, {"units": "degrees_east"}),
            "time": ("time", np.arange(N) * 30.0, {"units": "days since 2000-01-01"}),
        },
    )
    return data.rename(names)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    path = tmp_path_factory.mktemp("earth") / "earth.nc"
    data = earth()
    data.to_netcdf(path, engine="h5netcdf", encoding={"sst": {"_FillValue": -9999.0}})
    model = uqsonet.fit(uqsonet.open_runs(path, "sst", "pr", run="time"), sensors=[4], bar=False)
    return data, model


def test_an_answer_aligns_with_its_file(answered: tuple[Any, Any], tmp_path: Path) -> None:
    data, model = answered
    table = pd.DataFrame({"lon": [-60.0, 90.0], "lat": [25.0, 40.0], "value": [0.3, -0.2]})
    posterior = model.condition(table)
    found = posterior.to_xarray()
    assert found.pr_mean.dims == ("lat", "lon") and found.pr_mean.attrs["units"] == "mm/day"
    for name in ("lat", "lon"):
        xr.testing.assert_identical(found[name], data[name])
    inputs = posterior["sst"].to_xarray().sst_mean
    np.testing.assert_array_equal(np.isnan(inputs), np.isnan(data.sst[0]))
    model.save(tmp_path / "m.safetensors")
    again = uqsonet.load(tmp_path / "m.safetensors").condition(table).to_xarray()
    xr.testing.assert_identical(again, found)
    x, y = model.inputs[0].axes.index("lon"), table.value.to_numpy()
    places = table[list(model.inputs[0].axes)].to_numpy()
    turned = places + 360 * (np.arange(2) == x) * (places < 0)
    means = [
        model.condition(uqsonet.WeightedPoints(p, np.eye(2)), y).mean() for p in (places, turned)
    ]
    np.testing.assert_allclose(means[1], means[0], rtol=1e-6)
    turned = model.condition(table.assign(lon=table.lon % 360))
    np.testing.assert_array_equal(turned.mean(), posterior.mean())


def test_nothing_is_measured_or_placed_where_there_is_no_field(answered: tuple[Any, Any]) -> None:
    data, model = answered
    with pytest.raises(ObservationError, match="no values in any run"):
        model.condition([[330.0, 60.0]], [0.1])
    places = model.place(3).places
    nearest = data.sst[0].sel(
        lon=xr.DataArray(places[:, 0]), lat=xr.DataArray(places[:, 1]), method="nearest"
    )
    assert np.isfinite(nearest).all()


def test_a_truth_of_another_shape_is_refused(answered: tuple[Any, Any]) -> None:
    data, model = answered
    posterior = model.condition([[90.0, 40.0]], [0.1])
    with pytest.raises(ObservationError, match="shape"):
        posterior.plot(truth=data.pr[0].values.T)
    posterior.plot(truth=data.pr[0].values)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d,
        lambda d: d.transpose("lon", "member", "lat"),
        lambda d: d.sortby("lat"),
        lambda d: d.expand_dims(level=[850.0], axis=1),
        lambda d: d.expand_dims("height"),
        lambda d: d.rename(lon="XLONG", lat="XLAT"),
        lambda d: d.rename(member="ensemble").astype(">f8"),
    ],
)
def test_a_data_array_is_the_same_field_whatever_its_layout(change: Any) -> None:
    plain = earth(land=False, time="member").sst.drop_vars("member")
    field, want = FieldRuns.of(change(plain)), FieldRuns.of(plain)
    assert field.domain == want.domain and field.units == "degC"
    assert field.domain.lower == (0.0, 20.0)
    np.testing.assert_array_equal(field.values, want.values)


def test_coordinates_beside_their_dimensions_come_in_the_same_order(tmp_path: Path) -> None:
    x, y = np.linspace(5.0, 6.0, 7), np.linspace(2.0, 1.0, 8)
    k = waves(N, y, x)
    data = xr.Dataset(
        {name: (("run", "j", "i"), k) for name in ("k", "u")}, {"y": ("j", y), "x": ("i", x)}
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    field = uqsonet.open_runs(tmp_path / "a.nc", "k", "u").inputs["k"]
    assert field.domain.lower == (5.0, 1.0) and field.layout is not None
    np.testing.assert_array_equal(field.layout.in_file_order(field.values), k.astype(float))


@pytest.mark.parametrize("named", [True, False])
def test_coordinates_of_a_curved_mesh_may_have_dimensions_in_another_order(
    named: bool, tmp_path: Path
) -> None:
    x, y = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8), indexing="ij")
    lon, lat = x + 0.1 * y, y + 0.1 * x**2
    k = np.tensordot(np.random.default_rng(0).standard_normal((N, 2)), np.stack([lon, lat**2]), 1)
    data = xr.Dataset({name: (("run", "i", "j"), k) for name in ("k", "u")})
    own = {"lon": (("j", "i"), lon.T), "lat": (("j", "i"), lat.T)}
    data = data.assign_coords(own) if named else data.assign(own)
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    model = uqsonet.fit(uqsonet.open_runs(tmp_path / "a.nc", "k", "u"), sensors=[4], bar=False)
    found = model.condition([[0.5, 0.5]], [0.1]).to_xarray()
    np.testing.assert_array_equal(found.lon.transpose("i", "j"), lon)
    np.testing.assert_array_equal(found.lat.transpose("i", "j"), lat)


def test_times_count_as_their_file_does(tmp_path: Path) -> None:
    data = earth(land=False).rename(lat="member").drop_vars("member")
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    runs = uqsonet.open_runs(tmp_path / "a.nc", "sst", "pr")
    field = runs.inputs["sst"]
    assert field.domain.upper[1] == 30.0 * (N - 1) and field.layout is not None
    moment = np.datetime64("2000-01-31")
    (time,) = (one for one in field.layout.coordinates if one.name == "time")
    assert time.numbers([moment]).tolist() == [30.0]


def test_layouts_come_back_from_a_header() -> None:
    layout = FieldRuns.of(earth().sst.rename(time="run").drop_vars("run")).layout
    assert layout is not None
    size = int(layout.index.max()) + 1
    again, values = Layout.from_dict(layout.as_dict(), size), np.arange(size, dtype=float)
    np.testing.assert_array_equal(again.in_file_order(values), layout.in_file_order(values))
    with pytest.raises(ValueError, match="points are not those of a domain of"):
        Layout.from_dict(layout.as_dict(), size - 1)
    old = {"dims": ["y"], "shape": [3], "axes": ["y"], "order": [0], "falling": [True]}
    with pytest.raises(ValueError, match="fit again"):
        Layout.from_dict(old, 3)


@pytest.mark.parametrize("kind", ["npz", "h5", "nc"])
def test_a_file_for_each_run(kind: str, tmp_path: Path) -> None:
    x = np.linspace(1.0, 2.0, 8)
    k = waves(25, x)
    for number, row in enumerate(k):
        path = tmp_path / f"run_{number:02d}.{kind}"
        if kind == "npz":
            np.savez(path, k=row, u=2 * row, x=x)
        else:
            data = xr.Dataset({"k": ("x", row), "u": ("x", 2 * row)}, {"x": x})
            data.to_netcdf(path, engine="h5netcdf")
    for paths in (str(tmp_path / "run_*"), sorted(tmp_path.glob("run_*"))):
        runs = uqsonet.open_runs(paths, "k", "u")
        np.testing.assert_array_equal(runs.inputs["k"].values, k)
        assert runs.inputs["k"].domain.lower == (1.0,)


def test_a_field_that_is_called_like_an_axis_is_no_coordinate_of_others(tmp_path: Path) -> None:
    k = waves(25, np.linspace(1.0, 2.0, 8), np.linspace(0.0, 1.0, 6))
    for number, row in enumerate(k):
        data = xr.Dataset({"k": (("i", "j"), row), "T": (("i", "j"), 2 * row)})
        data.to_netcdf(tmp_path / f"run_{number:02d}.nc", engine="h5netcdf")
    runs = uqsonet.open_runs(tmp_path / "run_*.nc", "k", "T")
    assert runs.inputs["k"].domain == runs.outputs["T"].domain == Grid((0, 0), (1, 1), (8, 6))
    np.testing.assert_array_equal(runs.outputs["T"].values, 2 * k.reshape(25, -1))


def test_zarr_needs_no_codec_that_runs_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "runs.zarr" / "k"
    folder.mkdir(parents=True)
    with pytest.raises(DataError, match="no Zarr array"):
        uqsonet.open_runs(tmp_path / "runs.zarr", "k", "u")
    (folder / ".zarray").write_text('{"dtype": "|O", "filters": [{"id": "pickle"}]}')
    with pytest.raises(DataError, match=r"not read \(an array of Python objects\)"):
        uqsonet.open_runs(tmp_path / "runs.zarr", "k", "u")
    twice = [{"name": "sharding_indexed", "configuration": {"codecs": [{"name": "zstd"}]}}]
    (folder / ".zarray").write_text(
        json.dumps({"dtype": "<f4", "codecs": [*twice, {"id": "zlib"}]})
    )
    with pytest.raises(DataError, match=r"not read \(packed twice\)"):
        uqsonet.open_runs(tmp_path / "runs.zarr", "k", "u")


def test_zarr_says_what_was_never_written_and_where_its_groups_are(tmp_path: Path) -> None:
    array = {"shape": [1000, 10**6], "dtype": "<f8", "chunks": [10, 1000], "compressor": None}
    for chunks, name in (([10, 1000], "runs.zarr"), ([1, 10**9], "chunk.zarr")):
        (tmp_path / name / "k").mkdir(parents=True)
        (tmp_path / name / "k/.zarray").write_text(json.dumps({**array, "chunks": chunks}))
        with pytest.raises(DataError, match=r"says that it holds \d+ bytes, and has"):
            uqsonet.open_runs(tmp_path / name, "k", "u")
    home = tmp_path / "store"  # a folder without the suffix
    (home / "inner/k").mkdir(parents=True)
    (home / "inner/k/.zarray").write_text(json.dumps({**array, "shape": [10, 10]}))
    (home / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(DataError, match=r"its arrays stand in groups; open one of them: .*inner"):
        uqsonet.open_runs(home, "k", "u")


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_of_both_formats(version: int, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    x = np.linspace(1.0, 2.0, 8)
    k = waves(25, x)
    data = xr.Dataset({"k": (("run", "x"), k), "u": (("run", "x"), 2 * k)}, {"x": x})
    packed = {"k": {"dtype": "i2", "scale_factor": 1e-3, "_FillValue": -9999, "chunks": (7, 5)}}
    data.to_zarr(tmp_path / "a.zarr", group="inner", zarr_format=version, encoding=packed)
    runs = uqsonet.open_runs(tmp_path / "a.zarr/inner", "k", "u")
    np.testing.assert_allclose(runs.inputs["k"].values, k, atol=5.1e-4)
    assert runs.inputs["k"].domain.lower == (1.0,) and len(runs) == 25
    zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=version).create_array("k", data=k)
    with pytest.raises(DataError, match=r"need names of dimensions.*numpy\.savez"):
        uqsonet.open_runs(tmp_path / "b.zarr", "k", "k")


@pytest.mark.parametrize("number", [-9999.0, 9.969209968386869e36, 1e20])
def test_numbers_that_stand_for_missing_values_are_noticed(number: float) -> None:
    k = waves(N, np.linspace(0, 1, 12))
    k[3, 4] = k[7, 2] = number
    with pytest.raises(DataError, match=r"2 values are .* far from all others"):
        FieldRuns.of(k)
    with pytest.warns(DataWarning, match="taken as missing"):
        assert not FieldRuns.of(k, missing="drop").kept[[3, 7]].any()  # type: ignore[index]


def test_crashed_runs_are_named_and_heavy_tails_are_not() -> None:
    k = waves(200, np.linspace(0, 1, 12))
    wrong = k.copy()
    wrong[7], wrong[50], wrong[120] = 1e12, -9.9e8, 0.0
    assert np.flatnonzero(crashed_runs(FieldRuns.of(wrong))).tolist() == [7, 50, 120]
    assert not crashed_runs(FieldRuns.of(np.exp(3 * k))).any()
    assert not crashed_runs(FieldRuns.of(np.maximum(k - 1, 0))).any()  # rain: dry runs are runs


def test_values_that_differ_by_rounding_alone_are_made_equal() -> None:
    k, rng = waves(200, np.linspace(0, 1, 12)), np.random.default_rng(0)
    eps = np.float32(1.2e-7) * rng.integers(-1, 2, k.shape).astype(np.float32)
    classes = np.digitize(k, [-0.5, 0.5]).astype(np.float32) + 1
    rain = np.maximum(k, 0)
    drizzle = rain + 1e-17 * (rain == 0) * rng.integers(-1, 2, k.shape)
    others = {"k": k, "decades": np.exp(6 * k), "exact": classes, "dry": rain}
    others["shale and sand"] = np.where(k < 0, 1e-18 * np.exp(k), 1e-12)
    rounded = {"classes": classes + eps, "rain": drizzle, "both": 1 - drizzle / rain.max()}
    runs = without_rounding(uqsonet.Runs({**others, **rounded}, {"u": k}))
    np.testing.assert_array_equal(runs.inputs["classes"].values, classes)
    np.testing.assert_array_equal(runs.inputs["rain"].values, rain)
    assert np.unique(runs.inputs["both"].values).size == np.unique(rain).size
    for name, values in others.items():
        np.testing.assert_array_equal(runs.inputs[name].values, values)


def test_groups_and_copies_never_stand_on_both_sides() -> None:
    labels = np.repeat(np.arange(45), 5)
    (split,) = split_runs(225, 0, labels)
    sides = [set(labels[part]) for part in (split.training, split.validation, split.calibration)]
    assert not sides[0] & sides[1] and not (sides[0] | sides[1]) & sides[2]
    assert len(set(labels[split.calibration])) == len(split.calibration)
    k = np.tile(waves(45, np.linspace(0, 1, 12)), (5, 1))
    (parts,) = uqsonet.Runs({"k": k}, {"u": 2 * k}).splits(1)
    held = {k[n].tobytes() for n in parts.calibration}
    assert not held & {k[n].tobytes() for n in parts.training}


def test_a_cloud_knows_no_units_and_no_refinement() -> None:
    rng = np.random.default_rng(5)
    even = rng.random((300, 2))
    fine = np.vstack([even, 0.15 * rng.random((900, 2))])
    corner = [float((c.quadrature() * (c.points() < 0.15).all(1)).sum())
              for c in map(PointCloud.of, (even, fine))]  # fmt: skip
    np.testing.assert_allclose(corner, 0.15**2, atol=0.02)
    values, places = np.sin(even @ [3.0, 2.0])[:, None], rng.uniform(0.2, 0.8, (20, 2))
    unit = [np.array([1.0, 1.0]), np.array([1e5, 10.0])]
    answers = [
        PointCloud.of(even * u).interpolate(_tensor(values), _tensor(places * u)) for u in unit
    ]
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-9)


def _tensor(values: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(values)


def test_a_page_has_the_names_and_units_of_the_file() -> None:
    x, t = np.linspace(0, 1, 12), np.linspace(0, 2, 9)
    k = np.random.default_rng(0).standard_normal((40, 4)) @ np.cos(np.outer(np.arange(1, 5), x))
    axes = {"x": ("x", x, {"units": "km"}), "t": ("t", t, {"units": "hours"})}
    u = xr.DataArray(k[:, :, None] * np.exp(-t), dims=("run", "x", "t"), coords=axes)
    runs = uqsonet.Runs({"k": (k, x[:, None])}, {"u": u})
    model = uqsonet.fit(runs, sensors=[3], law="gaussian", bar=False)
    assert [one["axes"] for one in description(model)["fields"]] == [["x"], ["x [km]", "t [hours]"]]


SHAPES = {
    "scalar": lambda k: k.mean(1),
    "column": lambda k: k.mean(1)[:, None],
    "row": lambda k: k.mean(1)[None],
    "three": lambda k: k.mean(1)[:, None, None],
    "first": lambda k: k[None],
    "second": lambda k: k[:, None],
    "last": lambda k: k[:, :, None],
    "both": lambda k: k[None, :, None],
}


@pytest.mark.parametrize("kind", ["npz", "h5", "nc"])
@pytest.mark.parametrize("shape", SHAPES)
def test_axes_of_length_one_may_stand_anywhere(shape: str, kind: str, tmp_path: Path) -> None:
    x, path = np.linspace(1.0, 2.0, 9), tmp_path / f"one.{kind}"
    k = waves(25, x)
    u = SHAPES[shape](k)
    if kind == "npz":
        np.savez(path, k=k, u=u, x=x)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["k"], file["u"], file["x"] = k, u, x
    else:
        names = {25: "run", 9: "x"}
        dims = [names.get(size, f"one_{place}") for place, size in enumerate(u.shape)]
        data = xr.Dataset({"k": (("run", "x"), k), "u": (dims, u)}, {"x": x})
        data.to_netcdf(path, engine="h5netcdf")
    found = uqsonet.open_runs(path, "k", "u").outputs["u"]
    np.testing.assert_array_equal(found.values.reshape(25, -1), u.reshape(25, -1))
    if u.size > 25:
        assert found.domain.lower == (1.0,) and found.domain.upper == (2.0,)
    with pytest.raises(DataError, match="first axis of length one"):
        uqsonet.Runs({"k": k}, {"u": k[None]})


def test_from_a_file_to_answers_by_the_command_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.LOG, "handlers", [])  # commands log to what the runner closes
    lon, lat = np.arange(0.0, 360, 45), np.linspace(60, -60, 7)
    place = np.stack(np.meshgrid(np.deg2rad(lat), np.deg2rad(lon), indexing="ij"))
    modes = np.stack([np.cos(place[0]), np.sin(place[1]), np.cos(place[1]) * place[0]])
    sst = np.einsum("nk,kij->nij", np.random.default_rng(0).standard_normal((60, 3)), modes)
    land = np.hypot(*(place - np.array([0.5, 2.0])[:, None, None])) < 1
    sst[:, land] = np.nan
    names, own = ("run", "lat", "lon"), {"lat": lat, "lon": lon}
    data = xr.Dataset({"sst": (names, sst), "pr": (names, sst**2)}, own)
    data.to_netcdf(tmp_path / "sea.nc", engine="h5netcdf")
    sea = np.argwhere(~land)[[3, 20]]
    rows = [f"{(lon[j] + 180) % 360 - 180},{lat[i]},{sst[0, i, j]}" for i, j in sea]
    (tmp_path / "s.csv").write_text("\n".join(["lon,lat,value", *rows]))
    model, answer, csv = (tmp_path / name for name in ("m.safetensors", "pr.nc", "places.csv"))
    words = ["--sensors", "2", "--input", "sst", "--output", "pr"]
    for line in (
        ["fit", tmp_path / "sea.nc", *words, "-o", model],
        ["predict", model, tmp_path / "s.csv", "-o", answer],
        ["place", model, "--n", "3", "-o", csv],
        ["predict", model, tmp_path / "s.csv", "--points", csv, "-o", tmp_path / "at.csv"],
    ):
        done = CliRunner().invoke(app, list(map(str, line)))
        assert done.exit_code == 0, done.output
    found = xr.open_dataset(answer, engine="h5netcdf")["pr_mean"]
    xr.testing.assert_equal(found.isnull(), data["pr"][0].isnull())  # nothing invented, aligned
    chosen = pd.read_csv(csv)
    assert list(chosen) == ["field", "lon", "lat", "before", "after"]
    there = data["sst"][0].sel(lon=xr.DataArray(chosen.lon % 360), lat=xr.DataArray(chosen.lat))
    assert bool(there.notnull().all())  # no sensor on land


def test_sensors_points_and_candidates_come_with_labels(answered: tuple[Any, Any]) -> None:
    data, model = answered
    at = {"lat": xr.DataArray([25.0, 40.0], dims="p"), "lon": xr.DataArray([300.0, 90.0], dims="p")}
    read = data.sst.isel(time=0).sel(at, method="nearest")
    places = np.stack([read.lon, read.lat], -1)
    answer = model.condition(places, read.values)
    points = xr.Dataset({"lon": ("s", [-60.0, 90.0]), "lat": ("s", [25.0, 45.0])})
    for one in (
        model.condition(read),
        model.condition(sst=read),
        model.condition(xr.Dataset({"sst": read})),
        model.condition(read.to_dataframe("value").set_index(["lon", "lat"])[["value"]]),
        model.condition(read.assign_coords(station=("p", ["a", "b"])).drop_vars("time")),
    ):
        np.testing.assert_array_equal(one.mean(), answer.mean())
        np.testing.assert_array_equal(one.mean(points), answer.mean([[300.0, 25.0], [90.0, 45.0]]))
    np.testing.assert_array_equal(answer.mean(read), answer.mean(places))
    single = model.condition(read[1])
    np.testing.assert_array_equal(
        single.mean(), model.condition(places[1:], read.values[1:]).mean()
    )
    chosen = model.place(1, data.sst.isel(time=0)).places  # its missing points are no candidates
    there = data.sst[0].sel(lon=chosen[0, 0], lat=chosen[0, 1], method="nearest")
    assert bool(there.notnull())
    np.testing.assert_array_equal(
        model.place(1, points).places, model.place(1, points.to_dataframe()).places
    )


def test_a_dataset_hands_its_runs_over_as_its_file_would(tmp_path: Path) -> None:
    import uqsonet.xarray  # registers the accessor

    rng = np.random.default_rng(3)
    fields = {name: (("run", "x"), rng.normal(size=(12, 9)), {"units": "m"}) for name in "ku"}
    data = xr.Dataset(fields, {"x": np.linspace(2.0, 5.0, 9)})
    data.to_netcdf(tmp_path / "runs.nc", engine="h5netcdf")
    handed, stored = data.uqsonet.runs("k", "u"), uqsonet.open_runs(tmp_path / "runs.nc", "k", "u")
    for one, other in ((handed.inputs, stored.inputs), (handed.outputs, stored.outputs)):
        for name, field in one.items():
            assert (field.domain, field.units) == (other[name].domain, other[name].units)
            np.testing.assert_array_equal(field.values, other[name].values)
    with pytest.raises(DataError, match="no array 'kk' in the dataset; there are k, u"):
        data.uqsonet.runs("kk", "u")
