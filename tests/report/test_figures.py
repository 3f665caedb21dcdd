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
from tests.report.conftest import COUNTS, make_config
from uqsonet.errors import ConfigError, DataError
from uqsonet.fields.field import Field, Transform
from uqsonet.fields.grid import Grid
from uqsonet.operator.base import build_model
from uqsonet.operator.file import load, write_weights
from uqsonet_study.config import (
    PosteriorFigure,
    ProblemConfig,
    ReferenceConfig,
    SensorsConfig,
)
from uqsonet_study.layouts import candidates, generate_layouts
from uqsonet_study.priors.gaussian_process import GaussianField, squared_exponential
from uqsonet_study.problems import get_problem
from uqsonet_study.references import compute_reference
from uqsonet_study.report.figures import data, layouts, posterior, spectra
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


def make_inputs(problem: str, folder: Path) -> Path:
    """Fill a folder for `files_of`, with an untrained model, which is already close to exact."""
    functions, sensors = folder / "functions.h5", folder / "sensors.h5"
    simulate(problem, ProblemConfig(training=50, validation=2, test=4, shard=50), 0, functions)
    generate_layouts(problem, SensorsConfig(counts=COUNTS, pool=5), 0, 2, 4, sensors)
    for noise_std in (NOISE, LOUD):
        used = ReferenceConfig(sets=3, reference_samples=200, wasserstein=noise_std == NOISE)
        out = folder / f"{noise_std}.h5"
        compute_reference(functions, sensors, "test", "paper", used, noise_std, 0, out)
    method, fields = make_config().method_of("e_1", "uqsonet"), get_problem(problem).fields
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
    meta["config"] = method.model_dump(mode="json")
    write_weights(folder / "weights.safetensors", tensors, meta)
    return folder


def files_of(folder: Path, count: int, noise_std: float = NOISE, **changes: Any) -> dict[str, Any]:
    """Return a panel that shows a sensor count, as the plan declares it.

    References under `LOUD` noise hold no samples.
    """
    found = {"functions": f"{folder}/functions.h5", "reference": f"{folder}/{noise_std}.h5"}
    found |= {"weights": [f"{folder}/weights.safetensors"], "ensemble": False}
    return found | {"sensors": count, "noise_std": noise_std} | changes


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs("toy_linear", tmp_path_factory.mktemp("line"))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs("toy_field", tmp_path_factory.mktemp("plane"))


def show(kind: Any, panels: list[dict[str, Any]], method: str = "uqsonet") -> Figure:
    """Draw a figure `f` of some panels."""
    declared: Any = PosteriorFigure.model_construct(experiment="e_1", method=method)
    config = make_config(experiment={"methods": ["uqsonet"]})
    with styled():
        config = config.model_copy(update={"figures": {"f": declared}})
        return kind.draw(config, "f", {"panels": panels})


def of_noise(inputs: Path) -> list[dict[str, Any]]:
    """Rows are numbers of sensors, columns levels of noise."""
    return [files_of(inputs, m, noise_std) for m in COUNTS for noise_std in (NOISE, LOUD)]


def words(figure: Figure) -> str:
    return " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))


def lines(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in axes.lines]


def meshes(axes: list[Axes]) -> list[np.ndarray]:
    """Return the values of maps, as functions on the grid of the plane."""
    found = [np.asarray(one.images[0].get_array()) for one in axes if one.images]
    return [values.T.ravel() for values in found if values.shape == (21, 21)]


def read(folder: Path) -> tuple[Panel, np.ndarray, np.ndarray]:
    """Return a panel with the mean and the standard deviation of its reference."""
    (panel,) = read_panels([files_of(folder, M)])
    assert panel.reference is not None
    return panel, *panel.reference


def test_posteriors_are_those_of_the_panels(line: Path) -> None:
    figure = show(posterior, of_noise(line), "deep_ensemble")
    shown = [axes for axes in figure.axes if axes.get_title()]
    twins = [axes for axes in figure.axes if axes not in shown and axes.axison]
    model = load(line / "weights.safetensors")
    for axes, twin, panel in zip(shown, twins, read_panels(of_noise(line)), strict=True):
        head = axes.get_title().split("\n")[0]
        assert head == rf"$m = {len(panel.values)}$, $\sigma = {panel.noise_std:g}$"
        o, expected = panel.observations, []
        law = model.condition(o.locations, o.values, o.mask, panel.noise_std)
        assert panel.reference is not None
        for mean, std in (panel.reference, (law.mean()[0].numpy(), law.std()[0].numpy())):
            expected += [mean - 2 * std, mean + 2 * std, mean]
        expected.append(panel.data.u[0].numpy())
        np.testing.assert_allclose(lines(axes), expected, rtol=1e-5, atol=1e-6)
        truth, dots = twin.lines
        np.testing.assert_allclose(truth.get_ydata(), panel.data.kappa[0].numpy())
        np.testing.assert_allclose(dots.get_xdata(), panel.sensors[:, 0])
        np.testing.assert_allclose(dots.get_ydata(), panel.values)
    assert "Deep ensemble, mean" in words(figure) and "noisy observations" in words(figure)


