"""What simulators write becomes runs by the lines of docs/simulators.md: points, order, times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import uqsonet
from uqsonet.errors import DataError

PAGE = Path(__file__).parents[2] / "docs/simulators.md"
N, SIDE = 12, 6
GRID = np.linspace(0, 1, SIDE)
PLANE = np.array([(x, y, 0.0) for y in GRID for x in GRID])
RNG = np.random.default_rng(0)
K = np.exp(RNG.standard_normal((N, SIDE * SIDE)))
U = K.cumsum(1)


def blocks() -> dict[str, str]:
    """Return the Python of each section of the page, by its heading."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    code = (re.findall(r"```python\n(.*?)```", text, flags=re.S) for text in parts[1::2])
    return {name: "".join(found) for name, found in zip(parts[::2], code, strict=True)}


def results(heading: str) -> dict[str, Any]:
    """Run the block below a heading; return its names."""
    names: dict[str, Any] = {"uqsonet": uqsonet}
    exec(blocks()[heading], names)
    return names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def rows(field: uqsonet.FieldRuns) -> np.ndarray:
    """Return values sorted along each run: they do not depend on the order of points."""
    return np.sort(np.asarray(field.values).reshape(N, -1), axis=1)


def test_a_folder_of_files(folder: Path) -> None:
    (folder / "folder").mkdir()
    for i in range(N):
        data = {"k": ("x", K[i, :SIDE]), "u": ("x", U[i, :SIDE])}
        xr.Dataset(data, coords={"x": GRID}).to_netcdf(f"folder/run{i:02d}.nc")
    runs = results("A folder of files")["runs"]
    np.testing.assert_allclose(runs.inputs["k"].values, K[:, :SIDE])


def test_openfoam_has_values_at_points_and_at_cells(folder: Path) -> None:
    meshio = pytest.importorskip("meshio", reason="meshio reads .vtu")
    (folder / "foam").mkdir()
    corner = [j * SIDE + i for j in range(SIDE - 1) for i in range(SIDE - 1)]
    cells = np.array([[c, c + 1, c + SIDE + 1, c + SIDE] for c in corner])
    for i in range(N):
        at_points = {"nut": K[i], "T": U[i]}
        at_cells = {"p": [K[i, :25]], "q": [U[i, :25]]}
        mesh = meshio.Mesh(PLANE, [("quad", cells)], point_data=at_points, cell_data=at_cells)
        mesh.write(f"foam/case{i:02d}_100.vtu")
    names = results("OpenFOAM")
    np.testing.assert_allclose(rows(names["runs"].inputs["nut"]), np.sort(K, 1))
    field = names["cells"].inputs["p"]
    np.testing.assert_allclose(rows(field), np.sort(K[:, :25], 1))
    np.testing.assert_allclose(
        np.asarray(field.domain.points())[:, :2], PLANE[cells].mean(1)[:, :2], atol=1e-6
    )


def test_wrf_has_no_suffix_and_coordinates_of_each_cell(folder: Path) -> None:
    (folder / "wrf").mkdir()
    lat, lon = np.meshgrid(np.linspace(40, 45, SIDE), np.linspace(5, 9, SIDE), indexing="ij")
    lon = lon + 0.1 * (lat - 40)
    dims = ("Time", "south_north", "west_east")
    for i in range(N):
        place = {
            "XLAT": (dims, lon[None] * 0 + lat, {"units": "degree_north"}),
            "XLONG": (dims, lon[None], {"units": "degree_east"}),
        }
        data = {
            "HGT": (dims, K[i].reshape(1, SIDE, SIDE), {"units": "m"}),
            "T2": (dims, U[i].reshape(1, SIDE, SIDE), {"units": "K"}),
        }
        xr.Dataset(data, coords=place).to_netcdf(f"wrf/wrfout_d01_member{i:02d}")
    runs = results("WRF")["runs"]
    points = np.asarray(runs.inputs["HGT"].domain.points())
    order = np.lexsort(points.T)
    true = np.c_[lon.ravel(), lat.ravel()]
    np.testing.assert_allclose(points[order], true[np.lexsort(true.T)], atol=1e-6)
    assert runs.outputs["T2"].units == "K"


