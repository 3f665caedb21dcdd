"""From files to runs: what each format holds, where its points are, what bad files are told."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import uqsonet
from uqsonet.domains import PointCloud
from uqsonet.errors import DataError
from uqsonet.fields import Grid
from uqsonet.storage.arrays import write_arrays

ROOT = Path(__file__).parents[1]
N = 24
GENERATOR = np.random.default_rng(5)
K, U = GENERATOR.normal(size=(N, 5, 7)), GENERATOR.normal(size=(N, 9))
X, Y, T = np.linspace(0, 2, 5), np.linspace(-1, 0, 7), np.linspace(3, 4, 9)
CLOUD = GENERATOR.random((9, 2))


def saved(path: Path, **arrays: np.ndarray) -> Path:
    """Write arrays to npz or HDF5; two underscores stand for a group."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return path
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = array
    return path


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_axes_and_points_are_found_by_their_names(tmp_path: Path, suffix: str) -> None:
    file = saved(tmp_path / f"a{suffix}", k=K, u=U, k_x=X, k_y=Y, u_points=CLOUD)
    runs = uqsonet.open_runs(file, "k", "u")
    assert len(runs) == N and runs.name == "a"
    grid, cloud = runs.inputs["k"].domain, runs.outputs["u"].domain
    assert grid == Grid((0.0, -1.0), (2.0, 0.0), (5, 7)) and isinstance(cloud, PointCloud)
    np.testing.assert_array_equal(cloud.points().numpy(), CLOUD)
    np.testing.assert_array_equal(runs.inputs["k"].values, K.reshape(N, -1))
    np.testing.assert_array_equal(runs.outputs["u"].values, U)


