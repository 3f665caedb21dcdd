"""Layouts: both laws, their streams, and that the two clustering libraries agree."""

import hashlib
import importlib
import os
import sys
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import chi2

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields import Grid
from uqsonet.seeds import numpy_generator
from uqsonet_study import layouts
from uqsonet_study.config import SensorsConfig
from uqsonet_study.layouts import (
    BLOCK,
    Lattice,
    candidates,
    first_centres,
    generate_layouts,
    load_layouts,
    regular_space_layouts,
    uniform_layouts,
)

SQUARE = Grid((0.0, 0.0), (1.0, 1.0), (101, 101))
"""The grid of the paper's two-dimensional problems."""
PLACES = candidates(SQUARE, 0.1)
POINTS = Lattice.of(SQUARE).coordinates(PLACES)
APART = {2: 0.8, 3: 0.5, 4: 0.5}
SPLITS = ("training", "validation", "test")


def clustered(**changes) -> SensorsConfig:
    values = {"counts": [1, 2, 3], "pool": 20, "layout": "regular_space", "margin": 0.1}
    return SensorsConfig.model_validate(values | {"distances": {2: 0.5, 3: 0.3}} | changes)


def plain_scan(points: np.ndarray, distance: float) -> np.ndarray:
    """Regular-space clustering as defined, on whole numbers: positions of all centres."""
    whole = points.astype(np.int64)
    centres = [0]
    for i in range(1, len(whole)):
        if (((whole[i] - whole[centres]) ** 2).sum(1) > distance**2).all():
            centres.append(i)
    return np.array(centres)


def permutations(seed: int, count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.permutation(POINTS) for _ in range(count)]


@pytest.mark.parametrize("sensors", [1, 2, 5, 20, 33])
def test_sensors_stand_on_distinct_points_of_the_grid(sensors):
    layouts = uniform_layouts(np.random.default_rng(0), 33, sensors, 500)
    assert layouts.shape == (500, sensors)
    assert layouts.min() >= 0 and layouts.max() < 33
    assert all(len(set(row)) == sensors for row in layouts.tolist())


@pytest.mark.parametrize("sensors", [1, 3, 10])
def test_every_point_is_equally_likely_at_every_position(sensors):
    layouts = uniform_layouts(np.random.default_rng(1), 20, sensors, 20_000)
    for column in layouts.T:
        counts = np.bincount(column, minlength=20)
        statistic = ((counts - 1000) ** 2 / 1000).sum()
        assert chi2.sf(statistic, 19) > 1e-3 / sensors


def test_every_pair_of_points_is_equally_likely():
    layouts = uniform_layouts(np.random.default_rng(2), 6, 2, 30_000)
    counts = np.bincount(layouts[:, 0] * 6 + layouts[:, 1], minlength=36).reshape(6, 6)
    assert np.diag(counts).sum() == 0
    off = counts[~np.eye(6, dtype=bool)]
    assert chi2.sf(((off - 1000) ** 2 / 1000).sum(), 29) > 1e-3


def test_every_subset_is_equally_likely():
    layouts = uniform_layouts(np.random.default_rng(3), 6, 3, 20_000)
    codes = (1 << layouts).sum(1)
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 20
    assert chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 19) > 1e-3


def test_more_sensors_than_points_are_refused():
    with pytest.raises(ObservationError, match="34 sensors cannot stand on 33"):
        uniform_layouts(np.random.default_rng(0), 33, 34, 1)


def test_a_new_count_or_a_larger_pool_leaves_other_layouts_unchanged(tmp_path):
    small, large = SensorsConfig(counts=[2], pool=10), SensorsConfig(counts=[2, 5], pool=40)
    generate_layouts("toy_linear", small, 3, 4, 5, tmp_path / "small.h5")
    generate_layouts("toy_linear", large, 3, 4, 5, tmp_path / "large.h5")
    for split, rows in (("validation", 4), ("test", 5)):
        first, second = (load_layouts(tmp_path / f"{n}.h5", split) for n in ("small", "large"))
        assert list(second) == [2, 5] and second[5].shape == (rows, 5)
        assert torch.equal(first[2], second[2])
    first = load_layouts(tmp_path / "small.h5", "training")[2]
    second = load_layouts(tmp_path / "large.h5", "training")[2]
    assert first.shape == (10, 2) and second.shape == (40, 2)


