"""Meshes: files of meshio in, .vtu out, nodes that repeat, and no influence of refinement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import uqsonet
from tests.own.conftest import quiet
from uqsonet.cli import app
from uqsonet.errors import DataError
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import JointDomain, point_weights
from uqsonet.operator.closed_form import targets
from uqsonet.operator.regression import Regression
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.functions import Functions
from uqsonet.runs.runs import rows_of
from uqsonet.show import terminal

N = 40


def smooth(points: np.ndarray, count: int = N) -> np.ndarray:
    """Return random functions (count, n) of points (n, d) of the unit square or cube."""
    rng = np.random.default_rng(0)
    shapes = [
        np.cos(np.pi * (j * points[:, 0] + k * points[:, 1])) for j in range(3) for k in (0, 1)
    ]
    return rng.standard_normal((count, 6)) @ np.array(shapes)


def nodes(size: int, refined: bool) -> np.ndarray:
    """Return points of the unit square with its corners; half of them in one of these corners."""
    points = np.random.default_rng(1).random((size, 2))
    if refined:
        points[: size // 2] *= 0.2
    return np.concatenate([points, [[0, 0], [0, 1], [1, 0], [1, 1]]])


@pytest.mark.long
def test_modes_and_scores_do_not_follow_the_refinement_of_a_mesh() -> None:
    places = np.random.default_rng(2).random((30, 2))
    leading, unweighted = [], []
    for refined in (False, True):
        points = nodes(900, refined)
        k = smooth(points)
        model = uqsonet.fit(uqsonet.Runs({"k": (k, points)}, {"u": (k**2, points)}),
                            sensors=[4], bar=False)  # fmt: skip
        bases = model.operator.bases  # type: ignore[attr-defined]
        _, rows = bases.input_basis(torch.from_numpy(places))
        leading.append((rows[:, :3] ** 2) * model.inputs[0].scale ** 2)
        own = torch.from_numpy(k - k.mean(0))
        vectors = torch.linalg.svd(own, full_matrices=False)[2][:3]
        values = vectors.T * len(points) ** 0.5
        here = PointCloud.of(points).interpolate(values, torch.from_numpy(places))
        unweighted.append(here**2)
        identity = bases.to_coefficients.T @ bases.input_factor.double()
        torch.testing.assert_close(identity, torch.eye(len(identity)).double(), rtol=0, atol=1e-5)

    def off(pair: list[torch.Tensor]) -> float:
        return float((pair[0].mean(0) - pair[1].mean(0)).norm() / pair[0].mean(0).norm())

    assert off(leading) < 0.02 and off(unweighted) > 0.15


def test_weights_are_one_on_average_and_none_for_grids() -> None:
    cloud, grid = PointCloud.of(nodes(200, True)), Grid((0.0, 0.0), (1.0, 1.0), (4, 5))
    weights = point_weights(cloud)
    assert weights is not None and float(weights.mean()) == pytest.approx(1)
    assert float(weights[:100].mean()) < 0.2 < 1.2 < float(weights[100:].mean())
    assert point_weights(grid) is None and point_weights(JointDomain((grid, grid))) is None
    both = point_weights(JointDomain((grid, cloud)))
    assert both is not None and torch.equal(both[20:], weights) and bool((both[:20] == 1).all())


def test_answers_by_pairs_have_their_fields_back_on_a_refined_mesh() -> None:
    """Modes are orthogonal in weighted sums: coefficients of outputs have to be weighted, too."""
    points = nodes(200, True)
    k = smooth(points, 60)
    runs = uqsonet.Runs({"k": (k[:50], points)}, {"u": (2 * k[:50], points)})
    model = uqsonet.fit(runs, sensors=[8], law="gaussian", bar=False)
    inputs, outputs = (
        rows_of(one, fields).whole()
        for one, fields in ((runs.inputs, model.inputs), (runs.outputs, model.outputs))
    )
    sensors = points[::12], k[55, ::12]
    functions = Functions(model.fields, "training", inputs, outputs)
    pairs = model.with_operator(Regression(model.bases, **targets(model.bases, functions)))
    error = np.abs(quiet(pairs, *sensors).mean() - 2 * k[55]).max()
    assert error < 0.02 * np.abs(k).max()
    operator = model.operator
    operator.use_nearest(operator.bases.output_coefficients(outputs), outputs, 1)
    drawn = quiet(model, *sensors)
    np.testing.assert_allclose(drawn.mean(), drawn.sample(400).mean(0), atol=0.05 * np.abs(k).max())


def test_nodes_that_repeat_become_one_and_come_back_as_they_were() -> None:
    points = nodes(60, False)
    twice = np.concatenate([points, points[[3, 7]]])
    k = smooth(twice)
    k[:, 5] = np.nan  # no value in any run
    k[:, 64] += 0.5  # repeats node 3
    with pytest.raises(DataError, match="points 3 and 64 are the same"):
        FieldRuns.of(k, twice)
    import xarray as xr

    data = xr.DataArray(k, dims=("run", "node"), coords={
        "x": ("node", twice[:, 0]), "y": ("node", twice[:, 1])})  # fmt: skip
    field = FieldRuns.of(data, merge=True)
    assert field.domain.size == 63 and field.layout is not None
    np.testing.assert_allclose(field.values[:, 3], k[:, 3] + 0.25)
    back = field.layout.in_file_order(field.values)
    again = type(field.layout).from_dict(field.layout.as_dict(), 63).in_file_order(field.values)
    np.testing.assert_array_equal(back, again)
    assert back.shape == k.shape and np.isnan(back[:, 5]).all()
    np.testing.assert_array_equal(back[:, 3], back[:, 64])
    np.testing.assert_array_equal(back[:, 65], k[:, 7])


def test_answers_as_vtu(tmp_path: Path) -> None:
    x, y = np.linspace(0, 1, 6), np.linspace(0, 2, 5)
    mesh = np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)
    k = smooth(mesh).reshape(N, 6, 5)
    u = np.where(np.add.outer(x, y) > 2.6, np.nan, 2 * k)  # no value in one corner
    data = uqsonet.Runs({"k": (k, (x, y))}, {"u<1>": (u, (x, y))})
    answer = uqsonet.fit(data, sensors=[3], bar=False).condition(mesh[[0, 9]], [0.5, -0.1])
    from uqsonet.show.export import answer_arrays, write_answer

    meshio = pytest.importorskip("meshio")
    write_answer(answer, tmp_path / "a.vtu", answer_arrays(answer, samples=2), 0.9)
    found = meshio.read(tmp_path / "a.vtu")
    present = np.isfinite(u[0]).ravel()
    np.testing.assert_allclose(found.points[:, :2], mesh[present])
    np.testing.assert_array_equal(found.point_data["u<1>_mean"], answer.mean())
    np.testing.assert_array_equal(found.point_data["u<1>_samples_2"], answer.sample(2)[1])
    (block,) = found.cells
    corners = mesh[present][block.data]
    x0, y0 = corners[..., 0], corners[..., 1]
    shoelace = 0.5 * (x0 * np.roll(y0, -1, 1) - y0 * np.roll(x0, -1, 1)).sum(1)
    np.testing.assert_allclose(shoelace, 0.2 * 0.5)
    whole = np.isfinite(u[0])
    count = (whole[1:, 1:] & whole[:-1, 1:] & whole[1:, :-1] & whole[:-1, :-1]).sum()
    assert block.type == "quad" and len(block.data) == count
    few = answer_arrays(answer, points=mesh[:3])
    write_answer(answer, tmp_path / "b.vtu", few, 0.9, mesh[:3])
    assert meshio.read(tmp_path / "b.vtu").cells[0].type == "vertex"


def test_a_mesh_is_drawn_by_its_own_cells(tmp_path: Path) -> None:
    meshio, _ = pytest.importorskip("meshio"), pytest.importorskip("matplotlib")
    points = np.array([[0, 0], [2, 0.1], [1.9, 1], [1.1, 0.9], [1, 2], [0.2, 1.8], [0.1, 1.2]])
    cells = [("quad", np.array([[0, 1, 2, 3], [6, 3, 4, 5]])), ("triangle", np.array([[0, 3, 6]]))]
    for number, row in enumerate(smooth(points, 9)):
        mesh = meshio.Mesh(np.insert(points, 2, 0.0, axis=1), cells, point_data={"k": row})
        mesh.write(tmp_path / f"run_{number}.vtu")
    runs = uqsonet.open_runs(tmp_path / "run_*.vtu", "k", "k")
    drawn = runs.plot().axes[0].collections[0]._triangulation
    corners = np.stack([drawn.x, drawn.y], -1)[drawn.triangles]
    area = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / 2
    quads = [points[[0, 1, 2, 3]], points[[6, 3, 4, 5]], points[[0, 3, 6]]]
    x, y = zip(*(each.T for each in quads), strict=True)
    exact = [abs(a @ np.roll(b, -1) - b @ np.roll(a, -1)) / 2 for a, b in zip(x, y, strict=True)]
    assert len(area) == 5 and area.sum() == pytest.approx(sum(exact))


@pytest.mark.parametrize("suffix", ["vtu", "vtk", "msh"])
def test_meshes_of_simulators_are_runs(suffix: str, tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    points = nodes(50, True)
    flat = np.insert(points, 1, 7.0, axis=1)  # a mesh in the plane of x and z
    k = smooth(points, 25)
    triangles = [("triangle", np.array([[0, 1, 2], [3, 4, 5]]))]
    for number, row in enumerate(k):
        values = {"k": row, "v": np.stack([2 * row, row, 0 * row], -1)}
        mesh = meshio.Mesh(flat, triangles, point_data=values)
        path = tmp_path / f"run_{number:02d}.{suffix}"
        mesh.write(path, **({"file_format": "gmsh"} if suffix == "msh" else {}))
    found = uqsonet.open_runs(tmp_path / f"run_*.{suffix}", "k", "v_x")
    np.testing.assert_allclose(found.inputs["k"].values, k)
    np.testing.assert_allclose(found.outputs["v_x"].values, 2 * k)
    np.testing.assert_allclose(found.inputs["k"].domain.points().numpy(), points)
    assert "x 0 to 1, z 0 to 1" in str(found.describe())
    first = tmp_path / f"run_00.{suffix}"
    with pytest.raises(DataError, match=r"no array 'w'; there are k \(54\), v_x"):
        uqsonet.open_runs([first], "w", "k")
    first.write_bytes(first.read_bytes()[:300])
    with pytest.raises(DataError, match=r"not a readable mesh|holds more"):
        uqsonet.open_runs(tmp_path / f"run_*.{suffix}", "k", "v_x")


def holed_plate(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes (n, 3) and triangles of a tilted plate with a hole; two nodes repeat."""
    line = np.linspace(0, 1, side)
    flat = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    corner = np.arange(side * side).reshape(side, side)
    a, b, c, d = (
        corner[i : side - 1 + i, j : side - 1 + j].ravel() for i in (0, 1) for j in (0, 1)
    )
    triangles = np.concatenate([np.stack([a, c, d], -1), np.stack([a, d, b], -1)])
    away = np.linalg.norm(flat - 0.5, axis=1) > 0.2
    triangles = triangles[away[triangles].all(1)]
    used, renamed = np.unique(triangles, return_inverse=True)
    points = np.concatenate([flat[used], flat[used[[5, 9]]]])
    triangles = renamed.reshape(-1, 3)
    triangles[-1] = [len(used), len(used) + 1, triangles[-1, 2]]
    return np.insert(points, 1, 7.0, axis=1), triangles


