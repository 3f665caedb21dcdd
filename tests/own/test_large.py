"""Runs larger than memory should hold: values stay on disk, and nothing else changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import xarray as xr

import uqsonet
from uqsonet.errors import DataError
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet.fields.stacked import JointDomain
from uqsonet.files import require_writable
from uqsonet.gauss import blocks, principal_components
from uqsonet.runs import field_runs, formats, stored
from uqsonet.show import terminal

X = np.linspace(0, 1, 12)
N = 90


@pytest.fixture
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat some kilobytes as gigabytes."""
    for module in (formats, field_runs, stored):
        monkeypatch.setattr(module, "LARGE", 1 << 10)
    monkeypatch.setattr(stored, "BLOCK_BYTES", 1 << 13)
    monkeypatch.setattr(blocks, "MAX_KEPT_MATRIX", 1 << 10)
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 1 << 11)
    monkeypatch.setattr(principal_components, "EXACT_POINTS", 100)


def smooth(seed: int = 0, count: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Return random functions of two coordinates (count, 12, 12), and their running integrals."""
    rng = np.random.default_rng(seed)
    shapes = np.array([np.outer(np.cos(np.pi * j * X), np.cos(np.pi * k * X))
                       for j in range(4) for k in range(4)])  # fmt: skip
    size = 1 / (1.0 + np.arange(16))
    k = np.tensordot(rng.standard_normal((count, 16)) * size, shapes, 1).astype(np.float32)
    return k, k.cumsum(2) / 12


def npz(path: Path, k: np.ndarray, u: np.ndarray) -> None:
    np.savez(path, k=k, u=np.asfortranarray(u), x=X, y=X)


def packed_npz(path: Path, k: np.ndarray, u: np.ndarray) -> None:
    np.savez_compressed(path, k=k, u=np.asfortranarray(u), x=X, y=X)


def hdf5(path: Path, k: np.ndarray, u: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["k"], file["x"], file["y"] = k, X, X
        file.create_dataset("u", data=u, chunks=(7, 5, 12), compression="gzip")


def netcdf(path: Path, k: np.ndarray, u: np.ndarray) -> None:
    """Write fields with falling y, in another order than x, y, and runs last."""
    turned = {n: (("y", "x", "run"), v.transpose(2, 1, 0)[::-1]) for n, v in (("k", k), ("u", u))}
    xr.Dataset(turned, {"x": X, "y": X[::-1]}).to_netcdf(path, engine="h5netcdf")


def classic(path: Path, k: np.ndarray, u: np.ndarray) -> None:
    dims = ("run", "x", "y")
    data = xr.Dataset({"k": (dims, k), "u": (dims, u)}, {"x": X, "y": X})
    data.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(npz, "npz"), (packed_npz, "npz"), (hdf5, "h5"), (netcdf, "nc"), (classic, "nc")],
)
@pytest.mark.usefixtures("all_is_large")
def test_values_stay_on_disk_and_are_the_same(
    write: Callable[..., None], suffix: str, tmp_path: Path
) -> None:
    k, u = smooth()
    write(tmp_path / f"runs.{suffix}", k, u)
    found = uqsonet.open_runs(tmp_path / f"runs.{suffix}", "k", "u")
    for field, values in ((found.inputs["k"], k), (found.outputs["u"], u)):
        np.testing.assert_array_equal(field.values, values.reshape(N, -1))
        root: Any = field.values
        while isinstance(root, np.ndarray) and not isinstance(root, np.memmap):
            root = root.base
        assert isinstance(root, np.memmap)
        assert field.domain == Grid((0.0, 0.0), (1.0, 1.0), (12, 12))
    some = found[np.arange(0, N, 2)]
    np.testing.assert_array_equal(some.inputs["k"].values, k[::2].reshape(N // 2, -1))


@pytest.mark.usefixtures("all_is_large")
@pytest.mark.parametrize("missing", ["drop", "fill"])
def test_missing_values_of_large_runs(missing: Any) -> None:
    k, u = smooth()
    k[:, :3, :3] = np.nan  # in every run
    k[5, 6, 6] = k[9, 7, 7] = np.nan
    found = field_runs.FieldRuns.of(k, missing=missing)
    assert found.domain.size == found.values.shape[1] == 144 - 9 and found.absent == 9
    if missing == "drop":
        assert found.kept is not None and np.flatnonzero(~found.kept).tolist() == [5, 9]
    else:
        assert np.isfinite(found.values).all() and found.kept is None
    assert len(uqsonet.Runs({"k": found}, {"u": u})) == (N - 2 if missing == "drop" else N)


def test_a_fit_of_large_runs_is_that_of_small_ones(request: pytest.FixtureRequest) -> None:
    (k, u), (k_test, u_test) = smooth(), smooth(1, 30)
    rows, texts = [], []
    for large in (False, True):
        if large:
            request.getfixturevalue("all_is_large")
        data = uqsonet.Runs({"k": np.exp(k)}, {"u": u})
        texts.append(str(data.describe()))
        model = uqsonet.fit(data, sensors=[6], bar=False)
        assert model.card["recipe"]["input_modes"] >= 8
        test = uqsonet.Runs({"k": np.exp(k_test)}, {"u": u_test})
        rows.append(model.validate(test, sensors=[6]).rows())
    assert texts[0] == texts[1]
    for small, large_row in zip(*rows, strict=True):
        assert large_row["method"] == small["method"]
        for name, share in (("err_mean", 0.005), ("crps", 0.02), ("energy", 0.03)):
            assert large_row[name] == pytest.approx(small[name], rel=share), name


def test_modes_of_few_long_functions_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(principal_components, "EXACT_POINTS", 100)
    monkeypatch.setattr(blocks, "BLOCK_VALUES", 5000)
    matrix = torch.from_numpy(smooth(3)[0].reshape(N, -1)) + 7
    centred = matrix.double() - matrix.double().mean(0)
    _, singular, right = torch.linalg.svd(centred, full_matrices=False)
    found = principal_components.empirical_modes(blocks.RowBlocks.of(matrix), 20, "modes")
    std = singular / (N - 1) ** 0.5
    torch.testing.assert_close(found.std[:16], std[:16], rtol=1e-10, atol=0)
    torch.testing.assert_close(found.std[16:], torch.zeros(4).double(), rtol=0, atol=1e-6)
    cosines = (found.vectors[:, :16] * right[:16].T).sum(0).abs()
    torch.testing.assert_close(cosines, torch.ones(16).double(), rtol=0, atol=1e-9)
    assert float(found.vectors[:, 17:].abs().max()) == 0 or float(std[17]) > 1e-6 * float(std[0])


def test_arrays_side_by_side_are_read_by_rows_and_by_columns() -> None:
    a, b = np.random.default_rng(0).random((2, 9, 5)).astype(np.float32)
    both = blocks.ArrayRows([(a, torch.log), (b, torch.square)], torch.float64)
    want = torch.cat([torch.from_numpy(a).double().log(), torch.from_numpy(b).double() ** 2], 1)
    some = both.take(np.array([7, 2, 2])).take(np.array([1, 0]))
    assert torch.equal(both.whole(), want) and torch.equal(some.whole(), want[[2, 7]])
    assert torch.equal(both.columns(slice(3, 8)), want[:, 3:8])
    assert torch.equal(some.columns(torch.tensor([9, 0, 4, 5])), want[[2, 7]][:, [9, 0, 4, 5]])
    assert torch.equal(both.map(torch.exp).columns(slice(0, 2)), want[:, :2].exp())


def test_functions_are_read_at_the_points_that_are_needed() -> None:
    rng = np.random.default_rng(0)
    cloud = PointCloud.of(rng.random((40, 2)))
    grid = Grid((0.0, 0.0), (1.0, 1.0), (7, 8), (True, False))
    both = JointDomain((cloud, grid))
    for domain in (cloud, grid, both):
        values = torch.from_numpy(rng.random((domain.size, 3)))
        read: list[int] = []

        def note(points: torch.Tensor, values: Any = values, read: list[int] = read) -> Any:
            read.append(len(points))
            return values[points]

        x = torch.from_numpy(rng.uniform(0.1, 0.8, (2, 2)))
        x = both.locations(1, x) if domain is both else x
        torch.testing.assert_close(domain.interpolate(note, x), domain.interpolate(values, x))
        assert sum(read) <= 36 + 36
        own = domain.points()
        assert torch.equal(domain.interpolate(note, own), domain.interpolate(values, own))


def test_one_axis_repeats_and_the_others_do_not() -> None:
    lon, lat = np.arange(0.0, 360.0, 15.0), np.linspace(-60.0, 60.0, 9)
    wave = np.outer(np.cos(np.radians(lon)), 1 + lat / 90)
    k = xr.DataArray(
        np.random.default_rng(0).standard_normal((30, 1, 1)) * wave,
        dims=("run", "lon", "lat"),
        coords={"lon": ("lon", lon, {"units": "degrees_east"}), "lat": lat},
    )
    field = field_runs.FieldRuns.of(k, periodic="lon")
    assert field.domain == Grid((0.0, -60.0), (360.0, 60.0), (24, 9), (True, False))
    found = field.domain.interpolate(torch.from_numpy(wave.reshape(-1, 1)),
                                     torch.tensor([[352.5, 22.5]]))  # fmt: skip
    assert float(found) == pytest.approx(np.cos(np.radians(7.5)) * 1.25, rel=1e-5)
    runs_ = uqsonet.Runs({"k": field}, {"u": field_runs.FieldRuns.of(2 * k, periodic=["lon"])})
    model = uqsonet.fit(runs_, sensors=[3], bar=False)
    read = wave[23, 4], wave[11, 6]
    answer = model.condition([[-15.0, 0.0], [165.0, 30.0]], read)  # -15 is 345
    here, there = answer.mean(np.array([[-170.0, 10.0]])), answer.mean(np.array([[190.0, 10.0]]))
    np.testing.assert_array_equal(here, there)
    with pytest.raises(DataError, match="no axis 'x'; there are lon, lat"):
        field_runs.FieldRuns.of(k, periodic="x")


@pytest.mark.parametrize("suffix", ["nc", "h5"])
def test_values_outside_their_valid_range_are_missing(suffix: str, tmp_path: Path) -> None:
    k = np.tile(np.arange(40, dtype=np.int16), (30, 1)) + np.arange(30, dtype=np.int16)[:, None]
    k[:, 5], k[:, 7] = -50, 3000  # below and above, in every run
    ranges = [
        {"valid_range": np.array([0, 100], np.int16)},
        {"valid_min": np.int16(0), "valid_max": np.int16(100)},
        {"valid_min": np.float64(10.0), "valid_max": np.float64(60.0)},  # as unpacked
    ]
    for number, stated in enumerate(ranges):
        path = tmp_path / f"{number}.{suffix}"
        attributes = {"scale_factor": 0.5, "add_offset": 10.0, **stated}
        if suffix == "nc":
            data = xr.Dataset({name: (("run", "p"), k, attributes) for name in "ku"})
            data.to_netcdf(path, engine="h5netcdf")
        else:
            with h5py.File(path, "w") as file:
                for name in "ku":
                    file.create_dataset(name, data=k).attrs.update(attributes)
        field = uqsonet.open_runs(path, "k", "u").inputs["k"]
        assert field.domain.size == 38 and field.absent == 2
        np.testing.assert_array_equal(field.values[0, :5], 10 + 0.5 * np.arange(5))


@pytest.mark.parametrize("suffix", ["npz", "h5", "nc"])
def test_groups_stand_in_the_file(suffix: str, tmp_path: Path) -> None:
    k, u = smooth()
    path, of = tmp_path / f"runs.{suffix}", np.repeat(["a", "b", "c"], 30)
    if suffix == "npz":
        np.savez(path, k=k, u=u, trial=of)
    elif suffix == "h5":
        with h5py.File(path, "w") as file:
            file["k"], file["u"] = k, u
            file["trial"] = of.tolist()
    else:
        data = {"k": (("run", "x", "y"), k), "u": (("run", "x", "y"), u), "trial": ("run", of)}
        xr.Dataset(data).to_netcdf(path, engine="h5netcdf")
    found = uqsonet.open_runs(path, "k", "u", groups="trial")
    assert found.groups is not None and found.groups.tolist() == np.repeat([0, 1, 2], 30).tolist()
    with pytest.raises(DataError, match=r"no array 'trail'.*did you mean 'trial'"):
        uqsonet.open_runs(path, "k", "u", groups="trail")


def test_work_is_never_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "MAX_SILENCE", 0.3)
    monkeypatch.setattr(terminal.LOG, "handlers", [])  # commands in other tests leave theirs
    with terminal.never_silent("fit"):
        terminal.LOG.info("describing input k")
        with terminal.never_silent("describe"):  # leaves the word to the other
            time.sleep(1.2)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4 and all(line.startswith("fit, ") for line in lines)
    assert lines[0].endswith("s: describing input k")
    with terminal.never_silent("fit", wanted=False):
        time.sleep(0.6)
    assert not capsys.readouterr().err and not terminal.LOG.handlers


def test_paths_are_tried_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    require_writable(tmp_path / "new" / "a.png", None)
    for path in (tmp_path, tmp_path / "file" / "a.png"):
        with pytest.raises(DataError, match="cannot be written"):
            require_writable(path)
