"""The figure of sample functions: spectra with known answers, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.report.conftest import make_config
from tests.report.fields import NOISE, Inputs, make_inputs, panel_files
from tests.report.inside import require_tidy
from uqsonet.errors import ConfigError, DataError
from uqsonet.fields import Grid
from uqsonet_study.config import ReferenceConfig
from uqsonet_study.references import compute_reference
from uqsonet_study.report.figures.colours import PREDICTION, REFERENCE
from uqsonet_study.report.figures.spectra import draw, power
from uqsonet_study.report.figures.style import styled


def with_samples(problem: str, folder: Path) -> Inputs:
    found = make_inputs(problem, folder)
    used = ReferenceConfig(sets=3, reference_samples=200, wasserstein=True)
    files = found.functions, folder / "sensors.h5"
    compute_reference(*files, "test", "paper", used, NOISE, 0, folder / "samples.h5")
    return dataclasses.replace(found, reference=folder / "samples.h5")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return with_samples("toy_linear", tmp_path_factory.mktemp("spectra"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return with_samples("toy_field", tmp_path_factory.mktemp("plane"))


def show(panels: list[dict[str, Any]]) -> Figure:
    return draw(make_config(), "spectra", {"panels": panels})


def test_a_cosine_has_power_at_its_own_wave_number_alone() -> None:
    grid = Grid((0.0,), (1.0,), (16,))
    x = (np.arange(16) + 0.5) / 16
    found = power(3 * np.cos(np.pi * 5 * x)[None], grid)
    assert found[4] == pytest.approx(9 * 8) and np.delete(found, 4).max() < 1e-25


def test_white_noise_has_the_same_power_at_every_coefficient() -> None:
    grid = Grid((0.0, 0.0), (1.0, 1.0), (12, 16))
    noise = np.random.default_rng(0).standard_normal((4000, 12 * 16))
    found = power(noise, grid)
    lengths = np.sqrt(np.add.outer(np.arange(12.0) ** 2, np.arange(16.0) ** 2))
    counts = [np.sum(np.rint(lengths) == k) for k in range(1, 12)]
    assert found == pytest.approx(counts, rel=0.05)


def test_spectra_of_an_exact_linear_law_agree(inputs: Inputs, plane: Inputs) -> None:
    """The toys' models are close to exact before training, in two modes of two or more."""
    with styled():
        figure = show([panel_files(i, [3])[0] for i in (inputs, plane)])
        require_tidy(figure)
    for column, points in zip(np.reshape(figure.axes, (3, 2)).T, (17, 9), strict=True):
        for axes, color in zip(column[:2], (REFERENCE, PREDICTION), strict=True):
            assert [line.get_color() for line in axes.lines] == [color] * 5
            assert all(len(line.get_xdata()) == points for line in axes.lines)
        theirs, ours = (line.get_ydata() for line in column[2].lines)
        assert 0.2 < ours[0] / theirs[0] < 5


def test_references_without_samples_are_refused(inputs: Inputs) -> None:
    (panel,) = panel_files(inputs, [1])
    plain = panel | {"reference": str(inputs.functions.parent / "paper.h5")}
    with pytest.raises(DataError, match=r"paper\.h5: holds no samples"):
        show([plain])
    with pytest.raises(DataError, match="no observation set with 2 sensors"):
        show(panel_files(inputs, [2]))


def test_the_configuration_asks_for_samples() -> None:
    figure = {"s": {"layout": "spectra", "experiments": ["e_1"]}}
    with pytest.raises(ConfigError, match=r"figures\.s: e_1 needs .*evaluations\.paper\.wasserst"):
        make_config(figures=figure)
