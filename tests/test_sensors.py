"""What sensors read, evaluation sets, and which observations a field refuses."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from uqsonet.errors import ObservationError
from uqsonet.fields import Field, Grid, Transform
from uqsonet.problems import get_problem
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.references import evaluation_observations

GRID = Grid((-1.0,), (1.0,), (33,))
PLAIN, POSITIVE = Field("u", GRID), Field("k", GRID, Transform("log"))
X = torch.tensor([[0.1], [-0.4], [0.9]])
Y = torch.tensor([1.0, 2.0, 3.0])


def test_a_field_is_read_at_the_sensors():
    problem = get_problem("toy_linear")
    kappa = torch.arange(66.0).reshape(2, 33)
    x, y = problem.fields.input.read(kappa, torch.tensor([[0, 32], [16, 1]]))
    assert y.tolist() == [[0.0, 32.0], [49.0, 34.0]]
    torch.testing.assert_close(x[..., 0], torch.tensor([[-1.0, 1.0], [0.0, -0.9375]]))


def test_noise_is_additive_on_the_gaussian_field():
    layouts, noise = torch.tensor([[3, 8]]), torch.tensor([[0.5, -1.0]])
    toy, diffusion = get_problem("toy_linear"), get_problem("diffusion1d")
    kappa = torch.rand(1, 33) + 1
    torch.testing.assert_close(
        toy.fields.input.read(kappa, layouts, noise)[1], kappa[:, [3, 8]] + noise
    )
    kappa = torch.rand(1, 401) + 1
    found = diffusion.fields.input.read(kappa, layouts, noise)[1]
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


def test_one_set_and_a_batch_are_told_apart():
    one, single = PLAIN.observations(X, Y)
    assert single and one.locations.shape == (1, 3, 1) and one.values.dtype == torch.float64
    many, single = PLAIN.observations(X[None].repeat(2, 1, 1), Y.repeat(2, 1))
    assert not single and many.counts.tolist() == [3, 3]
    flat, single = PLAIN.observations([0.1, -0.4, 0.9], [1, 2, 3])
    assert single and flat.locations[0, :, 0].tolist() == [0.1, -0.4, 0.9]


def test_padding_may_hold_anything_and_spreads_nothing():
    x, y = X.clone(), Y.clone()
    x[2], y[2] = float("nan"), float("inf")
    o, _ = POSITIVE.observations(x, y, torch.tensor([True, True, False]))
    assert o.locations.isfinite().all() and o.values.isfinite().all()
    assert o.counts.tolist() == [2]


def poisoned(tensor, value):
    tensor = tensor.clone()
    tensor.view(-1)[1] = value
    return tensor


REFUSED = {
    "NaN value": (X, poisoned(Y, float("nan")), None, "finite .found NaN or inf"),
    "infinite value": (X, poisoned(Y, float("inf")), None, "finite"),
    "NaN location": (poisoned(X, float("nan")), Y, None, "finite"),
    "no sensor": (X[:0], Y[:0], None, "empty"),
    "all padding": (X, Y, torch.zeros(3).bool(), "empty"),
    "too few values": (X, Y[:2], None, r"\(1, 3, 1\), \(1, 2\), \(1, 2\)"),
    "mask too short": (X, Y, torch.ones(2).bool(), r"\(1, 3\), \(1, 2\)"),
    "scalar value": (X, torch.tensor(1.0), None, "shapes do not fit"),
    "outside": (poisoned(X, 1.2), Y, None, r"sensor 1 at \[1.2.*outside the domain \[-1.0\]"),
    "two coordinates": (torch.rand(3, 2), Y, None, "2 coordinates, the domain has 1"),
    "zero": (X, poisoned(Y, 0.0), None, "positive, found 0.0"),
    "negative": (X, poisoned(Y, -2.5), None, "positive, found -2.5"),
    "float mask": (X, Y, torch.ones(3), "boolean, found torch.float32"),
    "integer mask": (X, Y, torch.ones(3).int(), "boolean, found torch.int32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_observations_are_refused_with_what_was_found(case):
    x, y, mask, message = REFUSED[case]
    with pytest.raises(ObservationError, match=message):
        POSITIVE.observations(x, y, mask)


@pytest.mark.parametrize("bad", ["abc", [[1.0], [1.0, 2.0]], None, {"a": 1}])
def test_what_is_no_array_is_refused_as_an_observation_error(bad):
    with pytest.raises(ObservationError):
        PLAIN.observations(X, bad, None)


def test_a_batch_with_one_empty_set_is_refused():
    mask = torch.tensor([[True, True, True], [False, False, False]])
    with pytest.raises(ObservationError, match="empty"):
        PLAIN.observations(X.expand(2, 3, 1), Y.expand(2, 3), mask)
