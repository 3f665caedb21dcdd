"""Posterior figures whose panels differ in sensors, noise and method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.report.fields import NOISE, Inputs, choose_counts, make_inputs
from tests.report.inside import require_tidy
from uqsonet.errors import DataError
from uqsonet.fields import Transform
from uqsonet.problems import get_problem
from uqsonet_study.config import ReferenceConfig
from uqsonet_study.references import compute_reference
from uqsonet_study.report.figures import posterior as figures
from uqsonet_study.report.figures.chosen import Chosen, predict
from uqsonet_study.report.figures.posterior import posterior_figure
from uqsonet_study.report.figures.style import BLUE, RED, styled

LOUD = 1.0
ENSEMBLE = "Deep ensemble of VIDON"


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


def cases(inputs: Inputs, loud: Path, method: str = "UQ-SONet") -> list[Chosen]:
    """Rows are numbers of sensors, columns levels of noise."""
    return [
        Chosen(inputs.functions, reference, m, noise, Constant(), method)
        for m in (1, 3)
        for reference, noise in ((inputs.reference, NOISE), (loud, LOUD))
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Collect figures instead of saving them."""
    found: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: found.append(figure))
    with styled():
        yield found


def show(panels: list[Chosen], drawn: list[Figure], columns: int = 2) -> Figure:
    posterior_figure(panels, "full", Path("a.pdf"), Path("a.png"), columns)
    return drawn[-1]


def split(figure: Figure) -> tuple[list[Axes], list[Axes]]:
    """Return the axes of laws and those of the input."""
    laws = [axes for axes in figure.axes if axes.get_title()]
    return laws, [axes for axes in figure.axes if axes not in laws and axes.axison]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_panels_of_noise(inputs: Inputs, loud: Path, drawn: list[Figure]) -> None:
    figure = show(cases(inputs, loud), drawn)
    laws, _ = split(figure)
    heads = [axes.get_title().split("\n")[0] for axes in laws]
    assert heads == [rf"$m = {m}$, $\sigma = {noise:g}$" for m in (1, 3) for noise in (NOISE, LOUD)]
    assert all("error of mean" in axes.get_title() for axes in laws)
    assert legend(figure) == [
        "reference, mean",
        "reference, mean ± 2 std",
        "UQ-SONet, mean",
        "UQ-SONet, mean ± 2 std",
        "true input $k(x)$, right axis",
        "noisy observations",
    ]
    require_tidy(figure)


def test_what_is_drawn_is_what_was_given(inputs: Inputs, loud: Path, drawn: list[Figure]) -> None:
    chosen = cases(inputs, loud)
    figure = show(chosen, drawn)
    data, panels = predict(chosen)
    laws, twins = split(figure)
    for axes, twin, panel in zip(laws, twins, panels, strict=True):
        by_color = {
            color: [
                np.asarray(line.get_ydata()) for line in axes.lines if line.get_color() == color
            ]
            for color in (RED, BLUE)
        }
        for color, (mean, std) in ((RED, panel.reference), (BLUE, panel.predicted)):
            low, high, middle = by_color[color]
            np.testing.assert_allclose(low, mean - 2 * std)
            np.testing.assert_allclose(high, mean + 2 * std)
            np.testing.assert_allclose(middle, mean)
        truth, dots = twin.lines
        np.testing.assert_allclose(truth.get_ydata(), data.kappa[0].numpy())
        np.testing.assert_allclose(dots.get_xdata(), panel.given.sensors[:, 0])
        np.testing.assert_allclose(dots.get_ydata(), panel.given.values)


def test_a_model_is_told_the_noise(inputs: Inputs, loud: Path) -> None:
    chosen = cases(inputs, loud)
    _, panels = predict(chosen)
    told = [one.model.noise for one in chosen]  # type: ignore[attr-defined]
    assert told == [[NOISE], [LOUD]] * 2
    assert [panel.noise_std for panel in panels] == [NOISE, LOUD] * 2


def test_an_ensemble_is_named(inputs: Inputs, loud: Path, drawn: list[Figure]) -> None:
    figure = show(cases(inputs, loud, ENSEMBLE), drawn)
    assert legend(figure)[2:4] == [f"{ENSEMBLE}, mean", f"{ENSEMBLE}, mean ± 2 std"]
    assert not any(ENSEMBLE in axes.get_title() for axes in split(figure)[0])
    require_tidy(figure)


