"""The picture of data, in both dimensions: its panels, what it refuses, files that repeat."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.report.fields import Inputs, make_inputs
from uqsonet.errors import DataError
from uqsonet.fields import Grid, Transform
from uqsonet.gaussian_process import GaussianField
from uqsonet.problems import get_problem
from uqsonet_study.config import SensorsConfig
from uqsonet_study.report.figures import data as module
from uqsonet_study.report.figures.data import data_figure
from uqsonet_study.report.figures.data_1d import _shift

PROBLEMS = ["toy_linear", "toy_field", "toy_torus"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inputs]:
    return {name: make_inputs(name, tmp_path_factory.mktemp(name)) for name in PROBLEMS}


def draw(inputs: Inputs, folder: Path) -> tuple[bytes, bytes]:
    pdf, png = folder / "d.pdf", folder / "d.png"
    data_figure("e_1", inputs.config, inputs.functions, inputs.reference, pdf, png)
    return pdf.read_bytes(), png.read_bytes()


def drawn(inputs: Inputs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Return the figure itself, unsaved."""
    figures: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, *_: figures.append(figure))
    files = inputs.functions, inputs.reference
    data_figure("e_1", inputs.config, *files, folder / "d.pdf", folder / "d.png")
    return figures[0]


def words(figure: Figure) -> str:
    return " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))


@pytest.mark.parametrize("problem", ["toy_linear", "toy_field"])
def test_data_figure_repeats_byte_by_byte(
    made: dict[str, Inputs], tmp_path: Path, problem: str
) -> None:
    first = draw(made[problem], tmp_path)
    assert first[0].startswith(b"%PDF") and b"/Type3" not in first[0]
    assert first[1].startswith(b"\x89PNG")
    assert draw(made[problem], tmp_path) == first


@pytest.mark.parametrize(
    ("problem", "panels"),
    # Samples: two panels of lines, or 2 x 4 maps and 2 bars. Then 2 counts of 2 panels, or of 4
    # maps and 3 bars.
    [("toy_linear", 2 + 4), ("toy_field", 8 + 2 + 8 + 3), ("toy_torus", 21)],
)
def test_panels(
    made: dict[str, Inputs],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: str,
    panels: int,
) -> None:
    figure = drawn(made[problem], tmp_path, monkeypatch)
    assert len(figure.findobj(lambda a: a.__class__.__name__ == "Axes")) == panels
    text = words(figure)
    for piece in ("$m = 1$", "$m = 3$", f"${get_problem(problem).input_symbol}", "noise"):
        assert piece in text
    assert "random operator" not in text


def test_a_random_operator_is_called_so(
    made: dict[str, Inputs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = get_problem("toy_field")
    assert isinstance(problem.prior, GaussianField)
    monkeypatch.setitem(vars(problem), "intrinsic", problem.prior)
    assert "random operator" in words(drawn(made["toy_field"], tmp_path, monkeypatch))


def test_first_middle_and_last_count(
    made: dict[str, Inputs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    monkeypatch.setattr(module, "find_sets", lambda _, counts, __: asked.append(counts) or [])
    monkeypatch.setattr(module, "draw_lines", lambda _: None)
    monkeypatch.setattr(module, "save", lambda *_: None)
    inputs = made["toy_linear"]
    for counts in ([1, 3], [2], [1, 2, 3, 4, 5, 6, 7]):
        one = inputs.config.experiments["e_1"]
        one = one.model_copy(update={"sensors": SensorsConfig(counts=counts)})
        config = inputs.config.model_copy(update={"experiments": {"e_1": one}})
        draw_ = dataclasses.replace(inputs, config=config)
        data_figure("e_1", draw_.config, draw_.functions, draw_.reference, tmp_path, tmp_path)
    assert asked == [[1, 3], [2], [1, 4, 7]]


def test_bars_follow_the_noise() -> None:
    problem, values = get_problem("diffusion1d"), np.array([1.0, 2.0])
    np.testing.assert_allclose(_shift(problem, values, 0.3), values * np.exp(0.3))
    assert problem.transform == Transform("log")
    np.testing.assert_allclose(_shift(get_problem("toy_linear"), values, 0.3), values + 0.3)


def test_files_of_two_problems_are_refused(made: dict[str, Inputs], tmp_path: Path) -> None:
    mixed = dataclasses.replace(made["toy_field"], reference=made["toy_torus"].reference)
    with pytest.raises(DataError, match=r"of toy_torus, but .*of toy_field"):
        draw(mixed, tmp_path)


def test_a_missing_set_is_named(made: dict[str, Inputs], tmp_path: Path) -> None:
    inputs = made["toy_field"]
    one = inputs.config.experiments["e_1"]
    one = one.model_copy(update={"sensors": SensorsConfig(counts=[1, 2])})
    config = inputs.config.model_copy(update={"experiments": {"e_1": one}})
    with pytest.raises(DataError, match="0 observation sets with 2 sensors"):
        draw(dataclasses.replace(inputs, config=config), tmp_path)


def test_more_than_two_dimensions_are_refused(
    made: dict[str, Inputs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = Grid((0.0,) * 3, (1.0,) * 3, (3, 3, 9))
    monkeypatch.setitem(vars(get_problem("toy_field")), "grid", cube)
    with pytest.raises(DataError, match="one or two dimensions"):
        draw(made["toy_field"], tmp_path)


def test_the_training_split_is_not_read(
    made: dict[str, Inputs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uqsonet.storage

    read: list[str] = []
    plain = uqsonet.storage.ArrayFile.read

    def spy(file: uqsonet.storage.ArrayFile, name: str, *rest: object) -> np.ndarray:
        read.append(name)
        return plain(file, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(uqsonet.storage.ArrayFile, "read", spy)
    drawn(made["toy_linear"], tmp_path, monkeypatch)
    assert read and not any(name.startswith("training") for name in read)
