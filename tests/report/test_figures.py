from __future__ import annotations

from colorsys import rgb_to_hsv
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tests.report.conftest import COUNTS, make_config
from tests.report.fields import (
    NOISE,
    Inputs,
    change_fields,
    make_inputs,
    panel_files,
    posterior_config,
    saved,
)
from tests.report.inside import require_tidy
from uqsonet.data import load_functions
from uqsonet.errors import DataError
from uqsonet.fields import Field, Grid
from uqsonet.problems import get_problem
from uqsonet_study.report.figures import posterior, training
from uqsonet_study.report.figures.colours import WORDS
from uqsonet_study.report.figures.maps import draw_map, input_scale, log_ticks, scale
from uqsonet_study.report.figures.style import FIELD_MAP, STRIP, STYLE, new_figure, save, styled


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A linear-Gaussian problem."""
    return make_inputs("toy_linear", tmp_path_factory.mktemp("figure"))


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inputs]:
    """Problems of two variables."""
    names = ("toy_field", "toy_torus")
    return {name: make_inputs(name, tmp_path_factory.mktemp(name)) for name in names}


def show(inputs: Inputs, counts: list[int] = COUNTS) -> Figure:
    with styled():
        return posterior.draw(posterior_config(), "f", {"panels": panel_files(inputs, counts)})


def show_training(logs: list[Path]) -> Figure:
    with styled():
        files = {"logs": [str(log) for log in logs]}
        return training.draw(make_config(), "e_1_training", files)


def write_log(path: Path, trial: int, text: str = "0.5") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,kl,skill_mean_1,skill_std_1\n"
        f"{trial},100,1,0.1,20,12,8,-3,0.1\n{trial},200,2,0,1,0.6,0.4,{text},0.2\n"
    )
    return path


def test_posterior_figure_repeats_byte_by_byte(inputs: Inputs, tmp_path: Path) -> None:
    first = saved(show(inputs), tmp_path)
    assert saved(show(inputs), tmp_path) == first


def test_the_readers_own_settings_change_nothing(inputs: Inputs, tmp_path: Path) -> None:
    first = saved(show(inputs), tmp_path)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "pdf.fonttype": 3}):
        assert saved(show(inputs), tmp_path) == first


@pytest.mark.parametrize("counts", [[1], [1, 3]])
def test_any_number_of_panels(inputs: Inputs, counts: list[int]) -> None:
    require_tidy(show(inputs, counts))


def test_a_missing_set_is_named(inputs: Inputs) -> None:
    with pytest.raises(DataError, match="0 observation sets with 2 sensors"):
        show(inputs, [2])


@pytest.mark.parametrize("problem", ["toy_field", "toy_torus"])
def test_posteriors_in_the_plane(planes: dict[str, Inputs], problem: str) -> None:
    figure, found = show(planes[problem], [3]), get_problem(problem)
    titles = [a.get_title() for a in figure.axes if a.get_title()]
    assert titles[0].startswith(f"true input ${found.input_symbol}$\n$m = 3$ sensors")
    assert titles[0].endswith(rf"noise $\sigma = {NOISE:g}$")
    assert titles[4] == f"true output ${found.output_symbol}$"
    assert titles[1:3] + titles[5:7] == [
        f"{who} {what}" for what in ("mean", "std") for who in ("reference", "UQ-SONet")
    ]
    assert titles[3].startswith("absolute error") and titles[7].startswith("absolute error")
    assert len(titles) == 8 and len(figure.axes) == 8 + 6  # maps and colour bars
    meshes = [a.collections[0] for a in figure.axes if a.get_title()]
    assert all(isinstance(mesh, QuadMesh) and mesh.get_rasterized() for mesh in meshes)
    assert meshes[1].norm is meshes[2].norm is meshes[4].norm and meshes[5].norm is meshes[6].norm
    data = load_functions(planes[problem].functions, "test")
    for k, field in ((0, data.kappa[0]), (4, data.u[0])):
        values = np.asarray(meshes[k].get_array())
        assert values.max() == pytest.approx(float(field.max()))
    require_tidy(figure)


def test_posteriors_in_the_plane_repeat_byte_by_byte(
    planes: dict[str, Inputs], tmp_path: Path
) -> None:
    first = saved(show(planes["toy_torus"], [3]), tmp_path)
    assert saved(show(planes["toy_torus"], [3]), tmp_path) == first


def test_three_dimensions_are_refused(
    planes: dict[str, Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = Field("f", Grid((0.0,) * 3, (1.0,) * 3, (3, 3, 9)))
    change_fields(monkeypatch, lambda fields: replace(fields, input=cube, output=cube))
    with pytest.raises(DataError, match="one or two dimensions"):
        show(planes["toy_field"], [3])


def test_maps_of_periodic_functions_reach_the_end() -> None:
    grid = Grid((0.0, 0.0), (1.0, 2.0), (3, 4), periodic=True)
    values = np.arange(12.0)
    axes = Figure().subplots()
    mesh = draw_map(axes, grid, values, scale(values), FIELD_MAP)
    corners = mesh.get_coordinates()  # last axis: x, y
    assert corners.shape == (5, 4, 2) and corners[-1, -1].tolist() == [1.0, 2.0]
    shown = np.asarray(mesh.get_array()).reshape(5, 4)
    np.testing.assert_array_equal(shown[:-1, :-1].T, values.reshape(3, 4))
    np.testing.assert_array_equal(shown[-1], shown[0])
    np.testing.assert_array_equal(shown[:, -1], shown[:, 0])
    assert axes.get_aspect() == 1.0


def test_colour_scales() -> None:
    fields = np.array([-1.0, 2.0]), np.array([0.5, 3.0])
    assert (scale(*fields).vmin, scale(*fields).vmax) == (-1.0, 3.0)
    assert scale(fields[1], positive=True).vmin == 0.0
    flat = scale(np.zeros(3), positive=True)
    assert flat.vmax is not None and flat.vmax > 0
    positive = input_scale(get_problem("diffusion1d").fields, fields[1])
    assert type(positive).__name__ == "LogNorm" and positive.vmin == 0.5


def test_ticks_of_logarithmic_scales() -> None:
    assert log_ticks(0.25, 2.5) == [0.5, 1.0, 2.0]
    assert log_ticks(0.05, 20.0) == pytest.approx([0.1, 1.0, 10.0])
    assert log_ticks(0.9, 20.0) == pytest.approx([1.0, 3.0, 10.0])
    assert log_ticks(0.9, 20.0, most=7) == pytest.approx([1.0, 2.0, 5.0, 10.0, 20.0])
    assert log_ticks(1.2, 4.0) == pytest.approx([1.5, 2.0, 3.0])


def height(png: bytes) -> int:
    return int.from_bytes(png[20:24], "big")


def test_smoke_scale_is_said_in_a_strip_of_its_own(inputs: Inputs, tmp_path: Path) -> None:
    _, plain = saved(show(inputs), tmp_path)
    _, noted = saved(show(inputs), tmp_path, "smoke")
    assert height(noted) == pytest.approx(height(plain) + STRIP * STYLE["savefig.dpi"], abs=1)


def test_training_figure_repeats_byte_by_byte(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "uqsonet" / f"stack_{k}.csv", k) for k in range(2)]
    plain = tmp_path / "vidon" / "stack_0.csv"
    plain.parent.mkdir()
    plain.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,skill_mean_1,skill_mean_2\n"
        "0,10,1,0,-2,-2,0.1,0.3\n"
    )
    first = saved(show_training([*logs, plain]), tmp_path)
    assert saved(show_training([*logs, plain]), tmp_path) == first
    require_tidy(show_training([*logs, plain]))


def test_training_figure_refuses_nan(tmp_path: Path) -> None:
    log = write_log(tmp_path / "uqsonet" / "stack_0.csv", 0, "nan")
    with pytest.raises(DataError, match=r"stack_0\.csv: row 2 .*skill_mean_1"):
        show_training([log])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_training_figure_refuses_foreign_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"x\.csv"):
        show_training([tmp_path / "x.csv"])


def test_style_does_not_leak(tmp_path: Path) -> None:
    before = mpl.rcParams["font.size"]
    with styled():
        assert mpl.rcParams["font.size"] == STYLE["font.size"]
        figure = new_figure(1.0)
    save(figure, "full", tmp_path / "a.pdf", tmp_path / "a.png")
    assert not figure.texts
    save(figure, "smoke", tmp_path / "a.pdf", tmp_path / "a.png")
    assert [text.get_text() for text in figure.texts] == ["smoke scale"]
    assert mpl.rcParams["font.size"] == before


def test_captions_call_colours_what_they_look_like() -> None:
    hues = {"orange": (15, 45), "blue": (190, 250)}
    for color, word in WORDS.items():
        hue, _, brightness = rgb_to_hsv(*to_rgb(color))
        if word == "black":
            assert brightness == 0
        else:
            low, high = hues[word]
            assert brightness > 0.5 and low < 360 * hue < high, (color, word)