def test_streams_of_uniform_layouts_have_not_moved(tmp_path):
    # Published results rest on these bytes.
    config = SensorsConfig(counts=[1, 2, 7], pool=100)
    generate_layouts("diffusion1d", config, 2026, 20, 30, tmp_path / "a.h5")
    digest = hashlib.sha256()
    for split in SPLITS:
        for indices in load_layouts(tmp_path / "a.h5", split).values():
            digest.update(indices.numpy().astype("<i4").tobytes())
    assert digest.hexdigest()[:16] == "d14839fbe1ea8b85"


def test_candidates_keep_the_margin_with_its_edge():
    assert len(PLACES) == 81**2
    points = SQUARE.points().numpy()[PLACES]
    assert points.min() == pytest.approx(0.1) and points.max() == pytest.approx(0.9)
    assert candidates(SQUARE, 0.0).tolist() == list(range(101**2))
    assert len(candidates(SQUARE, 0.5)) == 1
    assert len(candidates(Grid((-1.0,), (1.0,), (33,)), 0.125)) == 29


def test_a_margin_that_leaves_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"sensors\.margin: no grid point .* 0\.6 away"):
        candidates(SQUARE, 0.6)


@pytest.mark.parametrize("layout", ["uniform", "regular_space"])
def test_all_counts_and_splits_keep_the_margin(tmp_path, layout):
    distances = {2: 0.5} if layout == "regular_space" else {}
    config = clustered(layout=layout, distances=distances, margin=0.2)
    generate_layouts("toy_plane", config, 0, 5, 6, tmp_path / "a.h5")
    allowed = set(candidates(Grid((0.0, 0.0), (1.0, 1.0), (21, 21)), 0.2).tolist())
    for split, rows in zip(SPLITS, (20, 5, 6), strict=True):
        for m, indices in load_layouts(tmp_path / "a.h5", split).items():
            assert indices.shape == (rows, m)
            assert set(indices.flatten().tolist()) <= allowed


@pytest.mark.parametrize("sensors", APART)
def test_layouts_have_m_distinct_sensors_farther_apart_than_the_distance(sensors):
    generator, d = np.random.default_rng(sensors), APART[sensors]
    found = list(islice(regular_space_layouts(generator, SQUARE, PLACES, sensors, d), 50))
    for layout in found:
        assert layout.dtype == np.int32 and layout.shape == (sensors,)
        assert len(set(layout.tolist())) == sensors
        assert set(layout.tolist()) <= set(PLACES.tolist())
        squares = pdist(Lattice.of(SQUARE).coordinates(layout), "sqeuclidean")
        assert (squares > (100 * d) ** 2).all()  # whole numbers, so exact


@pytest.mark.parametrize("distance", [80.0, 50.0])
def test_a_scan_in_parts_finds_the_first_centres_of_the_full_scan(distance):
    for points in permutations(0, 25):
        expected = points[plain_scan(points, distance)]
        for wanted in range(1, 7):
            found = first_centres(points, distance, wanted)
            assert np.array_equal(found, expected[:wanted])


@pytest.mark.parametrize("sensors", [2, 4])
def test_a_layout_is_the_first_m_of_the_first_permutation_that_has_m(sensors):
    d = APART[sensors]
    found = list(
        islice(
            regular_space_layouts(np.random.default_rng(5), SQUARE, PLACES, sensors, d),
            10,
        )
    )
    generator, expected = np.random.default_rng(5), []
    while len(expected) < 10:
        order = generator.permutation(len(PLACES))
        centres = plain_scan(POINTS[order], 100 * d)
        if len(centres) >= sensors:
            expected.append(PLACES[order[centres[:sensors]]])
    assert np.array_equal(found, expected)


