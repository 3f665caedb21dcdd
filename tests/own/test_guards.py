"""What files and arrays may hide: links to other files, masks, unread coordinates, integers."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
import xarray

import uqsonet
from uqsonet.errors import DataError, UQSONetError
from uqsonet.runs.files import contents
from uqsonet.show.export import answer_lines, csv_text

K = np.random.default_rng(0).standard_normal((24, 8))
U, X = np.cumsum(K, axis=1), np.linspace(0, 2, 8)
OUT = ("external storage", "virtual data set", "external link", "soft link")
of, Points = uqsonet.FieldRuns.of, uqsonet.WeightedPoints


def put(group: h5py.Group, name: str, how: str) -> None:
    other = f"{group.file.filename}.other"
    with h5py.File(other, "w") as file:
        file["u"] = U
        place = file["u"].id.get_offset()
    if how == "external storage":
        group.create_dataset(name, U.shape, "f8", external=[(other, place, U.nbytes)])
    elif how == "virtual data set":
        with group.build_virtual_dataset(name, U.shape, "f8") as layout:
            layout[...] = h5py.VirtualSource(other, "u", U.shape)
    else:
        links = {OUT[2]: h5py.ExternalLink(other, "/u"), OUT[3]: h5py.SoftLink("/k")}
        group[name] = links.get(how, ["a"] * 8)


def netcdf(path: Path, dim: str = "x", **more: Any) -> None:
    fields = {"k": (("run", dim), K), "u": (("run", dim), U)}
    data = xarray.Dataset(fields | more).set_coords(list(more))
    data.to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize("name", ["u", "x", "deep/er/unused"])
@pytest.mark.parametrize("how", OUT)
def test_netcdf_that_leads_out_is_refused_before_it_is_opened(
    how: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(path := tmp_path / "runs.nc", "w") as file:
        file["k"] = K
        put(file, name, how)
    monkeypatch.setattr(xarray, "open_dataset", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(DataError, match=rf"runs\.nc: '{name}' is .*{how}"):
        uqsonet.open_runs(path, "k", "u")


def test_texts_that_say_they_are_long_take_no_memory(tmp_path: Path) -> None:
    with h5py.File(path := tmp_path / "a.h5", "w") as file:
        file["k"], file["u"] = ["a"] * 24, U
        place = file["k"].id.get_offset()
    data = bytearray(path.read_bytes())
    data[place : place + 4] = (2**31).to_bytes(4, "little")  # the length of the first text
    path.write_bytes(data)
    assert "k: 24, object" in contents(path)
    with pytest.raises(DataError, match=r"a\.h5, k: values must be real numbers, found object"):
        uqsonet.open_runs(path, "k", "u")


def test_hard_links_are_read_and_may_go_in_circles(tmp_path: Path) -> None:
    netcdf(tmp_path / "a.nc", x=("x", X))
    with h5py.File(tmp_path / "a.nc", "a") as file, h5py.File(tmp_path / "a.h5", "w") as plain:
        plain["group/k"], plain["group/u"], plain["axis"] = K, U, X
        plain["x"], plain["other/u"] = plain["axis"], plain["group/u"]
        file["group/again"], plain["group/again"] = file["/"], plain["/"]
    for name in ("a.nc", "a.h5"):
        group = "group/" * (name == "a.h5")  # where it is not the only u
        runs = uqsonet.open_runs(tmp_path / name, "k", f"{group}u")
        np.testing.assert_array_equal(runs.outputs["u"].values, U)
        assert runs.outputs["u"].domain.upper == (2.0,)
    with pytest.raises(DataError, match=r"no array 'u'; there are .*other/u \(24 x 8\)"):
        uqsonet.open_runs(tmp_path / "a.h5", "k", "u")


ALIEN = {"objects": [None] * 8, "digits": ["1"] * 8, "complex": X + 1j}


@pytest.mark.parametrize("name", ["x", "k_points"])
@pytest.mark.parametrize("kind", [*ALIEN, *OUT, "text"])
def test_coordinates_that_cannot_be_read_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    if kind in ALIEN:
        np.savez(path := tmp_path / "runs.npz", k=K, u=U, **{name: np.array(ALIEN[kind])})
    else:
        with h5py.File(path := tmp_path / "runs.h5", "w") as file:
            file["k"], file["u"] = K, U
            put(file, name, kind)
    with pytest.raises(DataError, match=rf"{path.name}, {name}: "):
        uqsonet.open_runs(path, "k", "u")
    assert len(uqsonet.open_runs(path, "k", "u", points=X)) == 24


UNUSED = [
    ("x", ("elsewhere", X[:7])), ("x", (("run", "point"), K)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "found"), UNUSED)
def test_netcdf_coordinates_without_use_are_refused(name: str, found: Any, tmp_path: Path) -> None:
    netcdf(tmp_path / "a.nc", "point", **{name: found})
    with pytest.raises(DataError, match=rf"a\.nc, k, {name}: .*numbers"):
        uqsonet.open_runs(tmp_path / "a.nc", "k", "u")


@pytest.mark.parametrize("name", ["lat", "XLONG", "nav_lon"])
def test_netcdf_coordinates_of_usual_names_are_used(name: str, tmp_path: Path) -> None:
    netcdf(tmp_path / "a.nc", "point", **{name: ("point", 10 + X)})
    domain = uqsonet.open_runs(tmp_path / "a.nc", "k", "u").inputs["k"].domain
    np.testing.assert_allclose(domain.lower, 10 + X.min())


def masked(array: Any, place: int = 1) -> np.ma.MaskedArray:
    found = np.ma.array(array, copy=True)
    found[place] = 99
    found[place] = np.ma.masked
    return found


AT, READ = np.linspace(-0.5, 0.5, 4), np.ones(4)
HOLED, BLANK = masked(AT), masked(READ)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.condition([AT, AT], [READ, BLANK]), "must be finite"),
        (lambda m: m.condition(AT, READ, masked(READ > 0)), "mask: 1 of 4 values are masked"),
        (lambda m: m.condition((AT, READ, BLANK)), "noise_std: 1 of 4"),
        (lambda m: m.condition({"x": AT, "value": READ, "set": masked([1, 1, 2, 2])}), "'set'"),
        (lambda m: m.condition(pd.DataFrame({"x": X[:2], "value": pd.array([1, None])})), "row 2"),
        (lambda m: m.condition(Points(AT[:, None], masked(np.eye(4))), READ), "weights: 4 of 16"),
        (lambda m: m.condition(AT, READ).mean(HOLED), "points: 1 of 4"),
        (lambda m: m.condition(AT, READ).quantile(masked([0.1, 0.5])), "levels: 1 of 2"),
        (lambda m: m.place(1, HOLED), "candidates of .*: 1 of 4"),
        (lambda _: of([masked(K[0]), *K[1:]]), "1 values of 1 of 24 runs are NaN"),
        (lambda _: of(K, masked(X)), "points: 1 of 8"),
        (lambda _: uqsonet.Runs({"k": K}, {"u": U})[masked(np.arange(9))], "runs: 1 of 9"),
    ],
)
def test_no_mask_is_dropped(call: Any, message: str) -> None:
    with pytest.raises(UQSONetError, match=message):
        call(uqsonet.load("diffusion1d"))


def test_masked_values_are_as_nan() -> None:
    model, there = uqsonet.load("diffusion1d"), ~BLANK.mask
    holed = np.where((K > 1) & (X == X[3]), np.nan, K)
    for missing in ("drop", "fill"):
        found = of(np.ma.array(np.nan_to_num(holed, nan=99), mask=np.isnan(holed)), missing=missing)
        np.testing.assert_array_equal(found.values, of(holed, missing=missing).values)
    padded = model.condition(HOLED, BLANK, there), model.condition(AT[there], READ[there])
    np.testing.assert_allclose(padded[0].mean(), padded[1].mean())


def test_long_integers_keep_double_precision_on_every_road(tmp_path: Path) -> None:
    whole = np.rint(1000 * K).astype(int)
    far = whole + 2**31
    np.savez(tmp_path / "a.npz", k=far, u=U)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"], file["u"] = far, U
    netcdf(tmp_path / "a.nc", k=(("run", "x"), far))
    for path in tmp_path.iterdir():
        runs = uqsonet.open_runs(path, "k", "u")
        np.testing.assert_array_equal(runs.inputs["k"].values, far)
    std = []
    for shift in (0, 2**31):
        runs = uqsonet.Runs({"k": of(whole + shift, transform="identity")}, {"u": U})
        model = uqsonet.fit(runs, sensors=[2], law="gaussian", bar=False)
        std.append(model.condition([0.2, 0.7], [shift + 100, shift - 50]).std())
    np.testing.assert_allclose(*std, rtol=1e-3)


@pytest.mark.parametrize("kind", ["?", "i1", ">i2", "u4", "u8", ">f2", "<f4", "g"])
def test_a_file_says_what_it_holds_for_numbers_of_every_kind(tmp_path: Path, kind: str) -> None:
    values = np.arange(20).reshape(4, 5).astype(kind)
    high = 1 if kind == "?" else 19
    np.savez(tmp_path / "a.npz", k=values)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"] = values
    for path in (tmp_path / "a.npz", tmp_path / "a.h5"):
        assert f"  k: 4 x 5, 0 to {high}\n" in contents(path)


ESCAPE = "\x1b[31m\udcff"


def test_nothing_that_a_terminal_obeys_or_cannot_print_leaves_a_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"], file["u"], file["x"] = K, U, X
        file["k"].attrs["units"] = ESCAPE.encode("utf-8", "surrogateescape")
    netcdf(tmp_path / "a.nc", axis := "\x1b]x", **{axis: (axis, X)})
    (tmp_path / "a.csv").write_text("x,va\x1blue\n1\n")
    for path in (tmp_path / "a.h5", tmp_path / "a.nc"):
        text = f"{uqsonet.open_runs(path, 'k', 'u').describe()}{contents(path)}"
        assert text.replace("\n", "").isprintable() and text.encode()
    with pytest.raises(DataError, match=r"va\\x1blue"):
        uqsonet.load("diffusion1d").condition(tmp_path / "a.csv")


def test_names_are_no_formulas(tmp_path: Path) -> None:
    runs = uqsonet.Runs({"k": of(K, X, units="$x_{$")}, {"u$_{$": of(U, X)})
    model = uqsonet.fit(runs, sensors=[2], bar=False)
    answer = model.condition(
        {"x": [0.5, 0.5, 0.5], "value": [0.1, 0.2, 0.3], "set": ["=1+1", "-2", "-a"]}
    )
    text = csv_text(answer_lines(answer, {"mean": np.asarray(answer.mean())}))
    assert [line[0] for line in text.splitlines()[1::8]] == ["'", "-", "'"]
    model.condition([0.5], [0.1]).plot(tmp_path / "a.png", 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.condition({"x": ["0"], "value": ["1_2"]}), "row 1: '1_2' is no number"),
        (lambda m: m.condition({"x": ["0"], "value": ["٣"]}), "is no number"),
        (lambda m: m.condition({"x": [0], "value": [1], "set": [np.nan]}), "'set', row 1: no name"),
        (lambda m: m.condition(np.ones((0, 3, 1)), np.ones((0, 3))), r"found \(0, 3, 1\)"),
        (lambda m: m.condition([0.0], torch.zeros(1, device="meta")), "values must be a plain"),
        (lambda m: m.condition([0.0], torch.zeros(1).to_sparse()), "values must be a plain"),
        (lambda _: of(K * 1e200, X), r"values to .*e\+\d+, at most 1e\+100"),
        (lambda _: of(K, np.zeros((0, 3))), "points must have shape|do not fit|at least"),
        (lambda _: uqsonet.Runs({"k,f": K}, {"u": U}), "without commas, found 'k,f'"),
        (lambda _: uqsonet.Runs({" ": K}, {"u": U}), "without commas, found ' '"),
    ],
)
def test_what_only_python_or_torch_understands_is_refused(call: Any, message: str) -> None:
    with pytest.raises(UQSONetError, match=message):
        call(uqsonet.load("diffusion1d"))


def test_thousands_of_variables_or_columns_take_no_time_squared(tmp_path: Path) -> None:
    netcdf(tmp_path / "a.nc", **{f"v{k}": ("w", [0.0]) for k in range(400)})
    start = time.process_time()
    uqsonet.open_runs(tmp_path / "a.nc", "k", "u")
    (tmp_path / "a.csv").write_text(",".join(["x"] * 50_000) + "\n" + ",".join(["1"] * 50_000))
    with pytest.raises(DataError, match="column 'x' appears twice"):
        uqsonet.load("diffusion1d").condition(tmp_path / "a.csv")
    assert time.process_time() - start < 5


def test_what_does_not_fit_together_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", k=K, u=U[:20])
    with pytest.raises(DataError, match=r"a\.npz: fields have different numbers of runs"):
        uqsonet.open_runs(tmp_path / "a.npz", "k", "u")


def test_what_is_packed_twice_is_not_read(tmp_path: Path) -> None:
    with h5py.File(path := tmp_path / "a.h5", "w") as file:
        file["k"] = K
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((24, 8))
        for _ in range(2):
            how.set_deflate(9)
        h5py.h5d.create(file.id, b"u", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((24, 8)), how)
    with pytest.raises(DataError, match="'u' is not read: packed twice"):
        uqsonet.open_runs(path, "k", "u")


def test_what_a_file_says_it_holds_is_added_up(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["k"], file["u"] = K, U
        for number in range(40):  # each of them would do
            file.create_dataset(f"n{number}", (8_000_000,), "u1", chunks=(1 << 20,))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        for name in ("k", "u"):
            archive.writestr(f"{name}.npy", bytes(150 << 20))
    for path in tmp_path.iterdir():
        with pytest.raises(
            DataError, match=rf"{path.name}: .*says that it holds \d+ bytes, and has"
        ):
            uqsonet.open_runs(path, "k", "u")