@pytest.mark.parametrize("at", ["nodes", "cells"])
def test_from_meshes_to_a_mesh_of_answers_by_the_command_line_alone(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meshio = pytest.importorskip("meshio")
    monkeypatch.setattr(terminal.LOG, "handlers", [])  # commands log to what the runner closes
    points, triangles = holed_plate(11)
    here = points[:, [0, 2]] if at == "nodes" else points[triangles][..., [0, 2]].mean(1)
    k, u = smooth(here), smooth(here) ** 2
    k[:, 4] = np.nan  # a load on a boundary: no value there in any run
    cells = [("triangle", triangles[:40]), ("triangle", triangles[40:])]
    for number, pair in enumerate(zip(k, u, strict=True)):
        data = dict(zip("ku", pair, strict=True))
        data = {n: [v[:40], v[40:]] for n, v in data.items()} if at == "cells" else data
        more = {"cell_data" if at == "cells" else "point_data": data}
        meshio.Mesh(points, cells, **more).write(tmp_path / f"run_{number:02d}.vtu")
    rows = [f"{here[i, 0]},{here[i, 1]},{k[0, i]}" for i in (20, 60)]
    (tmp_path / "s.csv").write_text("\n".join(["x,z,value", *rows]))
    model, files = tmp_path / "m.safetensors", tmp_path / "run_*.vtu"
    words = ["--input", "k", "--output", "u", "--merge"]
    for line in (
        ["describe", files, *words, "--plot", tmp_path / "runs.png"],
        ["fit", files, *words, "--sensors", "2", "-o", model],
        ["predict", model, tmp_path / "s.csv", "-o", tmp_path / "u.vtu", "--samples", "1"],
        ["predict", model, tmp_path / "s.csv", "-o", tmp_path / "k.vtu", "--field", "k"],
    ):
        done = CliRunner().invoke(app, list(map(str, line)))
        assert done.exit_code == 0, done.output
    assert (tmp_path / "runs.png").stat().st_size > 10_000
    done = CliRunner().invoke(app, ["describe", str(files), "--plot", str(tmp_path / "a.png")])
    assert done.exit_code == 1 and "--plot: name the fields by --input" in done.output
    answer = uqsonet.load(model).condition(tmp_path / "s.csv")
    for name in "uk":
        found = meshio.read(tmp_path / f"{name}.vtu")
        np.testing.assert_array_equal(found.points, points)
        np.testing.assert_array_equal(np.concatenate([c.data for c in found.cells]), triangles)
        data = found.point_data if at == "nodes" else {n: d[0] for n, d in found.cell_data.items()}
        one = answer[name].to_xarray()
        np.testing.assert_array_equal(data[f"{name}_mean"], one[f"{name}_mean"])
        np.testing.assert_array_equal(data[f"{name}_upper"], one[f"{name}_upper"])
        assert np.flatnonzero(np.isnan(data[f"{name}_mean"])).tolist() == [4] * (name == "k")
    if at == "nodes":
        np.testing.assert_array_equal(data["k_mean"][[5, 9]], data["k_mean"][-2:])


def test_a_mesh_that_says_it_holds_more_than_its_file_can_is_refused(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    points = np.insert(nodes(40, False), 2, 0.0, axis=1)
    mesh = meshio.Mesh(points, [("vertex", np.arange(44)[:, None])], point_data={"k": points[:, 0]})
    mesh.write(path := tmp_path / "a.vtk", file_format="vtk", binary=False)
    path.write_text(path.read_text().replace("POINTS 44", "POINTS 100000000"))
    with pytest.raises(DataError, match=r"a\.vtk: says that it holds more than its \d+ bytes can"):
        uqsonet.open_runs([path], "k", "k")


def test_points_of_runs_in_a_table_go_by_name() -> None:
    points = np.random.default_rng(3).random((30, 2))
    table, values = pd.DataFrame(points, columns=["x", "y"]), smooth(points)
    found = FieldRuns.of(values, table[["y", "x"]]).domain.points().numpy()
    np.testing.assert_array_equal(found, points)
    with pytest.raises(DataError, match="points: columns lon, lat; a table of points has x, y"):
        FieldRuns.of(values, table.set_axis(["lon", "lat"], axis=1))