def test_a_point_at_exactly_the_distance_is_no_centre():
    # Along an axis and on a 3-4-5 triangle; in domain units both are rounded either way.
    grid = Grid((0.0, 0.0), (1.0, 1.0), (11, 11))
    lattice = Lattice.of(grid)
    assert lattice.distance(0.3) == 3.0 and 0.3 / 0.1 != 3.0
    points = np.array([[0.0, 0.0], [5.0, 0.0], [3.0, 4.0], [4.0, 3.0], [0.0, 5.0], [5.0, 1.0]])
    assert first_centres(points, lattice.distance(0.5), 6).tolist() == [[0.0, 0.0], [5.0, 1.0]]


def test_a_lattice_counts_in_the_smallest_spacing():
    grid = Grid((0.0, -1.0), (1.0, 1.0), (11, 6))
    lattice, index = Lattice.of(grid), np.arange(66)
    assert lattice.steps.tolist() == [1.0, 4.0]
    assert np.array_equal(lattice.index(lattice.coordinates(index)), index)
    points = grid.points().numpy() - np.array([0.0, -1.0])
    np.testing.assert_allclose(lattice.coordinates(index) * lattice.unit, points, atol=1e-14)


def within(counts: Counter, shares: dict[int, float], size: int) -> None:
    """Compare counts with shares that were measured on 10,000 scans, at 4 standard errors."""
    assert set(counts) <= set(shares)
    for centres, share in shares.items():
        error = (share * (1 - share) * (1 / size + 1 / 10_000)) ** 0.5
        assert abs(counts[centres] / size - share) < 4 * error, (centres, counts)


@pytest.mark.parametrize(
    ("distance", "shares"),
    [
        (80.0, {1: 0.310, 2: 0.665, 3: 0.025}),
        (50.0, {2: 0.007, 3: 0.385, 4: 0.577, 5: 0.031}),
    ],
)
def test_the_number_of_centres_is_distributed_as_documented(distance, shares):
    size = 600
    found = Counter(len(first_centres(points, distance, 99)) for points in permutations(1, size))
    within(found, shares, size)


def test_the_share_of_scans_with_one_centre_is_the_exact_one():
    # One centre comes exactly if no candidate is farther from the first point than d_min.
    far = np.maximum(np.arange(81), 80 - np.arange(81))
    alone = (far[:, None] ** 2 + far**2 <= 80**2).mean()
    assert alone == pytest.approx(0.309, abs=5e-4)
    size = 1000
    ones = sum(len(first_centres(points, 80.0, 2)) == 1 for points in permutations(2, size))
    assert abs(ones / size - alone) < 4 * (alone * (1 - alone) / size) ** 0.5


def test_a_single_sensor_is_uniform_over_the_candidates(tmp_path):
    generate_layouts("toy_plane", clustered(pool=28_900), 4, 1, 1, tmp_path / "a.h5")
    indices = load_layouts(tmp_path / "a.h5", "training")[1]
    _, counts = np.unique(indices.numpy(), return_counts=True)
    assert len(counts) == 17**2
    assert chi2.sf(((counts - 100) ** 2 / 100).sum(), 17**2 - 1) > 1e-3


def test_a_larger_regular_space_pool_begins_with_the_smaller(tmp_path):
    pools = (10, BLOCK - 1, BLOCK + 30)
    for pool in pools:
        generate_layouts("toy_plane", clustered(pool=pool), 3, pool, 2, tmp_path / f"{pool}.h5")
    for split in ("training", "validation"):
        small, middle, large = (load_layouts(tmp_path / f"{n}.h5", split) for n in pools)
        for m in (1, 2, 3):
            assert large[m].shape == (BLOCK + 30, m)
            assert torch.equal(large[m][:10], small[m])
            assert torch.equal(large[m][: BLOCK - 1], middle[m])


