"""Grids: exact on nodes, sixth order between them, quadrature and subgrids as stated."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uqsonet.errors import ObservationError
from uqsonet.fields import Grid

LINE = Grid((-1.0,), (1.0,), (41,))
BOX = Grid((0.0, -1.0), (2.0, 1.0), (9, 13))


def test_points_run_over_the_last_axis_first():
    points = BOX.points()
    assert points.shape == (9 * 13, 2)
    torch.testing.assert_close(points[:13, 0], torch.zeros(13).double())
    torch.testing.assert_close(
        points[:13, 1], torch.linspace(-1, 1, 13).double(), atol=1e-7, rtol=0
    )
    assert points[-1].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("grid", [LINE, BOX], ids=["1d", "2d"])
def test_interpolation_is_exact_on_nodes(grid):
    values = torch.randn(grid.size, 3, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(grid.interpolate(values, grid.points()), values)


def test_a_float32_copy_of_a_node_counts_as_the_node():
    values = torch.randn(41, 1, generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(LINE.interpolate(values, LINE.points().float()), values)


@pytest.mark.parametrize(
    "grid", [LINE, BOX, Grid((0.0, 0.0), (1.0, 2.0), (8, 10), True)], ids=["1d", "2d", "periodic"]
)
def test_nodes_alone_and_among_other_places_have_the_same_values(grid):
    values = torch.randn(grid.size, 3, generator=torch.Generator().manual_seed(0)).double()
    nodes = torch.cat([grid.points(), grid.points()[-1:]])
    if grid.periodic:
        nodes[-1] = torch.tensor(grid.upper)  # the first point once more
    other = grid.points()[:1] + 0.3 * torch.tensor(grid.spacing())
    alone = grid.interpolate(values, nodes)
    assert torch.equal(alone, grid.interpolate(values, torch.cat([nodes, other]))[:-1])
    assert torch.equal(alone[-1], values[0 if grid.periodic else -1])


def test_interpolation_is_of_sixth_order():
    def f(x):
        return torch.sin(10 * x) + torch.exp(x)

    sizes = np.array([41, 81, 161, 321])
    errors = []
    for n in sizes:
        grid = Grid((-1.0,), (1.0,), (int(n),))
        queries = grid.points()[:-1] + 1 / (n - 1)  # the middle of every cell
        errors.append(float((grid.interpolate(f(grid.points()), queries) - f(queries)).abs().max()))
    order = -np.polyfit(np.log(sizes - 1), np.log(errors), 1)[0]
    assert abs(order - 6) < 0.2, (order, errors)


@settings(max_examples=30)
@given(
    st.lists(st.floats(-2, 2), min_size=6, max_size=6),
    st.lists(st.floats(-1, 1), min_size=1, max_size=8),
)
def test_polynomials_of_degree_five_are_reproduced(coefficients, places):
    def f(x):
        return sum(c * x**i for i, c in enumerate(coefficients))

    queries = torch.tensor(places, dtype=torch.float64)[:, None]
    away = (queries * 20 - (queries * 20).round()).abs()
    assume(bool(((away == 0) | (away > 1e-4)).all()))  # closer ones count as the node
    found = LINE.interpolate(f(LINE.points()), queries)
    torch.testing.assert_close(found, f(queries), rtol=0, atol=1e-11)


@pytest.mark.parametrize("shift", [1e-12, 1e-9, 1e-7, 1e-6, 3e-6, 1e-5])
def test_counting_near_points_as_nodes_costs_at_most_their_distance(shift):
    queries = LINE.points()[1:-1] + shift
    found = LINE.interpolate(torch.sin(LINE.points()), queries)
    assert (found - torch.sin(queries)).abs().max() < min(shift, 2.1e-6) + 1e-11


def test_degree_six_is_not_reproduced():
    queries = torch.tensor([[0.513]]).double()
    assert (LINE.interpolate(LINE.points() ** 6, queries) - queries**6).abs() > 1e-12


def test_products_of_polynomials_are_reproduced_in_two_dimensions():
    def f(x):
        return x[..., :1] ** 4 * x[..., 1:] ** 3 - x[..., :1] + 2

    lower, upper = torch.tensor(BOX.lower), torch.tensor(BOX.upper)
    unit = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(2))
    queries = (lower + unit * (upper - lower)).double()
    found = BOX.interpolate(f(BOX.points()), queries)
    assert found.shape == (3, 5, 1)
    torch.testing.assert_close(found, f(queries), rtol=0, atol=1e-11)


def test_interpolation_works_on_grids_smaller_than_its_stencil():
    grid = Grid((0.0,), (1.0,), (3,))
    queries = torch.tensor([[0.3]]).double()
    torch.testing.assert_close(grid.interpolate(grid.points() ** 2, queries), queries**2)


def test_interpolation_keeps_dtype_and_is_linear():
    a = torch.randn(41, 2, generator=torch.Generator().manual_seed(3))
    queries = torch.rand(7, 1) * 2 - 1
    assert LINE.interpolate(a, queries).dtype == torch.float32
    a = a.double()
    both = LINE.interpolate(2 * a[:, :1] - a[:, 1:], queries)
    parts = LINE.interpolate(a, queries)
    torch.testing.assert_close(both, 2 * parts[:, :1] - parts[:, 1:])


@pytest.mark.parametrize(("grid", "volume"), [(LINE, 2.0), (BOX, 4.0)])
def test_quadrature_sums_to_the_volume(grid, volume):
    assert abs(float(grid.quadrature().sum()) - volume) < 1e-13


def test_quadrature_integrates_linear_functions_exactly_and_smooth_ones_at_second_order():
    x = BOX.points()
    linear = float((BOX.quadrature() * (x[:, 0] + 3 * x[:, 1] + 1)).sum())
    assert abs(linear - 8.0) < 1e-12
    sizes = np.array([20, 40, 80])
    errors = []
    for n in sizes:
        grid = Grid((0.0,), (1.0,), (int(n) + 1,))
        total = float((grid.quadrature() * grid.points()[:, 0].exp()).sum())
        errors.append(abs(total - (np.e - 1)))
    assert abs(-np.polyfit(np.log(sizes), np.log(errors), 1)[0] - 2) < 0.01


def test_subgrid_indices_pick_the_points_of_the_subgrid():
    coarse, index = BOX.subgrid(4)
    assert coarse.shape == (3, 4)
    torch.testing.assert_close(BOX.points()[index], coarse.points())
    same, index = LINE.subgrid(1)
    assert same == LINE and index.tolist() == list(range(41))


def test_a_stride_that_does_not_divide_the_grid_is_refused():
    with pytest.raises(ValueError, match="stride 3"):
        LINE.subgrid(3)


@pytest.mark.parametrize("value", [-1.01, 1.001, float("nan"), float("inf")])
def test_locations_outside_are_refused_by_number_and_place(value):
    with pytest.raises(ObservationError, match="sensor 1 at") as caught:
        LINE.require_inside(torch.tensor([[0.0], [value]]))
    assert "[-1.0] to [1.0]" in str(caught.value)


def test_boundary_points_are_inside():
    BOX.require_inside(BOX.points().float())


TORUS = Grid((0.0, -1.0), (2.0, 1.0), (8, 12), periodic=True)


def test_a_periodic_grid_has_no_point_at_its_upper_end():
    points = TORUS.points()
    assert TORUS.spacing() == [2 / 8, 2 / 12] and points.shape == (96, 2)
    torch.testing.assert_close(points[:12, 1], -1 + torch.arange(12).double() / 6)
    torch.testing.assert_close(points[::12, 0], torch.arange(8).double() / 4)
    closed = Grid(TORUS.lower, TORUS.upper, (9, 13))
    kept = closed.points().reshape(9, 13, 2)[:-1, :-1].flatten(0, 1)
    torch.testing.assert_close(points, kept, rtol=0, atol=1e-15)


def test_periodic_quadrature_sums_to_the_volume_and_is_exact_for_waves_the_grid_resolves():
    weights, (x, y) = TORUS.quadrature(), TORUS.points().T
    assert abs(float(weights.sum()) - 4.0) < 1e-13
    for a in range(8):
        wave = torch.cos(np.pi * a * x + 0.3) * (1 + torch.sin(np.pi * 5 * y))
        exact = 4 * np.cos(0.3) if a == 0 else 0.0
        assert abs(float(weights @ wave) - exact) < 1e-13
    assert float(weights @ torch.cos(np.pi * 8 * x)) == pytest.approx(4.0)  # seen as a constant


def test_a_periodic_grid_of_100_points_contains_one_of_50():
    fine = Grid((0.0, 0.0), (1.0, 1.0), (100, 100), periodic=True)
    coarse, index = fine.subgrid(2)
    assert coarse == Grid((0.0, 0.0), (1.0, 1.0), (50, 50), periodic=True)
    torch.testing.assert_close(fine.points()[index], coarse.points(), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="stride 3"):
        fine.subgrid(3)


def test_periodic_interpolation_is_exact_on_nodes_and_on_their_copies():
    values = torch.randn(96, 3, generator=torch.Generator().manual_seed(0)).double()
    points = TORUS.points()
    assert torch.equal(TORUS.interpolate(values, points), values)
    corners = torch.tensor([[2.0, -1.0], [0.0, 1.0], [2.0, 1.0]]).double()
    assert torch.equal(TORUS.interpolate(values, corners), values[:1].expand(3, 3))


def test_periodic_interpolation_does_not_know_where_the_period_starts():
    """Values rolled by some nodes, asked at places shifted as far: across the seam as within."""
    values = torch.randn(8, 12, 1, generator=torch.Generator().manual_seed(1)).double()
    unit = torch.rand(40, 2, generator=torch.Generator().manual_seed(2)).double()
    queries = torch.tensor(TORUS.lower) + 2 * unit
    expected = TORUS.interpolate(values.flatten(0, 1), queries)
    lower, h = torch.tensor(TORUS.lower), torch.tensor(TORUS.spacing(), dtype=torch.float64)
    for rolls in ((1, 0), (3, 5), (7, 11)):
        moved = lower + (queries + h * torch.tensor(rolls) - lower) % 2.0
        found = TORUS.interpolate(values.roll(rolls, (0, 1)).flatten(0, 1), moved)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_periodic_interpolation_is_of_sixth_order_up_to_the_seam():
    def f(x):
        return torch.exp(torch.sin(2 * np.pi * x))

    sizes = np.array([20, 40, 80, 160])
    errors = []
    for n in sizes:
        grid = Grid((0.0,), (1.0,), (int(n),), periodic=True)
        queries = grid.points() + 0.5 / n  # the middle of every cell, the one that wraps included
        errors.append(float((grid.interpolate(f(grid.points()), queries) - f(queries)).abs().max()))
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(order - 6) < 0.3, (order, errors)


def test_the_seam_of_a_grid_that_is_not_periodic_is_a_wall():
    """Its last values have no influence on its first cell."""
    values = torch.zeros(41, 1).double()
    values[-6:] = 1.0
    assert float(LINE.interpolate(values, torch.tensor([[-0.99]]))) == 0.0
    ring = Grid((-1.0,), (1.0,), (41,), periodic=True)
    assert float(ring.interpolate(values, torch.tensor([[-0.99]]))) != 0.0
