"""Layouts: both laws, their streams, and that the two clustering libraries agree."""

import hashlib
import importlib
import os
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from uqsonet.errors import ConfigError, ObservationError
from uqsonet.fields.grid import Grid
from uqsonet_study import layouts
from uqsonet_study.layouts import (
    Lattice,
    candidates,
    first_centres,
    generate_layouts,
    load_layouts,
    regular_space_layouts,
    uniform_layouts,
)
from uqsonet_study.settings import Layout

SQUARE = Grid((0.0, 0.0), (1.0, 1.0), (101, 101))
"""The grid of the paper's two-dimensional problems."""
PLACES = candidates(SQUARE, 0.1)
POINTS = Lattice.of(SQUARE).coordinates(PLACES)
SPLITS = ("training", "validation", "test")


def clustered(**changes) -> Layout:
    values = {"counts": [1, 2, 3], "pool": 20, "margin": 0.1}
    return Layout.model_validate(values | {"distances": {2: 0.5, 3: 0.3}} | changes)


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


def test_every_ordered_layout_of_distinct_points_is_equally_likely():
    layouts = uniform_layouts(np.random.default_rng(3), 6, 3, 60_000)
    codes, counts = np.unique(layouts @ [36, 6, 1], return_counts=True)
    assert len(codes) == 6 * 5 * 4 and all(len(set(row)) == 3 for row in layouts[:1000].tolist())
    assert chi2.sf(((counts - 500) ** 2 / 500).sum(), len(codes) - 1) > 1e-3
    full = uniform_layouts(np.random.default_rng(0), 33, 33, 20)  # no point is left over
    assert (np.sort(full) == np.arange(33)).all()


def test_a_new_count_or_a_larger_pool_leaves_other_layouts_unchanged(tmp_path):
    small, large = Layout(counts=[2], pool=10), Layout(counts=[2, 5], pool=40)
    generate_layouts("toy_linear", small, 3, 4, 5, tmp_path / "small.h5")
    generate_layouts("toy_linear", large, 3, 4, 5, tmp_path / "large.h5")
    for split, rows in (("validation", 4), ("test", 5)):
        first, second = (load_layouts(tmp_path / f"{n}.h5", split) for n in ("small", "large"))
        assert list(second) == [2, 5] and second[5].shape == (rows, 5)
        assert torch.equal(first[2], second[2])


def test_streams_of_uniform_layouts_have_not_moved(tmp_path):
    # Published results rest on these bytes.
    config = Layout(counts=[1, 2, 7], pool=100)
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


@pytest.mark.parametrize("distances", [{}, {2: 0.5}])
def test_all_counts_and_splits_keep_the_margin(tmp_path, distances):
    config = clustered(distances=distances, margin=0.2)
    generate_layouts("toy_plane", config, 0, 5, 6, tmp_path / "a.h5")
    allowed = set(candidates(Grid((0.0, 0.0), (1.0, 1.0), (21, 21)), 0.2).tolist())
    for split, rows in zip(SPLITS, (20, 5, 6), strict=True):
        for m, indices in load_layouts(tmp_path / "a.h5", split).items():
            assert indices.shape == (rows, m)
            assert set(indices.flatten().tolist()) <= allowed


@pytest.mark.parametrize(("sensors", "distance"), [(2, 0.8), (4, 0.5)])
def test_a_layout_is_the_first_m_centres_of_the_first_permutation_that_has_m(sensors, distance):
    generator = np.random.default_rng(5)
    found = list(islice(regular_space_layouts(generator, SQUARE, PLACES, sensors, distance), 8))
    generator, expected = np.random.default_rng(5), []
    while len(expected) < 8:
        order = generator.permutation(len(PLACES))
        centres = plain_scan(POINTS[order], 100 * distance)
        # A scan in parts that ends early finds the same.
        early = first_centres(POINTS[order], 100 * distance, sensors)
        assert np.array_equal(early, POINTS[order[centres[:sensors]]])
        if len(centres) >= sensors:
            expected.append(PLACES[order[centres[:sensors]]])
    assert np.array_equal(found, expected) and found[0].dtype == np.int32


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


def test_blocks_splits_and_seeds_have_layouts_of_their_own_and_a_pool_begins_with_a_smaller(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(layouts, "BLOCK", 20)
    made = {}
    for name, seed, pool in (("few", 3, 10), ("one", 3, 40), ("again", 3, 40), ("other", 4, 40)):
        path = tmp_path / f"{name}.h5"
        generate_layouts("toy_plane", clustered(pool=pool), seed, 10, 10, path)
        made[name] = {split: load_layouts(path, split) for split in SPLITS}
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "again.h5").read_bytes()
    for m in (1, 2, 3):
        pool = made["one"]["training"][m]
        assert torch.equal(pool[:10], made["few"]["training"][m])
        heads = [pool[:10], pool[20:30], made["other"]["training"][m][:10]]
        heads += [made["one"][split][m] for split in ("validation", "test")]
        assert len({str(head.tolist()) for head in heads}) == 5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"counts": [10], "margin": 0.45}, "10 sensors cannot stand on 9 distinct grid points"),
        ({"margin": 0.6}, r"margin: no grid point .* 0\.6 away"),
        (
            {"counts": [6], "distances": {6: 0.8}, "margin": 0.1},
            r"distances: 20 scans of 289 grid points found at most [23] .* 0\.8 apart, 6 ",
        ),
    ],
)
def test_sensors_that_do_not_fit_are_refused(tmp_path, monkeypatch, config, message):
    monkeypatch.setattr(layouts, "RETRIES", 20)
    config = Layout.model_validate({"counts": [1], "pool": 1} | config)
    with pytest.raises((ConfigError, ObservationError), match=message):
        generate_layouts("toy_plane", config, 0, 1, 1, tmp_path / "a.h5")


def require_pyemma():
    """Skip without PyEMMA, which is optional, unless this run has promised to have it."""
    try:
        importlib.import_module("pyemma.coordinates")
    except ImportError:
        if os.environ.get("UQSONET_REQUIRE_PYEMMA"):
            raise
        pytest.skip("PyEMMA is not installed (`make pyemma`)")


@pytest.mark.pyemma
def test_pyemma_finds_the_same_centres_and_layouts(tmp_path):
    require_pyemma()
    for points, distance in zip(permutations(3, 20), [80.0, 50.0] * 10, strict=True):
        found = first_centres(points, distance, 99, "pyemma")
        expected = first_centres(points, distance, 99)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
    for backend in ("deeptime", "pyemma"):
        path = tmp_path / f"{backend}.h5"
        generate_layouts("toy_plane", clustered(backend=backend, pool=10), 3, 4, 5, path)
    for split in SPLITS:
        first, second = (load_layouts(tmp_path / f"{b}.h5", split) for b in ("deeptime", "pyemma"))
        assert all(torch.equal(first[m], second[m]) for m in (1, 2, 3))


def test_a_missing_pyemma_is_named_with_its_remedy(tmp_path, monkeypatch):
    for name in ("pyemma", "pyemma.coordinates"):
        monkeypatch.setitem(sys.modules, name, None)  # makes its import fail
    with pytest.raises(ConfigError, match=r"backend: pyemma .*`make pyemma`"):
        generate_layouts("toy_plane", clustered(backend="pyemma"), 0, 1, 1, tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())
