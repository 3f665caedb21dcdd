"""The picture of layouts: both dimensions, densities that are right, files that repeat."""

from pathlib import Path

import numpy as np
import pytest

from tests.report.conftest import make_config
from tests.report.fields import saved
from uqsonet.errors import DataError
from uqsonet.fields import Grid
from uqsonet.problems import get_problem
from uqsonet_study.config import SensorsConfig
from uqsonet_study.layouts import candidates, generate_layouts
from uqsonet_study.report.figures.layouts import Pool, _edges, _relative_density, draw
from uqsonet_study.report.figures.style import styled

COUNTS = [1, 2, 3, 4, 5]


def make_layouts(folder: Path, problem: str) -> Path:
    config = SensorsConfig(
        counts=COUNTS, pool=40, layout="regular_space", margin=0.1, distances={2: 0.5, 3: 0.3}
    )
    generate_layouts(problem, config, 0, 2, 2, folder / "sensors.h5")
    return folder / "sensors.h5"


@pytest.mark.parametrize("problem", ["toy_linear", "toy_plane"])
def test_layouts_figure_repeats_byte_by_byte(tmp_path: Path, problem: str) -> None:
    sensors, found = make_layouts(tmp_path, problem), []
    for _ in range(2):
        with styled():
            figure = draw(make_config(), "e_1_layouts", {"sensors": [str(sensors)]})
            found.append(saved(figure, tmp_path, "smoke"))
    assert found[0] == found[1]


def test_more_than_two_dimensions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = Grid((0.0,) * 3, (1.0,) * 3, (7, 9, 7))
    monkeypatch.setitem(vars(get_problem("toy_plane")), "grid", cube)
    sensors = make_layouts(tmp_path, "toy_plane")
    with pytest.raises(DataError, match=r"sensors\.h5: .*one or two dimensions"):
        draw(make_config(), "e_1_layouts", {"sensors": [str(sensors)]})


@pytest.mark.parametrize("shape", [(101, 101), (40, 101), (57,)])
def test_the_density_of_every_candidate_once_is_one(shape: tuple[int, ...]) -> None:
    # Also in last bins that hold fewer grid points than the others.
    grid = Grid((0.0,) * len(shape), (1.0,) * len(shape), shape)
    places = candidates(grid, 0.1)
    pool = Pool(grid, SensorsConfig(counts=[1], margin=0.1), places, {1: places[:, None]})
    np.testing.assert_allclose(_relative_density(pool, 1, _edges(pool)), 1.0)
