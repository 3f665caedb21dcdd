"""The picture of data, in both dimensions: its panels, what it refuses, files that repeat."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.report.conftest import COUNTS
from tests.report.fields import (
    NOISE,
    Inputs,
    change_fields,
    make_inputs,
    panel_files,
    saved,
    use_logarithm,
)
from uqsonet.errors import DataError
from uqsonet.fields import Field, Grid
from uqsonet.problems import get_problem
from uqsonet.storage.reading import ArrayFile
from uqsonet_study.report.figures.data import draw, noise_bars
from uqsonet_study.report.figures.panels import read_panels
from uqsonet_study.report.figures.style import styled

PROBLEMS = ["toy_linear", "toy_field", "toy_torus"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inputs]:
    return {name: make_inputs(name, tmp_path_factory.mktemp(name)) for name in PROBLEMS}


def show(inputs: Inputs, counts: list[int] = COUNTS) -> Figure:
    with styled():
        return draw(inputs.config, "e_1_data", {"panels": panel_files(inputs, counts)})


def words(figure: Figure) -> str:
    return " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))


@pytest.mark.parametrize("problem", ["toy_linear", "toy_field"])
def test_data_figure_repeats_byte_by_byte(
    made: dict[str, Inputs], tmp_path: Path, problem: str
) -> None:
    first = saved(show(made[problem]), tmp_path)
    assert saved(show(made[problem]), tmp_path) == first


@pytest.mark.parametrize(
    ("problem", "panels"),
    # Samples: two panels of lines, or 2 x 4 maps and 2 bars. Then 2 counts of 2 panels, or of 4
    # maps and 3 bars.
    [("toy_linear", 2 + 4), ("toy_field", 8 + 2 + 8 + 3), ("toy_torus", 21)],
)
def test_panels(made: dict[str, Inputs], problem: str, panels: int) -> None:
    figure = show(made[problem])
    assert len(figure.findobj(lambda a: a.__class__.__name__ == "Axes")) == panels
    text = words(figure)
    for piece in ("$m = 1$", "$m = 3$", f"${get_problem(problem).input_symbol}", "noise"):
        assert piece in text
    assert "random operator" not in text


def test_a_random_operator_is_called_so(
    made: dict[str, Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    change_fields(monkeypatch, lambda fields: dataclasses.replace(fields, random_operator=True))
    assert "random operator" in words(show(made["toy_field"]))


def test_bars_follow_the_noise(made: dict[str, Inputs], monkeypatch: pytest.MonkeyPatch) -> None:
    (panel,) = read_panels(panel_files(made["toy_linear"], [3]))
    low, high = noise_bars(panel)
    np.testing.assert_allclose([panel.values - low, high - panel.values], 2 * NOISE)
    use_logarithm(monkeypatch, panel)
    low, high = noise_bars(panel)
    np.testing.assert_allclose([panel.values / low, high / panel.values], np.exp(2 * NOISE))


def test_files_of_two_problems_are_refused(made: dict[str, Inputs]) -> None:
    mixed = dataclasses.replace(made["toy_field"], reference=made["toy_torus"].reference)
    with pytest.raises(DataError, match=r"of toy_torus, but .*of toy_field"):
        show(mixed)


def test_more_than_two_dimensions_are_refused(
    made: dict[str, Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = Field("f", Grid((0.0,) * 3, (1.0,) * 3, (3, 3, 9)))
    change_fields(monkeypatch, lambda f: dataclasses.replace(f, input=cube, output=cube))
    with pytest.raises(DataError, match="one or two dimensions"):
        show(made["toy_field"])


def test_the_training_split_is_not_read(
    made: dict[str, Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = ArrayFile.read

    def spy(file: ArrayFile, name: str, *rest: object) -> np.ndarray:
        read.append(name)
        return plain(file, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ArrayFile, "read", spy)
    show(made["toy_linear"])
    assert read and not any(name.startswith("training") for name in read)
