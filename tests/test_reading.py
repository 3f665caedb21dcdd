"""From files to runs: what each format holds, where its points are, what bad files are told."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import uqsonet
from uqsonet.errors import DataError
from uqsonet.fields.grid import Grid
from uqsonet_study.storage import write_arrays

N = 24
GENERATOR = np.random.default_rng(5)
K, U = GENERATOR.normal(size=(N, 5, 7)), GENERATOR.normal(size=(N, 9))
X, Y, T = np.linspace(0, 2, 5), np.linspace(-1, 0, 7), np.linspace(3, 4, 9)
CLOUD = GENERATOR.random((9, 2))
PLANE = Grid((0.0, -1.0), (2.0, 0.0), (5, 7))


def line(start: float, size: int = 9) -> Grid:
    return Grid((start,), (start + 1,), (size,))


def saved(path: Path, **arrays: np.ndarray) -> Path:
    """Write arrays to npz or HDF5; two underscores stand for a group."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return path
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = array
    return path


BOX = Grid((0.0, 0.0), (1.0, 1.0), (5, 7))
MESH, TURNED = np.meshgrid(X, Y, indexing="ij"), np.meshgrid(X, Y, indexing="xy")
LAYOUTS = {  # arrays of a file, and the grids or points of k and u
    "by name": ({"k": K, "u": U, "k_x": X, "k_y": Y, "u_points": CLOUD}, PLANE, CLOUD),
    "each point": ({"k": U, "u": U, "x": CLOUD[:, 0], "y": CLOUD[:, 1]}, CLOUD, CLOUD),
    "own before common": ({"k": U, "u": U, "points": T, "u_x": T + 1}, line(3.0), line(4.0)),
    "none": ({"k": K, "u": U}, BOX, line(0.0)),
    "flat": ({"k": K.reshape(N, 35), "u": U, "k_x": X, "k_y": Y}, PLANE, line(0.0)),
    "mesh": ({"k": K, "u": U, "k_x": MESH[0], "k_y": MESH[1]}, PLANE, line(0.0)),
    "turned mesh": (
        {"k": K.swapaxes(1, 2), "u": U, "k_x": TURNED[0], "k_y": TURNED[1]},
        PLANE,
        line(0.0),
    ),
}


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_coordinates_are_found_by_their_names(tmp_path: Path, name: str, suffix: str) -> None:
    arrays, *domains = LAYOUTS[name]
    runs = uqsonet.open_runs(saved(tmp_path / f"a{suffix}", **arrays), "k", "u")
    assert len(runs) == N and runs.name == "a"
    for field, expected in zip((runs.inputs["k"], runs.outputs["u"]), domains, strict=True):
        assert (field.domain == expected) if isinstance(expected, Grid) else field.domain.dim == 2
        points = expected.points() if isinstance(expected, Grid) else expected
        np.testing.assert_array_equal(field.domain.points().numpy(), points)
        values = K if field.domain.size == 35 else U
        np.testing.assert_array_equal(field.values, values.reshape(N, -1))