def test_pdebench(folder: Path) -> None:
    with h5py.File("2D_DarcyFlow_beta1.0_Train.hdf5", "w") as file:
        file.update({"nu": K.reshape(N, SIDE, SIDE), "tensor": U.reshape(N, 1, SIDE, SIDE)})
        file.update({"x-coordinate": GRID, "y-coordinate": GRID})
    with h5py.File("1D_Burgers_Sols_Nu0.01.hdf5", "w") as file:
        file["tensor"] = U[:, : 4 * SIDE].reshape(N, 4, SIDE)
        file.update({"x-coordinate": GRID, "t-coordinate": np.linspace(0, 2, 5)})
    names = results("PDEBench")
    np.testing.assert_allclose(rows(names["darcy"].outputs["tensor"]), np.sort(U, 1))
    assert names["burgers"].outputs["u"].domain.shape == (4, SIDE)
    np.testing.assert_allclose(names["burgers"].outputs["u"].domain.upper, (1.5, 1.0))


def test_the_well_has_its_axes_in_a_group(folder: Path) -> None:
    x, y, t = np.linspace(0, 2, 5), np.linspace(0, 3, 4), np.linspace(0, 9, 3)
    density = RNG.standard_normal((N, 5, 4))
    pressure = RNG.standard_normal((N, 3, 5, 4))
    with h5py.File("well.hdf5", "w") as file:
        file.update({"dimensions/x": x, "dimensions/y": y, "dimensions/time": t})
        file.update({"t0_fields/density": density, "t0_fields/pressure": pressure})
        file["dimensions"].attrs["spatial_dims"] = ["x", "y"]
    runs = results("The Well")["runs"]
    assert runs.inputs["density"].domain.upper == (2.0, 3.0)
    field = runs.outputs["pressure"]
    assert sorted(field.domain.upper) == [2.0, 3.0, 9.0]
    point = {2.0: x[1], 3.0: y[2], 9.0: t[1]}
    at = [point[end] for end in field.domain.upper]
    near = np.abs(np.asarray(field.domain.points()) - at).sum(1).argmin()
    np.testing.assert_allclose(np.asarray(field.values)[:, near], pressure[:, 1, 1, 2])


def test_modflow(folder: Path) -> None:
    (folder / "mf6").mkdir()
    y, x = np.linspace(550, 50, SIDE), np.linspace(50, 550, SIDE)
    for i in range(N):
        data = {
            "npf_k": (("z", "y", "x"), K[i].reshape(1, SIDE, SIDE), {"units": "m/d"}),
            "head": (("time", "z", "y", "x"), U[i].reshape(1, 1, SIDE, SIDE), {"units": "m"}),
        }
        time = ("time", [365.0], {"units": "days since 2000-01-01"})
        place = {"time": time, "z": [1], "y": ("y", y, {"units": "m"}), "x": ("x", x)}
        xr.Dataset(data, coords=place).to_netcdf(f"mf6/run{i:02d}.nc")
    field = results("MODFLOW")["runs"].outputs["head"]
    points = np.asarray(field.domain.points())
    northwest = np.abs(points - [50, 550]).sum(1).argmin()
    np.testing.assert_allclose(np.asarray(field.values)[:, northwest], U[:, 0])


def test_comsol(folder: Path) -> None:
    table = np.empty((SIDE * SIDE, 2 + 2 * N))
    table[:, :2], table[:, 2::2], table[:, 3::2] = PLANE[:, :2], K.T, U.T
    heading = "% Model,plate.mph\n% X,Y,k (W/(m*K)) @ sample=1,T (K) @ sample=1\n"
    lines = "\n".join(",".join(map(repr, row)) for row in table.tolist())
    Path("comsol.csv").write_text(heading + lines + "\n")
    runs = results("COMSOL")["runs"]
    np.testing.assert_allclose(rows(runs.inputs["k"]), np.sort(K, 1))
    np.testing.assert_allclose(rows(runs.outputs["T"]), np.sort(U, 1))


def test_coordinates_beside_a_field_come_before_those_of_other_groups(folder: Path) -> None:
    """Where none are beside it, and several groups have some, which are meant has to be said."""
    with h5py.File("groups.h5", "w") as file:
        for group, end in (("coarse", 2.0), ("fine", 3.0)):
            file[f"{group}/x"] = np.linspace(0, end, SIDE)
            file.update({f"{group}/k": K[:, :SIDE], f"{group}/u": U[:, :SIDE]})
        file.update({"k": K[:, :SIDE], "u": U[:, :SIDE]})
    runs = uqsonet.open_runs("groups.h5", "fine/k", "fine/u")
    assert runs.inputs["k"].domain.upper == (3.0,)
    with pytest.raises(DataError, match=r"several groups, coarse/, fine/; say by points="):
        uqsonet.open_runs("groups.h5", "k", "u")