def test_every_block_split_and_seed_has_layouts_of_its_own(tmp_path):
    for seed in (3, 4):
        config = clustered(pool=2 * BLOCK)
        generate_layouts("toy_plane", config, seed, 50, 50, tmp_path / f"{seed}.h5")
    one, other = tmp_path / "3.h5", tmp_path / "4.h5"
    for m in (1, 2, 3):
        pool = load_layouts(one, "training")[m]
        assert not torch.equal(pool[:BLOCK], pool[BLOCK:])
        heads = [pool[:50], load_layouts(other, "training")[m][:50]]
        heads += [load_layouts(one, split)[m] for split in ("validation", "test")]
        assert len({str(head.tolist()) for head in heads}) == 4


def test_the_same_seed_gives_the_same_file(tmp_path):
    for name in "ab":
        generate_layouts("toy_plane", clustered(), 3, 4, 5, tmp_path / f"{name}.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_sensors_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(layouts, "RETRIES", 20)
    found = regular_space_layouts(numpy_generator(0), SQUARE, PLACES, 6, 0.8)
    message = (
        r"sensors\.distances: 20 scans of 6561 grid points found at most [23] .* 0\.8 apart, 6 "
    )
    with pytest.raises(ConfigError, match=message):
        next(found)


def test_uniform_sensors_must_fit_into_the_margin(tmp_path):
    config = SensorsConfig(counts=[10], pool=1, margin=0.45)
    with pytest.raises(ObservationError, match="10 sensors cannot stand on 9"):
        generate_layouts("toy_plane", config, 0, 1, 1, tmp_path / "a.h5")


def require_pyemma():
    """Skip without PyEMMA, which is optional, unless this run has promised to have it."""
    try:
        importlib.import_module("pyemma.coordinates")
    except ImportError:
        if os.environ.get("UQSONET_REQUIRE_PYEMMA"):
            raise
        pytest.skip("PyEMMA is not installed (`make pyemma`)")


@pytest.mark.parametrize("distance", [80.0, 50.0])
def test_pyemma_finds_the_same_centres(distance):
    require_pyemma()
    for points in permutations(3, 20):
        found = first_centres(points, distance, 99, "pyemma")
        expected = first_centres(points, distance, 99)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_pyemma_gives_the_same_layouts(tmp_path):
    require_pyemma()
    for backend in ("deeptime", "pyemma"):
        path = tmp_path / f"{backend}.h5"
        generate_layouts("toy_plane", clustered(backend=backend, pool=10), 3, 4, 5, path)
    for split in SPLITS:
        first, second = (load_layouts(tmp_path / f"{b}.h5", split) for b in ("deeptime", "pyemma"))
        assert all(torch.equal(first[m], second[m]) for m in (1, 2, 3))


def test_a_missing_pyemma_is_named_with_its_remedy(tmp_path, monkeypatch):
    for name in ("pyemma", "pyemma.coordinates"):
        monkeypatch.setitem(sys.modules, name, None)  # makes its import fail
    with pytest.raises(ConfigError, match=r"sensors\.backend: pyemma .*`make pyemma`"):
        generate_layouts("toy_plane", clustered(backend="pyemma"), 0, 1, 1, tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())


def test_fixed_points_are_the_layout_of_every_function(tmp_path):
    config = SensorsConfig(counts=[3], pool=4, layout="fixed", points=[17, 2, 30])
    generate_layouts("toy_linear", config, 1, 5, 6, tmp_path / "fixed.h5")
    for split, size in zip(SPLITS, (4, 5, 6), strict=True):
        found = load_layouts(tmp_path / "fixed.h5", split)[3]
        assert found.tolist() == [[17, 2, 30]] * size
    beyond = config.model_copy(update={"points": [17, 2, 33]})
    with pytest.raises(ConfigError, match="33 is no index of the grid's 33 points"):
        generate_layouts("toy_linear", beyond, 1, 5, 6, tmp_path / "beyond.h5")