def test_groups_of_hdf5_and_units(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.h5", in__k=U, in__x=T, out__u=U + 1, x=T + 9)
    with h5py.File(file, "a") as opened:
        opened["in/k"].attrs["units"] = "m/s"
    for names in (("in/k", "out/u"), ("k", "u")):
        runs = uqsonet.open_runs(file, *names)
        assert runs.inputs["k"].domain == line(3.0)
        assert runs.outputs["u"].domain == line(12.0)
        assert runs.inputs["k"].units == "m/s"


def test_arguments_go_before_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", k=np.exp(U), u=U, v=U, x=T)
    given: dict[str, Any] = {"transform": "log", "units": {"u": "K"}, "points": {"u": T + 1}}
    runs = uqsonet.open_runs(file, "k", "u,v", **given)
    k, u, v = runs.inputs["k"], runs.outputs["u"], runs.outputs["v"]
    assert k.transform == "log" and u.transform is None and u.units == "K"
    assert k.domain == v.domain == line(3.0) and u.domain == line(4.0)
    everywhere = uqsonet.open_runs(file, "k", "u", points=T + 2)
    assert everywhere.inputs["k"].domain == line(5.0)
    fields = uqsonet.open_runs(saved(tmp_path / "b.npz", x=K, y=U), "x", "y")
    assert fields.inputs["x"].domain == BOX  # x and y may be the fields themselves


def test_booleans_integers_and_missing_values(tmp_path: Path) -> None:
    holes = U.copy()
    holes[3, 2] = np.nan
    file = saved(tmp_path / "a.npz", k=K > 0, u=holes, n=(9 * K).astype(int))
    with pytest.raises(DataError, match="run 3 at point 2"):
        uqsonet.open_runs(file, "k", "u")
    runs = uqsonet.open_runs(file, "k,n", "u", missing="drop")
    assert len(runs) == N - 1 and set(np.unique(runs.inputs["k"].values)) == {0, 1}
    assert len(uqsonet.open_runs(file, "k", "u", missing="fill")) == N


@pytest.fixture(scope="module")
def xarray() -> Any:
    pytest.importorskip("h5netcdf")
    return pytest.importorskip("xarray")


@pytest.mark.parametrize(("engine", "kind"), [("h5netcdf", None), ("scipy", "NETCDF3_64BIT")])
def test_netcdf_has_its_axes_in_the_order_of_a_sensors_columns(
    tmp_path: Path, xarray: Any, engine: str, kind: str | None
) -> None:
    fields = {
        "k": (("run", "y", "x"), K.swapaxes(1, 2), {"units": "m/s"}),
        "u": (("t", "run"), U.T),
    }
    days = "t", T, {"units": "days since 2000-01-01"}
    data = xarray.Dataset(fields, {"x": X, "y": Y, "t": days})
    data.to_netcdf(tmp_path / "a.nc", engine=engine, format=kind)
    runs = uqsonet.open_runs(tmp_path / "a.nc", "k", "u")
    found = runs.inputs["k"]
    assert found.domain == PLANE and found.units == "m/s"
    np.testing.assert_array_equal(found.values, K.reshape(N, -1))
    np.testing.assert_array_equal(runs.outputs["u"].values, U)
    assert runs.outputs["u"].domain == line(3.0)


def test_netcdf_points_with_auxiliary_coordinates_are_a_cloud(tmp_path: Path, xarray: Any) -> None:
    places = {"lon": ("node", CLOUD[:, 0]), "lat": ("node", CLOUD[:, 1])}
    holes = U.copy()
    holes[1, 0] = np.nan  # a fill value is missing
    data = xarray.Dataset({"k": (("case", "node"), holes), "u": (("case", "node"), U + 1)}, places)
    encoding = {"k": {"_FillValue": -999.0}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    runs = uqsonet.open_runs(tmp_path / "a.nc", "k", "u", missing="drop")
    assert len(runs) == N - 1
    np.testing.assert_array_equal(runs.outputs["u"].domain.points().numpy(), CLOUD)


def test_netcdf_runs_are_the_dimension_without_a_coordinate_or_as_told(
    tmp_path: Path, xarray: Any
) -> None:
    data = xarray.Dataset({"k": (("x", "weird"), U.T), "u": (("x", "weird"), U.T)}, {"x": T})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert len(uqsonet.open_runs(tmp_path / "a.nc", "k", "u")) == N
    data.assign_coords(weird=np.arange(N)).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"which dimension counts the runs\? .* k \(x, weird\)"):
        uqsonet.open_runs(tmp_path / "b.nc", "k", "u")
    assert len(uqsonet.open_runs(tmp_path / "b.nc", "k", "u", run="weird")) == N
    with pytest.raises(DataError, match="not every field has a dimension 'time'"):
        uqsonet.open_runs(tmp_path / "b.nc", "k", "u", run="time")
    data.drop_vars("x").to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    bare = uqsonet.open_runs(tmp_path / "c.nc", "k", "u", run="weird")
    assert bare.inputs["k"].domain == line(0.0)


def test_a_file_of_the_pipeline_says_who_reads_it(tmp_path: Path) -> None:
    ready = {name: [U.astype(np.float32)] for name in ("training/kappa", "training/u")}
    write_arrays(tmp_path / "toy.h5", "functions", {}, ready)
    with pytest.raises(DataError, match=r"a file of the pipeline; uqsonet_study\.storage"):
        uqsonet.open_runs(tmp_path / "toy.h5", "training/kappa", "training/u")


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        path.write_bytes(change(saved(path, k=K, u=U).read_bytes()))

    return write


def text(path: Path) -> None:
    path.write_text("k,u\n1,2\n")


def flipped(data: bytes) -> bytes:
    at = len(data) // 4
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


BAD: list[tuple[str, Callable[[Path], object] | None, str]] = [
    ("none.npz", None, "no such file"),
    ("folder.npz", Path.mkdir, "is a folder"),
    ("empty.h5", Path.touch, "empty file"),
    ("text.npz", text, "not a readable npz file"),
    ("text.h5", text, "not a readable HDF5 file"),
    ("text.nc", text, "not a readable NetCDF file"),
    ("short.npz", damaged(lambda data: data[:-900]), "not a readable npz file"),
    ("short.h5", damaged(lambda data: data[:-900]), "not a readable HDF5 file"),
    ("flipped.npz", damaged(flipped), "array .k. is damaged"),
    ("pickle.npz", lambda p: p.write_bytes(pickle.dumps({"k": K})), "not a readable npz file"),
    ("runs.npy", lambda path: np.save(path, K), "one array has no name: use numpy.savez"),
    ("runs.txt", text, r"files of runs end in \.npz"),
    ("runs.csv", text, r"no column says the run"),
]


@pytest.mark.parametrize(("name", "write", "words"), BAD, ids=[case[0] for case in BAD])
def test_a_bad_file_gets_one_message(tmp_path: Path, name: str, write: Any, words: str) -> None:
    if name.endswith(".nc"):
        pytest.importorskip("h5netcdf")
    path = tmp_path / name
    if write:
        write(path)
    with pytest.raises(DataError, match=words) as caught:
        uqsonet.open_runs(path, "k", "u")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_pickles_and_links_are_not_there_and_names_are_listed(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    trap = saved(tmp_path / "a.npz", k=np.array([Trap()] * N, dtype=object), u=U)
    saved(tmp_path / "other.h5", k=K)
    linked = saved(tmp_path / "a.h5", u=U)
    with h5py.File(linked, "a") as opened:
        opened["k"] = h5py.ExternalLink("other.h5", "k")
    for file in (trap, linked):
        with pytest.raises(DataError, match=r"no array 'k'; there are u \(24 x 9\)"):
            uqsonet.open_runs(file, "k", "u")
    assert not ran.exists()
    words = r"no array 'velocty'; .*velocity \(24 x 5 x 7\).*did you mean 'velocity'\?"
    for name in ("c.npz", "c.h5"):
        with pytest.raises(DataError, match=words):
            uqsonet.open_runs(saved(tmp_path / name, velocity=K, u=U), "velocty", "u")


@pytest.mark.parametrize("suffix", ["h5", "nc"])
def test_an_array_that_was_never_written_is_not_made(tmp_path: Path, suffix: str) -> None:
    if suffix == "nc":
        pytest.importorskip("h5netcdf")
    path = tmp_path / f"a.{suffix}"
    with h5py.File(path, "w") as file:
        file.create_dataset("k", (1000, 1 << 30), "f8", chunks=(1, 1 << 16))
        file.create_dataset("u", (1000, 5), "f8")
    with pytest.raises(DataError, match=r"says that it holds \d+ bytes, and has"):
        uqsonet.open_runs(path, "k", "u")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input": ""}, "give the name of a field"),
        ({"input": "k,k"}, "named twice"),
        ({"transform": {"q": "log"}}, "'q' is none of the fields k, u"),
        ({"transform": "sqrt"}, "there are identity, log and asinh"),
        ({"units": {"q": "m"}}, "'q' is none of the fields k, u"),
        ({"points": {"k": T}}, "do not fit"),
        ({"run": "time"}, "names a dimension of NetCDF"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    file = saved(tmp_path / "a.npz", k=K, u=U)
    with pytest.raises(DataError, match=words):
        uqsonet.open_runs(file, **{"input": "k", "output": "u", **given})
