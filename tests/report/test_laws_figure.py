"""The figure of laws: samples beside those of the reference, in one and in two variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import wasserstein_distance

from tests.report.conftest import COUNTS
from tests.report.fields import Inputs, make_inputs, panel_files, saved
from tests.report.inside import require_tidy
from uqsonet.errors import DataError
from uqsonet.gaussian_process import GaussianField
from uqsonet_study.config import LawFigure
from uqsonet_study.report.figures import laws
from uqsonet_study.report.figures.panels import read_panels
from uqsonet_study.report.figures.style import styled

COUNT = COUNTS[-1]


@pytest.fixture(scope="module", params=["toy_linear", "toy_field"])
def inputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return make_inputs(request.param, tmp_path_factory.mktemp("laws"))


def drawn(inputs: Inputs) -> Figure:
    declared = LawFigure.model_construct(
        experiment="e_1", count=COUNT, methods=["uqsonet", "uqsonet"]
    )
    config = inputs.config.model_copy(update={"figures": {"f": declared}})
    (panel,) = panel_files(inputs, [COUNT])
    panel["weights"] *= 2
    with styled():
        return laws.draw(config, "f", {"panels": [panel]})


def test_rows_of_laws_stand_below_the_reference_and_bytes_repeat(
    inputs: Inputs, tmp_path: Path
) -> None:
    figure = drawn(inputs)
    require_tidy(figure)
    words = [axes.get_title() + axes.get_ylabel() for axes in figure.axes]
    assert sum(word.startswith("reference") for word in words) == 1
    # A row each, and errors beside the reference's moments.
    assert sum("Gaussian" in word for word in words) == 2
    assert sum(" %" in word for word in words) in (2, 4)
    assert f"$m = {COUNT}$" in str(figure.get_suptitle())
    assert saved(drawn(inputs), tmp_path) == saved(drawn(inputs), tmp_path)


def test_reference_samples_are_those_of_the_reference_posterior(inputs: Inputs) -> None:
    (panel,) = read_panels(panel_files(inputs, [COUNT]))
    row = laws._reference(panel, 4000)
    other = laws._law(panel, "gaussian", inputs.weights, 4000)
    assert panel.reference is not None
    mean, std = panel.reference
    inside = std > 0.1 * std.max()
    error = std.max() * (1 / 4000 + 1 / 200) ** 0.5  # the stored reference has 200 samples
    assert np.abs(row.samples.mean(0) - mean).max() < 4 * error
    assert np.abs(row.samples.std(0)[inside] / std[inside] - 1).max() < 0.25
    if panel.fields.name == "toy_linear":  # whose law the model's two modes hold
        k = int(np.argmax(std))
        apart = wasserstein_distance(row.samples[:, k], other.samples[:, k])
        assert apart < 0.2 * std[k]


def test_a_problem_without_posterior_is_refused(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GaussianField, "posterior", lambda *_: None)
    with pytest.raises(DataError, match="nobody knows the posterior"):
        drawn(inputs)
