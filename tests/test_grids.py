"""Grids: exact on nodes, sixth order between them, quadrature and subgrids as stated."""

import numpy as np
import pytest
import torch

from uqsonet.errors import ObservationError
from uqsonet.fields.grid import Grid

LINE = Grid((-1.0,), (1.0,), (41,))
BOX = Grid((0.0, -1.0), (2.0, 1.0), (9, 13))
TORUS = Grid((0.0, -1.0), (2.0, 1.0), (8, 12), periodic=True)


def rough(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def test_points_run_over_the_last_axis_first():
    points = BOX.points()
    assert points.shape == (9 * 13, 2)
    torch.testing.assert_close(points[:13, 0], torch.zeros(13).double())
    expected = torch.linspace(-1, 1, 13).double()
    torch.testing.assert_close(points[:13, 1], expected, atol=1e-7, rtol=0)
    assert points[-1].tolist() == [2.0, 1.0]


def test_a_periodic_grid_has_no_point_at_its_upper_end():
    assert TORUS.spacing() == [2 / 8, 2 / 12]
    kept = BOX.points().reshape(9, 13, 2)[:-1, :-1].flatten(0, 1)
    torch.testing.assert_close(TORUS.points(), kept, rtol=0, atol=1e-15)


@pytest.mark.parametrize("grid", [LINE, BOX, TORUS], ids=["1d", "2d", "periodic"])
def test_interpolation_is_exact_on_nodes_alone_and_among_other_places(grid):
    values, nodes = rough(grid.size, 3), grid.points()
    assert torch.equal(grid.interpolate(values, nodes), values)
    assert torch.equal(grid.interpolate(values, nodes.float()), values)
    assert grid.interpolate(values.float(), nodes).dtype == torch.float32
    other = nodes[:1] + 0.3 * torch.tensor(grid.spacing())
    assert torch.equal(grid.interpolate(values, torch.cat([nodes, other]))[:-1], values)
    if grid.periodic:  # copies of the first point
        corners = torch.tensor([[2.0, -1.0], [0.0, 1.0], [2.0, 1.0]]).double()
        assert torch.equal(grid.interpolate(values, corners), values[:1].expand(3, 3))


CURVES = {
    False: lambda x: torch.sin(10 * x) + torch.exp(x),
    True: lambda x: torch.exp(torch.sin(2 * np.pi * x)),
}


@pytest.mark.parametrize("periodic", [False, True])
def test_interpolation_is_of_sixth_order_up_to_the_ends_or_the_seam(periodic):
    f, cells, errors = CURVES[periodic], np.array([20, 40, 80, 160]) * (1 if periodic else 2), []
    for n in cells.tolist():
        grid = Grid((-1.0,), (0.0 if periodic else 1.0,), (n + (not periodic),), periodic)
        queries = grid.points()[:n] + grid.spacing()[0] / 2  # the middle of every cell
        errors.append(float((grid.interpolate(f(grid.points()), queries) - f(queries)).abs().max()))
    order = -np.polyfit(np.log(cells), np.log(errors), 1)[0]
    assert abs(order - 6) < 0.3, (order, errors)


def test_products_of_polynomials_of_degree_five_are_reproduced():
    def f(x):
        return x[..., :1] ** 5 * x[..., 1:] ** 4 - x[..., :1] + 2

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


def test_no_place_has_no_value_whatever_its_coordinates() -> None:
    """An answer to sensors of a field on a line reads none of a field in the plane."""
    values = BOX.points()
    assert BOX.interpolate(values, torch.zeros(2, 0, 1)).shape == (2, 0, values.shape[1])
    assert BOX.interpolate(lambda points: values[points], torch.zeros(0, 1)).shape[0] == 0


def test_periodic_interpolation_does_not_know_where_the_period_starts():
    """Values rolled by some nodes, asked at places shifted as far: across the seam as within."""
    values = rough(8, 12, 1, seed=1)
    unit = torch.rand(40, 2, generator=torch.Generator().manual_seed(2)).double()
    queries = torch.tensor(TORUS.lower) + 2 * unit
    expected = TORUS.interpolate(values.flatten(0, 1), queries)
    lower, h = torch.tensor(TORUS.lower), torch.tensor(TORUS.spacing(), dtype=torch.float64)
    for rolls in ((1, 0), (3, 5), (7, 11)):
        moved = lower + (queries + h * torch.tensor(rolls) - lower) % 2.0
        found = TORUS.interpolate(values.roll(rolls, (0, 1)).flatten(0, 1), moved)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_quadrature_integrates_linear_functions_exactly_and_smooth_ones_at_second_order():
    assert float(LINE.quadrature().sum()) == pytest.approx(2.0, abs=1e-13)
    x = BOX.points()
    linear = float((BOX.quadrature() * (x[:, 0] + 3 * x[:, 1] + 1)).sum())
    assert abs(linear - 8.0) < 1e-12
    sizes, errors = np.array([20, 40, 80]), []
    for n in sizes:
        grid = Grid((0.0,), (1.0,), (int(n) + 1,))
        total = float((grid.quadrature() * grid.points()[:, 0].exp()).sum())
        errors.append(abs(total - (np.e - 1)))
    assert abs(-np.polyfit(np.log(sizes), np.log(errors), 1)[0] - 2) < 0.01


def test_periodic_quadrature_is_exact_for_waves_that_the_grid_resolves():
    weights, (x, y) = TORUS.quadrature(), TORUS.points().T
    for a in range(8):
        wave = torch.cos(np.pi * a * x + 0.3) * (1 + torch.sin(np.pi * 5 * y))
        exact = 4 * np.cos(0.3) if a == 0 else 0.0
        assert abs(float(weights @ wave) - exact) < 1e-13
    assert float(weights @ torch.cos(np.pi * 8 * x)) == pytest.approx(4.0)  # seen as a constant


@pytest.mark.parametrize(
    ("grid", "stride", "shape"), [(BOX, 4, (3, 4)), (LINE, 1, (41,)), (TORUS, 2, (4, 6))]
)
def test_subgrid_indices_pick_the_points_of_the_subgrid(grid, stride, shape):
    coarse, index = grid.subgrid(stride)
    assert coarse == Grid(grid.lower, grid.upper, shape, grid.periodic)
    torch.testing.assert_close(grid.points()[index], coarse.points(), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="stride 3"):
        LINE.subgrid(3)


@pytest.mark.parametrize("value", [-1.01, 1.001, float("nan"), float("inf")])
def test_locations_outside_are_refused_by_number_and_place(value):
    with pytest.raises(ObservationError, match=r"sensor 1 at.*\[-1.0\] to \[1.0\]"):
        LINE.require_inside(torch.tensor([[0.0], [value]]))
    BOX.require_inside(BOX.points().float())  # points of the boundary are inside