def test_several_methods_are_named_in_titles(
    inputs: Inputs, loud: Path, drawn: list[Figure]
) -> None:
    mixed = [*cases(inputs, loud)[:1], *cases(inputs, loud, ENSEMBLE)[:2]]
    figure = show(mixed, drawn)
    heads = [axes.get_title().split("\n")[0] for axes in split(figure)[0]]
    assert heads == ["UQ-SONet", ENSEMBLE, ENSEMBLE]
    assert legend(figure)[2] == "prediction, mean"
    require_tidy(figure)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_columns(inputs: Inputs, loud: Path, drawn: list[Figure], columns: int) -> None:
    figure = show(cases(inputs, loud), drawn, columns)
    laws, twins = split(figure)
    assert len(laws) == len(twins) == 4
    named = [bool(axes.get_xlabel()) for axes in laws]
    assert named == [i + columns >= 4 for i in range(4)]
    assert [bool(axes.get_ylabel()) for axes in laws] == [i % columns == 0 for i in range(4)]
    require_tidy(figure)


def test_noise_on_a_logarithm_is_shown_on_a_logarithmic_axis(
    inputs: Inputs, loud: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = show(cases(inputs, loud), drawn)
    assert {axes.get_yscale() for axes in plain.axes} == {"linear"}
    data, panels = predict(cases(inputs, loud))
    monkeypatch.setattr(type(data.problem), "transform", Transform("log"))
    data.kappa.clamp_(min=0.2)
    wild = [
        dataclasses.replace(p, given=dataclasses.replace(p.given, values=abs(p.given.values) * 50))
        for p in panels
    ]
    monkeypatch.setattr(figures, "predict", lambda _: (data, wild))
    figure = show(cases(inputs, loud), drawn)
    laws, twins = split(figure)
    assert {axes.get_yscale() for axes in laws} == {"linear"}
    for twin in twins:
        assert twin.get_yscale() == "log"
        low, high = twin.get_ylim()
        assert all(low < np.min(line.get_ydata()) for line in twin.lines)
        assert all(high > np.max(line.get_ydata()) for line in twin.lines)
    assert legend(figure)[4].endswith("log. right axis")
    require_tidy(figure)
    quiet = [dataclasses.replace(p, noise_std=0.0) for p in panels]
    monkeypatch.setattr(figures, "predict", lambda _: (data, quiet))
    figure = show(cases(inputs, loud), drawn)
    assert {axes.get_yscale() for axes in figure.axes} == {"linear"}
    assert legend(figure)[4:] == ["input $k(x)$, right axis", "sensors"]
    assert split(figure)[0][0].get_title().startswith("$m = 1$: error of mean")


def test_maps_name_method_and_noise(plane: Inputs, drawn: list[Figure]) -> None:
    (one,) = choose_counts(plane, [3])
    figure = show([dataclasses.replace(one, method=ENSEMBLE)], drawn)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles[0] == rf"true input $f${chr(10)}$m = 3$ sensors, noise $\sigma = {NOISE:g}$"
    assert [titles[2].replace("\n", " "), titles[5].replace("\n", " ")] == [
        f"{ENSEMBLE} mean",
        f"{ENSEMBLE} std",
    ]
    require_tidy(figure)


def test_what_is_refused(inputs: Inputs, plane: Inputs, loud: Path, tmp_path: Path) -> None:
    files = tmp_path / "a.pdf", tmp_path / "a.png"
    first = cases(inputs, loud)[0]
    with pytest.raises(DataError, match=r"of noise 0\.1, asked for 0\.3"):
        posterior_figure([dataclasses.replace(first, noise_std=0.3)], "full", *files)
    with pytest.raises(DataError, match="found 0 data sets"):
        posterior_figure([], "full", *files)
    (flat,) = choose_counts(plane, [3])
    with pytest.raises(DataError, match="found 2 data sets"):
        posterior_figure([first, flat], "full", *files)
    with pytest.raises(DataError, match="a figure of maps has one panel, not 2"):
        posterior_figure([flat, flat], "full", *files)
    assert get_problem("toy_field").grid.dim == 2 and not list(tmp_path.iterdir())


def test_files_repeat_byte_by_byte(inputs: Inputs, loud: Path, tmp_path: Path) -> None:
    found = []
    for name in "ab":
        pdf, png = tmp_path / f"{name}.pdf", tmp_path / f"{name}.png"
        posterior_figure(cases(inputs, loud), "full", pdf, png)
        found.append((pdf.read_bytes(), png.read_bytes()))
    assert found[0] == found[1] and b"/Type3" not in found[0][0]
