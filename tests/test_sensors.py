"""What sensors read, evaluation sets, and which observations a field refuses."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from uqsonet.errors import ObservationError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.grid import Grid
from uqsonet.sensors.sensors import sensors_at
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.references import evaluation_observations

GRID = Grid((-1.0,), (1.0,), (33,))
PLAIN, POSITIVE = Field("u", GRID), Field("k", GRID, Transform("log"))


def test_a_field_is_read_at_the_sensors_with_noise_on_the_gaussian_field():
    kappa = torch.arange(66.0).reshape(2, 33)
    x, y = PLAIN.read(kappa, torch.tensor([[0, 32], [16, 1]]))
    assert y.tolist() == [[0.0, 32.0], [49.0, 34.0]]
    torch.testing.assert_close(x[..., 0], torch.tensor([[-1.0, 1.0], [0.0, -0.9375]]))
    layouts, noise = torch.tensor([[3, 8]]), torch.tensor([[0.5, -1.0]])
    kappa = kappa[:1] + 1
    torch.testing.assert_close(PLAIN.read(kappa, layouts, noise)[1], kappa[:, [3, 8]] + noise)
    found = POSITIVE.read(kappa, layouts, noise)[1]
    torch.testing.assert_close(found, kappa[:, [3, 8]] * noise.exp())


def test_evaluation_noise_has_the_stated_standard_deviation():
    problem, generator = get_problem("diffusion1d"), np.random.default_rng(0)
    layouts = {
        m: torch.from_numpy(uniform_layouts(generator, 401, m, 2000)).long() for m in range(1, 11)
    }
    o = evaluation_observations(problem.fields, torch.ones(2000, 401), layouts, 0.5, 1, "test")
    errors = o.values.log()[o.mask]
    size = len(errors)
    assert size == 110_000
    assert abs(errors.mean()) < norm.isf(5e-4) * 0.5 / size**0.5
    assert abs(errors.std() / 0.5 - 1) < norm.isf(5e-4) / (2 * size) ** 0.5
    quiet = evaluation_observations(problem.fields, torch.ones(2000, 401), layouts, 0.0, 1, "test")
    assert (quiet.values == 1).all()


def test_evaluation_sets_are_ordered_by_count_then_function():
    problem = get_problem("toy_linear")
    kappa = torch.arange(99.0).reshape(3, 33)
    layouts = {1: torch.tensor([[0], [1], [2], [9]]), 2: torch.tensor([[3, 4]] * 4)}
    o = evaluation_observations(problem.fields, kappa, layouts, 0.0, 1, "test")
    assert o.counts.tolist() == [1, 1, 1, 2, 2, 2]
    assert o.values[:, 0].tolist() == [0.0, 34.0, 68.0, 3.0, 36.0, 69.0]
    assert o.mask.tolist() == [[True, False]] * 3 + [[True, True]] * 3


def test_readings_in_one_column_are_refused_as_they_may_be_one_set_or_many():
    column = [[0.1], [0.5], [0.9]]
    for places in (column, [0.1, 0.5, 0.9]):
        with pytest.raises(ObservationError, match=r"shape \(3, 1\) may be .* shape \(3,\), and"):
            sensors_at(PLAIN, places, [[1.0], [2.0], [3.0]])
    assert sensors_at(PLAIN, column, [1.0, 2.0, 3.0]).values.shape == (1, 3)
    assert sensors_at(PLAIN, [[[0.1]], [[0.5]]], [[1.0], [2.0]]).values.shape == (2, 1)
    assert sensors_at(PLAIN, [[0.1]], [[1.0]]).values.shape == (1, 1)