def test_own_coordinates_go_before_common_ones_and_none_are_the_unit_box(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", k=U, u=U + 1, v=U - 1, points=T, v_x=T + 1)
    runs = uqsonet.open_runs(file, "k", "u,v")
    assert runs.inputs["k"].domain == runs.outputs["u"].domain == Grid((3.0,), (4.0,), (9,))
    assert runs.outputs["v"].domain == Grid((4.0,), (5.0,), (9,))
    bare = uqsonet.open_runs(saved(tmp_path / "b.npz", k=K, u=U), "k", "u")
    assert bare.inputs["k"].domain == Grid((0.0, 0.0), (1.0, 1.0), (5, 7))


def test_x_and_y_may_be_the_fields_themselves(tmp_path: Path) -> None:
    runs = uqsonet.open_runs(saved(tmp_path / "a.npz", x=K, y=U), "x", "y")
    assert runs.inputs["x"].domain.shape == (5, 7) and runs.outputs["y"].domain.shape == (9,)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_coordinates_of_meshgrid_make_a_grid(tmp_path: Path, indexing: Any) -> None:
    mesh = np.meshgrid(X, Y, indexing=indexing)
    values = K if indexing == "ij" else K.swapaxes(1, 2)
    file = saved(tmp_path / "a.npz", k=values, u=U, k_x=mesh[0], k_y=mesh[1])
    found = uqsonet.open_runs(file, "k", "u").inputs["k"]
    assert found.domain == Grid((0.0, -1.0), (2.0, 0.0), (5, 7))
    np.testing.assert_array_equal(found.values, K.reshape(N, -1))


def test_coordinates_point_by_point_make_a_cloud(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", k=U, u=U + 1, x=CLOUD[:, 0], y=CLOUD[:, 1])
    domain = uqsonet.open_runs(file, "k", "u").inputs["k"].domain
    np.testing.assert_array_equal(domain.points().numpy(), CLOUD)


def test_groups_of_hdf5_and_units(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.h5", in__k=U, in__x=T, out__u=U + 1, x=T + 9)
    with h5py.File(file, "a") as opened:
        opened["in/k"].attrs["units"] = "m/s"
    for names in (("in/k", "out/u"), ("k", "u")):
        runs = uqsonet.open_runs(file, *names)
        assert runs.inputs["k"].domain == Grid((3.0,), (4.0,), (9,))
        assert runs.outputs["u"].domain == Grid((12.0,), (13.0,), (9,))
        assert runs.inputs["k"].units == "m/s"


def test_arguments_go_before_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", k=np.exp(U), u=U, x=T)
    given: dict[str, Any] = {"transform": "log", "units": {"u": "K"}, "points": {"u": T + 1}}
    runs = uqsonet.open_runs(file, "k", "u", **given)
    assert runs.inputs["k"].transform == "log" and runs.outputs["u"].transform is None
    assert runs.outputs["u"].units == "K"
    assert runs.outputs["u"].domain == Grid((4.0,), (5.0,), (9,))
    assert runs.inputs["k"].domain == Grid((3.0,), (4.0,), (9,))
    everywhere = uqsonet.open_runs(file, "k", "u", points=T + 2)
    assert everywhere.inputs["k"].domain == Grid((5.0,), (6.0,), (9,))


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


def test_netcdf_has_its_axes_in_the_order_of_a_sensors_columns(tmp_path: Path, xarray: Any) -> None:
    fields = {
        "k": (("run", "y", "x"), K.swapaxes(1, 2), {"units": "m/s"}),
        "u": (("t", "run"), U.T),
    }
    data = xarray.Dataset(
        fields, {"x": X, "y": Y, "t": ("t", T, {"units": "days since 2000-01-01"})}
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    runs = uqsonet.open_runs(tmp_path / "a.nc", "k", "u")
    found = runs.inputs["k"]
    assert found.domain == Grid((0.0, -1.0), (2.0, 0.0), (5, 7)) and found.units == "m/s"
    np.testing.assert_array_equal(found.values, K.reshape(N, -1))
    np.testing.assert_array_equal(runs.outputs["u"].values, U)
    assert runs.outputs["u"].domain == Grid((3.0,), (4.0,), (9,))


def test_netcdf_points_with_auxiliary_coordinates_are_a_cloud(tmp_path: Path, xarray: Any) -> None:
    places = {"lon": ("node", CLOUD[:, 0]), "lat": ("node", CLOUD[:, 1])}
    data = xarray.Dataset({"k": (("case", "node"), U), "u": (("case", "node"), U + 1)}, places)
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    domain = uqsonet.open_runs(tmp_path / "a.nc", "k", "u").outputs["u"].domain
    np.testing.assert_array_equal(domain.points().numpy(), CLOUD)


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


def test_netcdf_fill_values_are_missing(tmp_path: Path, xarray: Any) -> None:
    holes = U.copy()
    holes[1, 0] = np.nan
    data = xarray.Dataset({"k": (("run", "x"), holes), "u": (("run", "x"), U)})
    encoding = {"k": {"_FillValue": -999.0}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    assert len(uqsonet.open_runs(tmp_path / "a.nc", "k", "u", missing="drop")) == N - 1


def test_netcdf_of_the_classic_format(tmp_path: Path, xarray: Any) -> None:
    pytest.importorskip("scipy")
    data = xarray.Dataset({"k": (("run", "x"), U), "u": (("run", "x"), U + 1)}, {"x": T})
    data.to_netcdf(tmp_path / "a.nc", engine="scipy", format="NETCDF3_64BIT")
    runs = uqsonet.open_runs(tmp_path / "a.nc", "k", "u")
    np.testing.assert_array_equal(runs.inputs["k"].values, U)


def own_file(path: Path) -> Path:
    """Write a file of this project with 24 training pairs and 4 test pairs."""
    from uqsonet.fields import Field, Transform
    from uqsonet.operator_fields import OperatorFields

    grid = Grid((0.0,), (1.0,), (9,))
    fields = OperatorFields("toy", Field("k", grid, Transform("log")), Field("u", grid), 2)
    arrays = {"training/kappa": np.exp(U), "training/u": U[:, ::2]}
    arrays |= {"test/kappa": np.exp(U[:4]), "test/u": U[:4]}
    ready = {name: [array.astype(np.float32)] for name, array in arrays.items()}
    write_arrays(path, "functions", {"fields": fields.as_dict()}, ready)
    return path


def test_a_file_of_this_project_has_its_fields_by_symbol(tmp_path: Path) -> None:
    file = own_file(tmp_path / "toy.h5")
    runs = uqsonet.open_runs(file, "k", "u")
    assert len(runs) == N and runs.outputs["u"].domain == Grid((0.0,), (1.0,), (5,))
    test = uqsonet.open_runs(file, "test/k", "test/u")
    assert len(test) == 4 and test.outputs["u"].domain == Grid((0.0,), (1.0,), (9,))
    np.testing.assert_array_equal(test.outputs["u"].values, U[:4].astype(np.float32))
    with pytest.raises(DataError, match=r"no array 'kappa'; there are k \(24 x 9\), u"):
        uqsonet.open_runs(file, "kappa", "u")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_a_misspelt_name_lists_what_is_there_and_the_nearest(tmp_path: Path, suffix: str) -> None:
    file = saved(tmp_path / f"a{suffix}", velocity=K, u=U)
    with pytest.raises(DataError) as caught:
        uqsonet.open_runs(file, "velocty", "u")
    text = str(caught.value)
    assert "no array 'velocty'" in text and "velocity (24 x 5 x 7)" in text and "u (24 x 9)" in text
    assert "did you mean 'velocity'?" in text


def truncated(path: Path) -> None:
    saved(path, k=K, u=U)
    path.write_bytes(path.read_bytes()[:-900])


def flipped(path: Path) -> None:
    saved(path, k=K, u=U)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(bytes(data))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"k": K}))


BAD: list[tuple[str, Callable[[Path], object] | None, str]] = [
    ("none.npz", None, "no such file"),
    ("folder.npz", lambda path: path.mkdir(), "is a folder"),
    ("empty.h5", lambda path: path.touch(), "empty file"),
    ("text.npz", lambda path: path.write_text("k,u\n1,2\n"), "not a readable npz file"),
    ("text.h5", lambda path: path.write_text("k,u\n1,2\n"), "not a readable HDF5 file"),
    ("text.nc", lambda path: path.write_text("k,u\n1,2\n"), "not a readable NetCDF file"),
    ("short.npz", truncated, "not a readable npz file"),
    ("short.h5", truncated, "not a readable HDF5 file"),
    ("flipped.npz", flipped, "not a readable npz file"),
    ("pickle.npz", pickled, "not a readable npz file"),
    ("runs.npy", lambda path: np.save(path, K), "one array has no name: use numpy.savez"),
    ("runs.csv", lambda path: path.write_text("x,y\n"), r"files of runs end in \.npz"),
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


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    np.savez(tmp_path / "a.npz", k=np.array([Trap()] * N, dtype=object), u=U)
    with pytest.raises(DataError, match=r"no array 'k'; there are u \(24 x 9\)"):
        uqsonet.open_runs(tmp_path / "a.npz", "k", "u")
    assert not ran.exists()


@pytest.mark.parametrize("suffix", ["h5", "nc"])
def test_an_array_that_was_never_written_is_not_made(tmp_path: Path, suffix: str) -> None:
    if suffix == "nc":
        pytest.importorskip("h5netcdf")
    path = tmp_path / f"a.{suffix}"
    with h5py.File(path, "w") as file:
        file.create_dataset("k", (1000, 1 << 30), "f8", chunks=(1, 1 << 16))
        file.create_dataset("u", (1000, 5), "f8")
    with pytest.raises(DataError, match=r"says it has \d+ bytes, which were never written"):
        uqsonet.open_runs(path, "k", "u")


def test_links_to_other_files_are_not_followed(tmp_path: Path) -> None:
    saved(tmp_path / "other.h5", k=K)
    file = saved(tmp_path / "a.h5", u=U)
    with h5py.File(file, "a") as opened:
        opened["k"] = h5py.ExternalLink("other.h5", "k")
    with pytest.raises(DataError, match=r"no array 'k'; there are u"):
        uqsonet.open_runs(file, "k", "u")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input": ""}, "give the name of a field"),
        ({"input": "k,k"}, "named twice"),
        ({"input": "u"}, "an input and an output"),
        ({"transform": {"q": "log"}}, "'q' is none of the fields k, u"),
        ({"transform": "sqrt"}, "there are identity and log"),
        ({"units": {"q": "m"}}, "'q' is none of the fields k, u"),
        ({"points": {"k": T}}, "do not fit"),
        ({"run": "time"}, "names a dimension of NetCDF"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    file = saved(tmp_path / "a.npz", k=K, u=U)
    with pytest.raises(DataError, match=words):
        uqsonet.open_runs(file, **{"input": "k", "output": "u", **given})


def test_the_example_of_the_docs_has_the_points_that_its_source_states() -> None:
    folder = ROOT / "docs/own-data"
    coarse = uqsonet.open_runs(folder / "darcy_test_16.npz", "a", "p")
    fine = uqsonet.open_runs(folder / "darcy_test_32.npz", "a", "p")
    assert len(coarse) == len(fine) == 50
    assert coarse.outputs["p"].domain == Grid((0.0, 0.0), (15 / 16, 15 / 16), (16, 16))
    # Both stand at k/16 and k/32: every second point of the fine grid is one of the coarse.
    for field in ("inputs", "outputs"):
        (a,), (b,) = (getattr(runs, field).values() for runs in (coarse, fine))
        every_second = b.values.reshape(50, 32, 32)[:, ::2, ::2]
        np.testing.assert_array_equal(a.values.reshape(50, 16, 16), every_second)
    assert len(uqsonet.open_runs(folder / "darcy_16.npz", "a", "p")) == 1000