def test_noise_on_a_logarithmic_axis(line: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels, law = read_panels(of_noise(line)[:3]), (np.full(33, 0.5), np.full(33, 0.25))
    low, high = data.noise_bars(panels[0])
    np.testing.assert_allclose([panels[0].values - low, high - panels[0].values], 2 * NOISE)
    for panel in panels:
        field = dataclasses.replace(panel.fields.input, transform=Transform("log"))
        changed = dataclasses.replace(panel.fields, input=field)
        monkeypatch.setattr(panel.data, "fields", changed)
        panel.data.kappa.clamp_(min=0.2)
        panel.observations.values.abs_().mul_(50)
    low, high = data.noise_bars(panels[0])
    np.testing.assert_allclose(high / panels[0].values, np.exp(2 * NOISE))
    quiet = dataclasses.replace(panels[0], noise_std=0.0)
    with styled():
        figure, plain = (posterior.draw_lines(p, [law] * len(p), "A") for p in (panels, [quiet]))
    logarithmic = [axes for axes in figure.axes if axes.get_yscale() == "log"]
    assert len(logarithmic) == 3 and "log. right axis" in words(figure)
    low, high = logarithmic[0].get_ylim()
    assert all(low < min(y) and max(y) < high for axes in logarithmic for y in lines(axes))
    assert {axes.get_yscale() for axes in plain.axes} == {"linear"} and "noisy" not in words(plain)


def test_posteriors_in_the_plane(plane: Path) -> None:
    figure, (panel, *reference) = show(posterior, [files_of(plane, M)]), read(plane)
    maps = [axes for axes in figure.axes if axes.get_title()]
    assert maps[0].get_title().endswith(rf"$m = {M}$ sensors, noise $\sigma = {NOISE:g}$")
    kappa, mean, ours, error, u, std, _, _ = meshes(maps)
    for found, given in zip((kappa, u, mean, std), (*panel.truth, *reference), strict=True):
        np.testing.assert_allclose(found, given)
    np.testing.assert_allclose(error, np.abs(ours - mean))


def change_fields(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let files of arrays describe other fields than they do."""
    plain = ArrayFile.fields
    monkeypatch.setattr(ArrayFile, "fields", lambda f: dataclasses.replace(plain(f), **changes))


def test_panels_that_cannot_be_drawn_are_refused(
    plane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="a figure of maps has one panel, not 2"):
        show(posterior, [files_of(plane, M), files_of(plane, M)])
    cube = Field("f", Grid((0.0,) * 3, (1.0,) * 3, (3, 3, 49)))
    change_fields(monkeypatch, input=cube, output=cube)
    with pytest.raises(DataError, match="one or two dimensions"):
        show(data, [files_of(plane, M)])


def test_data_are_the_first_of_the_test_split(
    line: Path, plane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, (panel, mean, _) = show(data, [files_of(line, m) for m in COUNTS]), read(line)
    for axes, functions in zip(figure.axes, (panel.data.kappa, panel.data.u), strict=False):
        np.testing.assert_allclose(lines(axes), functions[:4].numpy())
    assert any(np.array_equal(mean, y) for y in lines(figure.axes[5]))
    assert "$m = 1$" in words(figure) and "noise" in words(figure)
    change_fields(monkeypatch, random_operator=True)
    figure, (panel, *reference) = show(data, [files_of(plane, m) for m in COUNTS]), read(plane)
    # Two rows of four maps and a bar, then a row of four maps a count and three bars.
    assert len(figure.findobj(Axes)) == 8 + 2 + 8 + 3 and "random operator" in words(figure)
    shown = [*panel.data.kappa[:4], *panel.data.u[:4], *panel.truth, *reference]
    found = meshes(figure.axes)
    np.testing.assert_allclose([*found[:8], *found[-4:]], np.stack([np.asarray(f) for f in shown]))


def test_powers_of_a_cosine_and_of_white_noise() -> None:
    x = (np.arange(16) + 0.5) / 16
    found = spectra.power(3 * np.cos(np.pi * 5 * x)[None], Grid((0.0,), (1.0,), (16,)))
    assert found[4] == pytest.approx(9 * 8) and np.delete(found, 4).max() < 1e-25
    noise = np.random.default_rng(0).standard_normal((4000, 12 * 16))
    found = spectra.power(noise, Grid((0.0, 0.0), (1.0, 1.0), (12, 16)))
    lengths = np.sqrt(np.add.outer(np.arange(12.0) ** 2, np.arange(16.0) ** 2))
    counts = [np.sum(np.rint(lengths) == k) for k in range(1, 12)]
    assert found == pytest.approx(counts, rel=0.05)


def test_spectra_of_an_exact_linear_law_agree(line: Path, plane: Path) -> None:
    """The toys' models are close to exact before training, in two modes of two or more."""
    figure = show(spectra, [files_of(line, M), files_of(plane, M)])
    for column, points in zip(np.reshape(figure.axes, (3, 2)).T, (17, 21), strict=True):
        for axes in column[:2]:
            assert [len(y) for y in lines(axes)] == [points] * 5
        theirs, ours = lines(column[2])
        assert 0.2 < ours[0] / theirs[0] < 5
    with pytest.raises(ConfigError, match=r"figures\.s: e_1 needs .*evaluations\.paper\.wasserst"):
        make_config(figures={"s": {"layout": "spectra", "experiments": ["e_1"]}})


def draw_layouts(folder: Path, problem: str) -> Figure:
    rule: dict[str, Any] = {"layout": "regular_space", "distances": {2: 0.5, 3: 0.3}}
    config = SensorsConfig(counts=[1, 2, 3, 4, 5], pool=40, margin=0.1, **rule)
    generate_layouts(problem, config, 0, 2, 2, folder / "sensors.h5")
    with styled():
        files = {"sensors": [str(folder / "sensors.h5")]}
        return layouts.draw(make_config(), "e_1_layouts", files)


def test_layouts_keep_their_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for problem in ("toy_linear", "toy_plane"):
        figure = draw_layouts(tmp_path, problem)
        (axes,) = (axes for axes in figure.axes if axes.get_title().startswith("$m = 2$"))
        assert "$d > 0.5$" in axes.get_title() and "40 layouts" in axes.get_title()
        below = figure.axes[figure.axes.index(axes) + 4]
        for line in below.lines:
            places = np.unique(line.get_xydata(), axis=0)
            assert np.linalg.norm(places[0] - places[1]) > 0.5
    cube = Grid((0.0,) * 3, (1.0,) * 3, (7, 9, 7))
    monkeypatch.setitem(vars(get_problem("toy_plane")), "grid", cube)
    with pytest.raises(DataError, match=r"sensors\.h5: .*one or two dimensions"):
        draw_layouts(tmp_path, "toy_plane")


@pytest.mark.parametrize("shape", [(40, 101), (57,)])
def test_the_density_of_every_candidate_once_is_one(shape: tuple[int, ...]) -> None:
    # Also in last bins that hold fewer grid points than the others.
    grid = Grid((0.0,) * len(shape), (1.0,) * len(shape), shape)
    places, config = candidates(grid, 0.1), SensorsConfig(counts=[1], margin=0.1)
    pool = layouts.Pool(grid, config, places, {1: places[:, None]})
    density = layouts._relative_density(pool, 1, layouts._edges(pool))
    np.testing.assert_allclose(density, 1.0)


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


def test_panels_of_equal_sides_keep_apart(tmp_path: Path) -> None:
    figure = draw_layouts(tmp_path, "toy_plane")
    saved(figure, tmp_path, "smoke")
    boxes = filter(None, [axes.get_tightbbox() for axes in figure.axes])
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


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


def draw_panels(folder: Path, kind: Any, problem: str) -> Figure:
    inputs = make_inputs(problem, folder)
    return show(kind, [files_of(inputs, m) for m in (COUNTS if kind is data else [M])])


FIGURES: dict[str, Callable[[Path], Figure]] = {
    f"{kind.__name__} of {problem}": partial(draw_panels, kind=kind, problem=problem)
    for kind in (posterior, data, spectra)
    for problem in ("toy_linear", "toy_field")
} | {
    "layouts of a line": partial(draw_layouts, problem="toy_linear"),
    "layouts of a plane": partial(draw_layouts, problem="toy_plane"),
    "sweeps": scored.draw_sweeps,
    "calibration": scored.draw_calibration,
    "training": scored.draw_training,
}


@pytest.mark.long
@pytest.mark.parametrize("name", FIGURES)
def test_equal_figures_are_equal_files(tmp_path: Path, name: str) -> None:
    first = saved(FIGURES[name](tmp_path), tmp_path, "smoke")
    assert saved(FIGURES[name](tmp_path), tmp_path, "smoke") == first
