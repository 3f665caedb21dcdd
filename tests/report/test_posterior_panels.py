"""Posterior figures whose panels differ in sensors, noise and method."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.report.fields import (
    NOISE,
    Inputs,
    make_inputs,
    panel_files,
    posterior_config,
    use_logarithm,
)
from tests.report.inside import require_tidy
from uqsonet.errors import DataError
from uqsonet_study.config import ReferenceConfig
from uqsonet_study.references import compute_reference
from uqsonet_study.report.figures import posterior
from uqsonet_study.report.figures.colours import PREDICTION, REFERENCE, TRUTH
from uqsonet_study.report.figures.panels import read_panels
from uqsonet_study.report.figures.style import styled

LOUD = 1.0


class Law:
    def mean(self) -> torch.Tensor:
        return torch.full((1, 33), 0.5)

    def std(self) -> torch.Tensor:
        return torch.full((1, 33), 0.25)


class Constant:
    """Predicts the same whatever it is told, and remembers what that was."""

    def __init__(self) -> None:
        self.noise: list[float] = []

    def condition(self, locations: Any, values: Any, mask: Any, noise_std: float, /) -> Law:
        assert locations.shape[:2] == values.shape == mask.shape and len(values) == 1
        self.noise.append(noise_std)
        return Law()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return make_inputs("toy_linear", tmp_path_factory.mktemp("panels"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return make_inputs("toy_field", tmp_path_factory.mktemp("plane"))


@pytest.fixture(scope="module")
def loud(inputs: Inputs) -> Path:
    """References of the same functions and sensors under more noise."""
    path = inputs.reference.with_name("loud.h5")
    sensors = inputs.reference.with_name("sensors.h5")
    used = ReferenceConfig(sets=3, reference_samples=200)
    compute_reference(inputs.functions, sensors, "test", "paper", used, LOUD, 0, path)
    return path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Constant:
    """What stands for the model of every panel."""
    found = Constant()
    monkeypatch.setattr(posterior, "load_predictor", lambda _: found)
    return found


def cases(inputs: Inputs, loud: Path) -> list[dict[str, Any]]:
    """Rows are numbers of sensors, columns levels of noise."""
    plain = {"functions": str(inputs.functions)}
    return [
        plain | {"reference": str(reference), "sensors": m, "noise_std": noise}
        for m in (1, 3)
        for reference, noise in ((inputs.reference, NOISE), (loud, LOUD))
    ]


def show(panels: list[dict[str, Any]], method: str = "uqsonet") -> Figure:
    with styled():
        return posterior.draw(posterior_config(method), "f", {"panels": panels})


def split(figure: Figure) -> tuple[list[Axes], list[Axes]]:
    """Return the axes of laws and those of the input."""
    laws = [axes for axes in figure.axes if axes.get_title()]
    return laws, [axes for axes in figure.axes if axes not in laws and axes.axison]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("method", ["uqsonet", "deep_ensemble"])
def test_panels_of_noise(inputs: Inputs, loud: Path, method: str) -> None:
    figure = show(cases(inputs, loud), method)
    laws, twins = split(figure)
    heads = [axes.get_title().split("\n")[0] for axes in laws]
    assert heads == [rf"$m = {m}$, $\sigma = {noise:g}$" for m in (1, 3) for noise in (NOISE, LOUD)]
    assert all("error of mean" in axes.get_title() for axes in laws)
    name = {"uqsonet": "UQ-SONet", "deep_ensemble": "Deep ensemble"}[method]
    assert legend(figure) == [
        "reference, mean",
        "reference, mean ± 2 std",
        "true output $u(x)$",
        f"{name}, mean",
        f"{name}, mean ± 2 std",
        "true input $k(x)$, right axis",
        "noisy observations",
    ]
    assert len(twins) == 4
    assert [bool(axes.get_xlabel()) for axes in laws] == [False, False, True, True]
    assert [bool(axes.get_ylabel()) for axes in laws] == [True, False, True, False]
    require_tidy(figure)


def test_what_is_drawn_is_what_was_given(inputs: Inputs, loud: Path, told: Constant) -> None:
    laws, twins = split(show(cases(inputs, loud)))
    assert told.noise == [NOISE, LOUD] * 2
    predicted = np.full(33, 0.5), np.full(33, 0.25)
    for axes, twin, panel in zip(laws, twins, read_panels(cases(inputs, loud)), strict=True):
        by_color: dict[Any, list[np.ndarray]] = {}
        for line in axes.lines:
            by_color.setdefault(line.get_color(), []).append(np.asarray(line.get_ydata()))
        for color, (mean, std) in ((REFERENCE, panel.reference), (PREDICTION, predicted)):
            low, high, middle = by_color[color]
            np.testing.assert_allclose(low, mean - 2 * std)
            np.testing.assert_allclose(high, mean + 2 * std)
            np.testing.assert_allclose(middle, mean)
        (output,) = by_color[TRUTH]
        np.testing.assert_allclose(output, panel.data.u[0].numpy())
        truth, dots = twin.lines
        np.testing.assert_allclose(truth.get_ydata(), panel.data.kappa[0].numpy())
        np.testing.assert_allclose(dots.get_xdata(), panel.sensors[:, 0])
        np.testing.assert_allclose(dots.get_ydata(), panel.values)


def test_noise_on_a_logarithm_is_shown_on_a_logarithmic_axis(
    inputs: Inputs, loud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = np.full(33, 0.5), np.full(33, 0.25)
    panels = read_panels(cases(inputs, loud))
    with styled():
        plain = posterior.draw_lines(panels, [law] * 4, "A")
    assert {axes.get_yscale() for axes in plain.axes} == {"linear"}
    for panel in panels:
        use_logarithm(monkeypatch, panel)
        panel.data.kappa.clamp_(min=0.2)
        panel.observations.values.abs_().mul_(50)
    with styled():
        figure = posterior.draw_lines(panels, [law] * 4, "A")
    laws, twins = split(figure)
    assert {axes.get_yscale() for axes in laws} == {"linear"}
    for twin in twins:
        assert twin.get_yscale() == "log"
        low, high = twin.get_ylim()
        assert all(low < np.min(line.get_ydata()) for line in twin.lines)
        assert all(high > np.max(line.get_ydata()) for line in twin.lines)
    assert legend(figure)[5].endswith("log. right axis")
    require_tidy(figure)
    quiet = [dataclasses.replace(panel, noise_std=0.0) for panel in panels]
    with styled():
        figure = posterior.draw_lines(quiet, [law] * 4, "A")
    assert {axes.get_yscale() for axes in figure.axes} == {"linear"}
    assert legend(figure)[5:] == ["true input $k(x)$, right axis", "sensors"]
    assert split(figure)[0][0].get_title().startswith("$m = 1$: error of mean")


def test_maps_name_a_method_with_a_long_name(plane: Inputs) -> None:
    (panel,) = read_panels(panel_files(plane, [3]))
    with styled():
        figure = posterior.draw_maps(panel, panel.reference, "Deep ensemble of VIDON")
    titles = [axes.get_title().replace("\n", " ") for axes in figure.axes if axes.get_title()]
    assert titles[2] == "Deep ensemble of VIDON mean" and titles[6].endswith("VIDON std")
    require_tidy(figure)


@pytest.mark.usefixtures("told")
def test_what_is_refused(inputs: Inputs, plane: Inputs, loud: Path) -> None:
    first = cases(inputs, loud)[0]
    with pytest.raises(DataError, match=r"of noise 0\.1, asked for 0\.3"):
        show([first | {"noise_std": 0.3}])
    with pytest.raises(DataError, match="found 0 data sets"):
        show([])
    (flat,) = panel_files(plane, [3])
    with pytest.raises(DataError, match="found 2 data sets"):
        show([first, flat])
    with pytest.raises(DataError, match="a figure of maps has one panel, not 2"):
        posterior.draw(posterior_config(), "f", {"panels": [flat, flat]})
