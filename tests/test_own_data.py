"""Own data as functions of a problem: splits, fields, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from uqsonet.errors import ConfigError, UQSONetError
from uqsonet.fields.cloud import PointCloud
from uqsonet.fields.grid import Grid
from uqsonet_study.config import OwnDataConfig, ProblemConfig, SensorsConfig
from uqsonet_study.layouts import generate_layouts, load_layouts
from uqsonet_study.own_data import open_splits, read_own_data, symbol
from uqsonet_study.storage import load_functions

RUNS, POINTS = 60, 9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Runs whose first value is their number."""
    k = 1 + np.random.default_rng(0).random((RUNS, POINTS)).astype(np.float32)
    k[:, 0] = 1 + np.arange(RUNS)
    np.savez(tmp_path / "runs.npz", k=k, u=2 * k, x=np.linspace(0, 2, POINTS))
    return tmp_path / "runs.npz"


def problem(file: Path, sizes: tuple[int, int, int] = (40, 8, 10), **data: object) -> ProblemConfig:
    own = OwnDataConfig.model_validate({"file": str(file), "input": "k", "output": "u"} | data)
    training, validation, test = sizes
    return ProblemConfig(data=own, training=training, validation=validation, test=test)


def numbers(path: Path, split: str) -> list[int]:
    return (load_functions(path, split).kappa[:, 0].round().int() - 1).tolist()


def test_the_last_rows_test_and_all_others_are_shuffled_by_the_seed(file, tmp_path):
    found = {}
    for seed in (0, 0, 1):
        out = tmp_path / f"{seed}.h5"
        read_own_data("mine", problem(file, transform="log"), seed, out, tmp_path / "record.json")
        found.setdefault(seed, []).append(out.read_bytes())
    assert found[0][0] == found[0][1]
    splits = {s: numbers(tmp_path / "0.h5", s) for s in ("training", "validation", "test")}
    assert splits["test"] == list(range(50, 60))
    assert len({*splits["training"], *splits["validation"]}) == 48
    assert max(splits["training"]) < 50
    assert splits["training"] != sorted(splits["training"])
    assert numbers(tmp_path / "1.h5", "training") != splits["training"]
    functions = load_functions(tmp_path / "0.h5", "training")
    assert functions.fields.input.grid == Grid((0.0,), (2.0,), (POINTS,))
    assert functions.fields.input.transform.name == "log"
    assert (functions.u == 2 * functions.kappa).all()
    # Fewer training pairs are the first of more.
    read_own_data("mine", problem(file, (20, 8, 10)), 0, tmp_path / "few.h5", tmp_path / "r.json")
    assert numbers(tmp_path / "few.h5", "training") == splits["training"][:20]


def test_a_file_of_test_functions_leaves_all_others_for_training(file, tmp_path):
    other = tmp_path / "test.npz"
    with np.load(file) as runs:
        np.savez(other, **{name: runs[name][::-1] if name != "x" else runs[name] for name in runs})
    _, splits = open_splits("mine", problem(file, (50, 10, 5), test_file=str(other)), 0)
    assert [len(splits[name]) for name in ("training", "validation", "test")] == [50, 10, 5]
    first = splits["test"].inputs["k"].values[:, 0] - 1
    assert first.tolist() == [59, 58, 57, 56, 55]


def test_layouts_stand_on_the_points_of_the_file(file, tmp_path):
    cloud = tmp_path / "cloud.npz"
    places = np.random.default_rng(1).random((POINTS, 2))
    with np.load(file) as runs:
        np.savez(cloud, k=runs["k"], u=runs["u"], points=places)
    read_own_data("mine", problem(cloud), 0, tmp_path / "f.h5", tmp_path / "record.json")
    grid = load_functions(tmp_path / "f.h5", "training").fields.input.grid
    assert isinstance(grid, PointCloud)
    out, functions = tmp_path / "s.h5", tmp_path / "f.h5"
    config = SensorsConfig(counts=[3], pool=50)
    generate_layouts("mine", config, 0, 2, 2, out, functions)
    layouts = load_layouts(out, "training")[3]
    assert layouts.shape == (50, 3)
    assert set(layouts.flatten().tolist()) == set(range(POINTS))
    apart = SensorsConfig(counts=[3], layout="regular_space", distances={3: 0.1})
    with pytest.raises(ConfigError, match="regular_space needs a uniform grid"):
        generate_layouts("mine", apart, 0, 2, 2, out, functions)


@pytest.mark.parametrize(
    ("sizes", "data", "message"),
    [
        ((40, 8, 10), {"file": "absent.npz"}, r"problems\.mine\.data: .*absent\.npz"),
        ((40, 8, 10), {"input": "kk"}, r"problems\.mine\.data: .*runs\.npz.*kk"),
        ((50, 8, 10), {}, r"training 50 \+ validation 8 \+ test 10 = 68 runs, .* has 60"),
        ((40, 8, 61), {"test_file": "{file}"}, r"test 61 runs, but .*runs\.npz has 60"),
        ((40, 8, 10), {"test_file": "{coarse}"}, r"k has other points in .*coarse\.npz \(5 on"),
    ],
)
def test_wrong_data_are_refused_in_one_message(file, sizes, data, message):
    coarse = file.with_name("coarse.npz")
    with np.load(file) as runs:
        np.savez(coarse, **{name: runs[name][..., ::2] for name in runs})
    changed = {key: value.format(file=file, coarse=coarse) for key, value in data.items()}
    with pytest.raises(UQSONetError, match=message):
        open_splits("mine", problem(Path(changed.pop("file", str(file))), sizes, **changed), 0)


@pytest.mark.parametrize(
    ("name", "printed"),
    [("k", "k"), ("load", r"\mathrm{load}"), ("k_eff $x$%", r"\mathrm{k\ eff\ x}")],
)
def test_names_of_fields_are_printed_without_commands(name, printed):
    assert symbol(name) == printed
