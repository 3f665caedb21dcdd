"""Answers for ArviZ: the draws are those of `sample`, on the fields' axes."""

from __future__ import annotations

import sys
import types
import warnings

import numpy as np
import pytest
import xarray

import uqsonet
from uqsonet.errors import MissingLibraryError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # of its next version
    import arviz

PLACES, VALUES = [-0.6, 0.1, 0.7], [0.8, 1.3, 0.4]


@pytest.fixture(scope="module")
def answer() -> uqsonet.FieldPosterior:
    return uqsonet.load("diffusion1d").condition(PLACES, VALUES, noise_std=0.1)


def test_draws_before_and_after_the_measurement_are_those_of_the_answer(answer):
    data = answer.to_inference_data(draws=300, rng=4)
    assert isinstance(data, arviz.InferenceData)
    assert data.groups() == ["posterior", "prior"]
    for name in ("k", "u"):
        after, before = data["posterior"][name], data["prior"][name]
        assert after.dims == ("chain", "draw", "x") and after.shape == (1, 300, 401)
        np.testing.assert_array_equal(after[0], answer[name].sample(300, rng=4))
        free = uqsonet.load("diffusion1d").condition()[name]
        np.testing.assert_array_equal(before[0], free.sample(300, rng=4))
    two = data["posterior"]["u"].sel(x=[0.0, 0.5], method="nearest")
    summary = arviz.summary(two, kind="stats", round_to="none")
    np.testing.assert_allclose(summary["mean"], answer.mean([[0.0], [0.5]]), atol=0.03)


def test_version_1_of_arviz_gets_a_tree_and_none_at_all_is_said(answer, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(__version__="1.3.0"))
    tree = answer.to_inference_data(draws=5)
    assert isinstance(tree, xarray.DataTree)
    assert set(tree.children) == {"posterior", "prior"}
    assert tree["posterior/u"].shape == (1, 5, 401)
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(MissingLibraryError, match=r"uqsonet\[handover\]"):
        answer.to_inference_data()


def test_sets_have_a_dimension_and_fields_on_other_points_have_axes_of_their_own():
    rng = np.random.default_rng(0)
    coordinates = rng.standard_normal((60, 3))
    k = xarray.DataArray(
        coordinates @ rng.standard_normal((3, 12)), {"depth": np.arange(12.0)}, ("run", "depth")
    )
    u = coordinates @ rng.standard_normal((3, 35))
    grid = np.arange(5.0), np.arange(7.0)
    runs = uqsonet.Runs({"k": k, "f": coordinates[:, :1]}, {"u": (u, grid), "v": (u[:, :9])})
    model = uqsonet.fit(runs, sensors=[3], law="gaussian", bar=False)
    one = {"depth": [2.0, 9.0, 0.0], "value": [0.1, 0.2, 0.3], "field": ["k", "k", "f"]}
    two = {"depth": [3.0], "value": [0.5], "field": ["k"]}
    data = model.condition([one, two]).to_inference_data(draws=4)
    after = data["posterior"]
    assert after["k"].dims == ("chain", "draw", "set", "depth_k")
    assert after["u"].dims == ("chain", "draw", "set", "x_u", "y_u")
    assert after["v"].dims == ("chain", "draw", "set", "x_v")
    assert data["prior"]["u"].dims == ("chain", "draw", "x_u", "y_u")
