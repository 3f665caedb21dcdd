"""Figures of functions: what is drawn is what was given; and equal figures are equal files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import Tensor

from tests.conftest import ToyPlane, register
from tests.report import test_score_figures as scored
from tests.report.conftest import COUNTS, make_study
from uqsonet.errors import DataError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.grid import Grid
from uqsonet.operator.base import build_model
from uqsonet.operator.weight_files import load, write_weights
from uqsonet_study.cases import Study
from uqsonet_study.layouts import generate_layouts
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import ObservationSets, load_sets
from uqsonet_study.references import compute_reference
from uqsonet_study.report import inputs
from uqsonet_study.report.figures import panels, posterior
from uqsonet_study.report.figures.maps import draw_map, scale
from uqsonet_study.report.figures.panels import Panel, read_panels
from uqsonet_study.report.figures.style import FIELD_MAP, STRIP, STYLE, new_figure, save, styled
from uqsonet_study.simulation import simulate
from uqsonet_study.storage import ArrayFile, load_functions

M = COUNTS[-1]
NOISE, LOUD = 0.1, 1.0


class ToyField(ToyPlane):
    """A smooth field in the plane that maps to its double."""

    name = "toy_field"
    input_symbol = "f"

    @cached_property
    def prior(self) -> GaussianField:
        kernel = squared_exponential(std=1.0, length=0.5)
        return GaussianField(self.grid.points(), lambda x: x[:, 0], kernel)

    def solve(self, kappa: Tensor) -> Tensor:
        return 2 * kappa


register(ToyField)


def study_of(problem: str, root: Path) -> Study:
    """A study with figures `one`, of a panel, and `every`, of each sensor count and noise."""
    of_panels = {"layout": "posterior", "experiment": "e_1"}
    experiment = {"problem": problem, "methods": ["uqsonet"], "noise": [NOISE, LOUD]}
    return make_study(
        root,
        problems={problem: {"training": 50, "validation": 4, "test": 6, "shard": 50}},
        experiment=experiment | {"trials": 1},
        tables={},
        figures={
            "one": of_panels | {"counts": [M], "noise": [NOISE]},
            "every": of_panels | {"counts": COUNTS, "noise": [NOISE, LOUD]},
        },
    )


def make_inputs(problem: str, root: Path) -> Study:
    """Make what the figures need, with an untrained model, which is already close to exact."""
    study = study_of(problem, root)
    files, sensors = inputs.panels(study, "every"), root / "sensors.h5"
    functions, (weights,) = files[0].functions, files[0].weights
    simulate(problem, study.config.problems[problem], 0, functions)
    generate_layouts(problem, study.config.layouts["m1+3"], 0, 4, 6, sensors)
    for one, noise_std in zip(files, (NOISE, LOUD), strict=False):
        used = study.evaluation(problem, "paper")
        compute_reference(functions, sensors, "test", "paper", used, noise_std, 0, one.reference)
    method = study.settings(study.of(["e_1"])[0], "uqsonet")
    fields = get_problem(problem).fields
    torch.manual_seed(0)
    model = build_model("uqsonet", fields, method.network, NOISE)
    with torch.no_grad():
        model.fit_constants(load_functions(functions, "training"))
    trained = dict(model.named_parameters())
    tensors = {
        f"parameter/{k}" if k in trained else f"buffer/{k}": v[None] if k in trained else v
        for k, v in model.state_dict().items()
    }
    meta = {"method": "uqsonet", "noise_std": NOISE, "trials": [0], "fields": fields.as_dict()}
    weights.parent.mkdir(parents=True)
    write_weights(weights, tensors, meta | {"config": method.model_dump(mode="json")})
    return study


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_inputs("toy_linear", tmp_path_factory.mktemp("line"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_inputs("toy_field", tmp_path_factory.mktemp("plane"))


def draw(study: Study, name: str) -> Figure:
    with styled():
        return posterior.draw(study, name)


def words(figure: Figure) -> str:
    return " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))


def lines(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in axes.lines]


def panels_of(study: Study) -> list[Panel]:
    return read_panels(inputs.panels(study, "every"))


def test_posteriors_are_those_of_the_panels(line: Study) -> None:
    figure = draw(line, "every")
    shown = [axes for axes in figure.axes if axes.get_title()]
    twins = [axes for axes in figure.axes if axes not in shown and axes.axison]
    model = load(inputs.panels(line, "every")[0].weights[0])
    for axes, twin, panel in zip(shown, twins, panels_of(line), strict=True):
        head = axes.get_title().split("\n")[0]
        assert head == rf"$m = {len(panel.values)}$, $\sigma = {panel.noise_std:g}$"
        o, expected = panel.observations, []
        law = model.condition(o.locations, o.values, o.mask, panel.noise_std)
        for mean, std in (panel.reference, (law.mean()[0].numpy(), law.std()[0].numpy())):
            expected += [mean - 2 * std, mean + 2 * std, mean]
        expected.append(panel.data.u[0].numpy())
        np.testing.assert_allclose(lines(axes), expected, rtol=1e-5, atol=1e-6)
        truth, dots = twin.lines
        np.testing.assert_allclose(truth.get_ydata(), panel.data.kappa[0].numpy())
        np.testing.assert_allclose(dots.get_xdata(), panel.sensors[:, 0])
        np.testing.assert_allclose(dots.get_ydata(), panel.values)
    assert "UQ-SONet, mean" in words(figure) and "noisy observations" in words(figure)


def test_noise_on_a_logarithmic_axis(line: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, law = panels_of(line)[:3], (np.full(33, 0.5), np.full(33, 0.25))
    for panel in shown:
        field = dataclasses.replace(panel.fields.input, transform=Transform("log"))
        changed = dataclasses.replace(panel.fields, input=field)
        monkeypatch.setattr(panel.data, "fields", changed)
        panel.data.kappa.clamp_(min=0.2)
        panel.observations.values.abs_().mul_(50)
    quiet = dataclasses.replace(shown[0], noise_std=0.0)
    with styled():
        figure, plain = (posterior.draw_lines(p, [law] * len(p), "A") for p in (shown, [quiet]))
    logarithmic = [axes for axes in figure.axes if axes.get_yscale() == "log"]
    assert len(logarithmic) == 3 and "log. right axis" in words(figure)
    low, high = logarithmic[0].get_ylim()
    assert all(low < min(y) and max(y) < high for axes in logarithmic for y in lines(axes))
    assert {axes.get_yscale() for axes in plain.axes} == {"linear"} and "noisy" not in words(plain)


def test_posteriors_in_the_plane(plane: Study) -> None:
    maps = [axes for axes in draw(plane, "one").axes if axes.get_title()]
    assert maps[0].get_title().endswith(rf"$m = {M}$ sensors, noise $\sigma = {NOISE:g}$")
    panel = read_panels(inputs.panels(plane, "one"))[0]
    images = [np.asarray(axes.images[0].get_array()).T.ravel() for axes in maps]
    kappa, mean, ours, error, u, std, _, _ = images
    given = *panel.truth, *panel.reference
    np.testing.assert_allclose((kappa, u, mean, std), given)
    np.testing.assert_allclose(error, np.abs(ours - mean))


def test_panels_that_cannot_be_drawn_are_refused(
    plane: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="a figure of maps has one panel, not 4"):
        draw(plane, "every")
    found, *rest = load_sets(inputs.panels(plane, "one")[0].reference)
    observed = ObservationSets(found.observations, found.function), *rest
    with monkeypatch.context() as patch, pytest.raises(DataError, match="has no posteriors"):
        patch.setattr(panels, "load_sets", lambda _: observed)
        draw(plane, "one")
    cube, plain = Field("f", Grid((0.0,) * 3, (1.0,) * 3, (3, 3, 49))), ArrayFile.fields
    changes = {"input": cube, "output": cube}
    monkeypatch.setattr(ArrayFile, "fields", lambda f: dataclasses.replace(plain(f), **changes))
    with pytest.raises(DataError, match="one or two dimensions"):
        draw(plane, "one")


def test_maps_of_periodic_functions_reach_the_end() -> None:
    grid = Grid((0.0, 0.0), (1.0, 2.0), (3, 4), periodic=True)
    values = np.arange(12.0)
    image = draw_map(Figure().subplots(), grid, values, scale(values), FIELD_MAP)
    # Pixels are 1/3 wide and 1/2 high, and their middles are grid points from 0 to 1 and 2.
    np.testing.assert_allclose(image.get_extent(), [-1 / 6, 7 / 6, -1 / 4, 9 / 4])
    wrapped = np.pad(values.reshape(3, 4), ((0, 1), (0, 1)), mode="wrap")
    np.testing.assert_array_equal(np.asarray(image.get_array()).T, wrapped)


def saved(figure: Figure, folder: Path, scale: str = "full") -> tuple[bytes, bytes]:
    """Save a figure and return its PDF and its PNG, which must be what they are called."""
    pdf, png = folder / "figure.pdf", folder / "figure.png"
    save(figure, scale, folder / "figure")
    assert not list(folder.glob(".*"))
    found = pdf.read_bytes(), png.read_bytes()
    assert found[0].startswith(b"%PDF") and found[1].startswith(b"\x89PNG")
    assert b"/Type3" not in found[0] and b"CreationDate" not in found[0]
    return found


def test_style_neither_leaks_nor_takes_the_readers_settings(tmp_path: Path) -> None:
    def simple(scale: str = "full") -> tuple[bytes, bytes]:
        with styled():
            figure = new_figure(1.0)
            figure.subplots().plot([0, 1])
        return saved(figure, tmp_path, scale)

    before, plain = mpl.rcParams["font.size"], simple()
    assert mpl.rcParams["font.size"] == before
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "pdf.fonttype": 3}):
        assert simple() == plain
    # The note of smoke scale stands in a strip of its own.
    heights = [int.from_bytes(png[20:24], "big") for _, png in (plain, simple("smoke"))]
    assert heights[1] == pytest.approx(heights[0] + STRIP * STYLE["savefig.dpi"], abs=1)


def draw_anew(root: Path, problem: str, name: str) -> Figure:
    return draw(make_inputs(problem, root), name)


FIGURES: dict[str, Callable[[Path], Figure]] = {
    "posteriors on a line": partial(draw_anew, problem="toy_linear", name="every"),
    "a posterior in the plane": partial(draw_anew, problem="toy_field", name="one"),
    "sweeps": scored.draw_sweeps,
    "calibration": scored.draw_calibration,
}


@pytest.mark.parametrize("name", FIGURES)
def test_panels_keep_apart_and_equal_figures_are_equal_files(tmp_path: Path, name: str) -> None:
    roots = tmp_path / "one", tmp_path / "other"
    figures: list[Any] = [FIGURES[name](root) for root in roots]
    first, again = (saved(figure, tmp_path, "smoke") for figure in figures)
    assert first == again
    for axes in figures[0].axes:
        axes.yaxis.label.set_visible(False)  # may be longer than its panel is high
    # Twins of a panel share its place.
    places = {axes.get_position().bounds: axes.get_tightbbox() for axes in figures[0].axes}
    boxes = filter(None, places.values())
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
