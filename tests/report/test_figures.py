from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from tests.report.conftest import COUNTS
from tests.report.fields import NOISE, Inputs, choose_counts, make_inputs
from uqsonet.errors import DataError
from uqsonet.fields import Grid
from uqsonet.problems import get_problem
from uqsonet_study.report.figures import posterior as figures
from uqsonet_study.report.figures.maps import draw_map, input_scale, log_ticks, scale
from uqsonet_study.report.figures.posterior import posterior_figure, training_figure
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


def draw(inputs: Inputs, folder: Path, counts: list[int] = COUNTS) -> tuple[bytes, bytes]:
    pdf, png = folder / "p.pdf", folder / "p.png"
    posterior_figure(choose_counts(inputs, counts), inputs.config.scale, pdf, png)
    return pdf.read_bytes(), png.read_bytes()


def write_log(path: Path, trial: int, text: str = "0.5") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,kl,skill_mean_1,skill_std_1\n"
        f"{trial},100,1,0.1,20,12,8,-3,0.1\n{trial},200,2,0,1,0.6,0.4,{text},0.2\n"
    )
    return path


def test_posterior_figure_repeats_byte_by_byte(inputs: Inputs, tmp_path: Path) -> None:
    first = draw(inputs, tmp_path)
    assert first[0].startswith(b"%PDF") and first[1].startswith(b"\x89PNG")
    assert draw(inputs, tmp_path) == first
    assert not list(tmp_path.glob(".*"))


def test_the_readers_own_settings_change_nothing(inputs: Inputs, tmp_path: Path) -> None:
    first = draw(inputs, tmp_path)
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "pdf.fonttype": 3}):
        assert draw(inputs, tmp_path) == first


def test_pdf_has_truetype_fonts_and_no_date(inputs: Inputs, tmp_path: Path) -> None:
    pdf, _ = draw(inputs, tmp_path)
    assert b"/Type3" not in pdf and b"CreationDate" not in pdf


@pytest.mark.parametrize("counts", [[1], [1, 3]])
def test_any_number_of_panels(inputs: Inputs, tmp_path: Path, counts: list[int]) -> None:
    draw(inputs, tmp_path, counts)


def test_a_missing_set_is_named(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="0 observation sets with 2 sensors"):
        draw(inputs, tmp_path, [2])


@pytest.mark.parametrize("problem", ["toy_field", "toy_torus"])
def test_posteriors_in_the_plane(
    planes: dict[str, Inputs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: drawn.append(figure))
    one = planes[problem]
    posterior_figure(choose_counts(one, [3]), "full", tmp_path / "p.pdf", tmp_path / "p.png")
    titles = [a.get_title() for a in drawn[0].axes if a.get_title()]
    symbol = get_problem(problem).input_symbol
    assert titles[0].startswith(f"true input ${symbol}$\n$m = 3$ sensors")
    assert titles[0].endswith(rf"noise $\sigma = {NOISE:g}$")
    assert titles[1:3] + titles[4:6] == [
        f"{who} {what}" for what in ("mean", "std") for who in ("reference", "UQ-SONet")
    ]
    assert titles[3].startswith("absolute error") and titles[6].startswith("absolute error")
    assert len(titles) == 7 and len(drawn[0].axes) == 7 + 5  # maps and colour bars
    meshes = [a.collections[0] for a in drawn[0].axes if a.get_title()]
    assert all(isinstance(mesh, QuadMesh) and mesh.get_rasterized() for mesh in meshes)
    assert meshes[1].norm is meshes[2].norm and meshes[4].norm is meshes[5].norm


def test_posteriors_in_the_plane_repeat_byte_by_byte(
    planes: dict[str, Inputs], tmp_path: Path
) -> None:
    first = draw(planes["toy_torus"], tmp_path, [3])
    assert b"/Type3" not in first[0]
    assert draw(planes["toy_torus"], tmp_path, [3]) == first


def test_three_dimensions_are_refused(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = Grid((0, 0, 0), (1, 1, 1), (1, 3, 11))
    panels = choose_counts(inputs, COUNTS)  # a model of that grid is none of ours
    monkeypatch.setitem(vars(get_problem("toy_linear")), "grid", cube)
    with pytest.raises(DataError, match="one or two dimensions"):
        posterior_figure(panels, "full", tmp_path / "p.pdf", tmp_path / "p.png")


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
    positive = input_scale(get_problem("diffusion1d"), fields[1])
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
    smoke = inputs.config.model_copy(update={"scale": "smoke"})
    _, plain = draw(inputs, tmp_path)
    _, noted = draw(dataclasses.replace(inputs, config=smoke), tmp_path)
    assert height(noted) == pytest.approx(height(plain) + STRIP * STYLE["savefig.dpi"], abs=1)


def test_training_figure_repeats_byte_by_byte(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / "uqsonet" / f"stack_{k}.csv", k) for k in range(2)]
    plain = tmp_path / "vidon" / "stack_0.csv"
    plain.parent.mkdir()
    plain.write_text(
        "trial,iteration,seconds,learning_rate,loss,reconstruction,skill_mean_1,skill_mean_2\n"
        "0,10,1,0,-2,-2,0.1,0.3\n"
    )
    found = []
    for name in "ab":
        pdf, png = tmp_path / f"{name}.pdf", tmp_path / f"{name}.png"
        training_figure([*logs, plain], "smoke", pdf, png)
        found.append((pdf.read_bytes(), png.read_bytes()))
    assert found[0] == found[1]


def test_training_figure_refuses_nan(tmp_path: Path) -> None:
    log = write_log(tmp_path / "uqsonet" / "stack_0.csv", 0, "nan")
    with pytest.raises(DataError, match=r"stack_0\.csv: row 2 .*skill_mean_1"):
        training_figure([log], "full", tmp_path / "t.pdf", tmp_path / "t.png")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n"])
def test_training_figure_refuses_foreign_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"x\.csv"):
        training_figure([tmp_path / "x.csv"], "full", tmp_path / "t.pdf", tmp_path / "t.png")


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
