from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tests.report.conftest import case_scores, whole_config, write_scores
from tests.report.fields import saved
from tests.report.inside import require_tidy
from uqsonet.errors import DataError
from uqsonet_study.report.figures import compare
from uqsonet_study.report.figures.colours import AMBER, BLUE, GREEN, REFERENCE
from uqsonet_study.report.figures.compare import draw_compare, sweep
from uqsonet_study.report.figures.style import styled
from uqsonet_study.report.summary import summarise

NAN = float("nan")
COLUMNS = ["sensors", "x", "method", "metric", "value", "pm"]
SIZES = [500, 1000, 2500, 5000, 10000, 20000]
LATENT = [1, 2, 5, 10, 15, 20]
OTHERS = ("regression", "cokriging", "sensor_free", "reference")


def table(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    """Long form from (sensors, x, method, metric, value, pm), in no order."""
    made = pd.DataFrame(rows, columns=COLUMNS)
    return made.sample(frac=1.0, random_state=0)


def make_distance() -> pd.DataFrame:
    rows: list[tuple[object, ...]] = []
    for m in (3, 5):
        rows += [(m, x, "reference", "w2", 0.14 + m / 1000, NAN) for x in LATENT]
        rows += [(m, x, "uqsonet", "w2", 0.14 + 0.1 / x, 0.01 / x) for x in LATENT]
        rows += [(m, x, "uqsonet", "w2_gaussian", 0.03 + 0.1 / x, 0.01) for x in LATENT]
    return table(rows)


def make_errors(
    methods: tuple[str, ...] = OTHERS, counts: tuple[int, ...] = (3, 5)
) -> pd.DataFrame:
    rows: list[tuple[object, ...]] = []
    levels = {"regression": 0.044, "cokriging": 0.05, "sensor_free": 0.3, "reference": 0.007}
    for m in counts:
        for k, metric in enumerate(("err_mean", "err_std")):
            for x in SIZES:
                value = (0.02 + 0.01 * k) * (10000 / x) ** 0.4
                rows.append((m, x, "uqsonet", metric, value, NAN if x == 20000 else value / 5))
            for method in methods:
                level = levels[method] * (1 + k / 4)
                rows += [(m, x, method, metric, level, NAN) for x in SIZES]
    return table(rows)


def make_spread(pm: float = 0.004) -> pd.DataFrame:
    rows: list[tuple[object, ...]] = []
    for m in range(1, 11):
        rows.append((m, m, "reference", "mean_std", 0.3 - m / 100, NAN))
        rows.append((m, m, "uqsonet", "mean_std", 0.31 - m / 100, pm))
    return table(rows)


def make_all() -> dict[str, pd.DataFrame]:
    return {"distance": make_distance(), "errors": make_errors(), "spread": make_spread()}


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with styled():
        yield


def panels(figure: Figure) -> list[Axes]:
    return figure.axes


def values(axes: Axes, color: str, marker: str) -> np.ndarray:
    """Return the points of the one line with filled marks of that colour."""
    (line,) = (
        line
        for line in axes.lines
        if (line.get_color(), line.get_marker()) == (color, marker)
        and line.get_markerfacecolor() == color
    )
    return np.asarray(line.get_xydata())


def error_bars(axes: Axes) -> dict[str, list[np.ndarray]]:
    """Return the vertical segments of error bars by colour."""
    found: dict[str, list[np.ndarray]] = {}
    for part in axes.collections:
        if isinstance(part, LineCollection):
            found.setdefault(to_hex(part.get_color()[0]).upper(), []).extend(part.get_segments())
    return found


def legends(figure: Figure) -> list[list[str]]:
    """Return what stands in the legend of each row of panels."""
    return [[text.get_text() for text in row.legends[0].get_texts()] for row in figure.subfigs]


def expected(made: pd.DataFrame, m: int, method: str, metric: str) -> pd.DataFrame:
    keep = (made.sensors == m) & (made.method == method) & (made.metric == metric)
    return made[keep].sort_values("x")


def titles(figure: Figure) -> list[str]:
    return [a.get_title() for a in panels(figure)]


def test_three_tables() -> None:
    figure = draw_compare(make_all())
    assert titles(figure) == ["$m = 3$", "$m = 5$"] * 2 + [""]
    letters = [a.get_title(loc="left") for a in panels(figure)]
    assert letters == ["(a)", "", "(b)", "", "(c)"]
    methods = ["UQ-SONet", "Regression", "Cokriging", "Sensor-free", "MC floor"]
    assert legends(figure) == [
        ["$W_2$ of samples", "$W_2$ of Gaussians", "two reference draws"],
        ["error of the mean", "error of the std", *methods],
        ["reference", "UQ-SONet"],
    ]
    labels = [a.get_xlabel() for a in panels(figure)]
    assert labels == ["latent dimension $d_z$"] * 2 + ["training pairs $N$"] * 2 + [
        "number of sensors $m$"
    ]
    assert "(%)" in panels(figure)[2].get_ylabel()
    require_tidy(figure)


@pytest.mark.parametrize("given", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_any_subset(given: tuple[int, ...]) -> None:
    chosen = [list(make_all().items())[k] for k in given]
    figure = draw_compare(dict(chosen))
    assert len(panels(figure)) == sum([2, 2, 1][k] for k in given)
    letters = [a.get_title(loc="left") for a in panels(figure) if a.get_title(loc="left")]
    assert letters == (["(a)", "(b)"] if len(given) == 2 else [])
    require_tidy(figure)


@pytest.mark.parametrize("counts", [(3,), (3, 9), (1, 3, 9)])
def test_errors_of_one_method(counts: tuple[int, ...]) -> None:
    figure = draw_compare({"errors": make_errors((), counts)})
    assert titles(figure) == [f"$m = {m}$" for m in counts]
    assert legends(figure) == [["error of the mean", "error of the std", "UQ-SONet"]]
    require_tidy(figure)


def test_rows_of_different_numbers_of_panels() -> None:
    figure = draw_compare(make_all() | {"errors": make_errors(counts=(1, 3, 9))})
    assert len(panels(figure)) == 2 + 3 + 1
    require_tidy(figure)


def test_distances_are_those_given() -> None:
    made = make_distance()
    figure = draw_compare({"distance": made})
    for axes, m in zip(panels(figure), (3, 5), strict=True):
        for metric, color, marker in (("w2", BLUE, "o"), ("w2_gaussian", GREEN, "^")):
            truth = expected(made, m, "uqsonet", metric)
            np.testing.assert_allclose(values(axes, color, marker), truth[["x", "value"]])
            bars = np.array(error_bars(axes)[color])[:, :, 1]
            low, high = truth.value - truth.pm, truth.value + truth.pm
            np.testing.assert_allclose(bars, np.stack([low, high], axis=1))
        (level,) = (line for line in axes.lines if line.get_color() == REFERENCE)
        assert set(np.asarray(level.get_ydata())) == {0.14 + m / 1000}
        assert axes.get_ylim()[0] == 0
    assert [tick for tick in panels(figure)[0].get_xticks()] == LATENT


def test_errors_are_those_given_in_percent() -> None:
    made = make_errors()
    figure = draw_compare({"errors": made})
    for axes, m in zip(panels(figure), (3, 5), strict=True):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        for metric, color, marker in (("err_mean", BLUE, "o"), ("err_std", AMBER, "s")):
            truth = expected(made, m, "uqsonet", metric)
            found = values(axes, color, marker)
            np.testing.assert_allclose(found[:, 0], truth.x)
            np.testing.assert_allclose(found[:, 1], 100 * truth.value)
            # The largest set has one trial: no bar.
            bars = np.array(error_bars(axes)[color])
            assert bars[:, 0, 0].tolist() == SIZES[:-1]
            np.testing.assert_allclose(bars[:, 1, 1], 120 * truth.value[:-1])
        thin = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
        assert len(thin) == 2 * len(OTHERS)
        assert all(np.asarray(line.get_xdata()).tolist() == SIZES for line in thin)
        heights = sorted({round(float(np.asarray(line.get_ydata())[0]), 6) for line in thin})
        assert heights == [0.7, 0.875, 4.4, 5.0, 5.5, 6.25, 30.0, 37.5]
        low, high = axes.get_ylim()
        assert low < 0.7 and high > 37.5
    assert [t.get_text() for t in panels(figure)[0].get_xticklabels()] == [
        "500",
        "1k",
        "2.5k",
        "5k",
        "10k",
        "20k",
    ]


def test_bars_of_spread_are_those_given() -> None:
    made = make_spread()
    (axes,) = panels(draw_compare({"spread": made}))
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    reference, ours = bars[:10], bars[10:]
    for found, method in ((reference, "reference"), (ours, "uqsonet")):
        truth = made[made.method == method].sort_values("x")
        np.testing.assert_allclose([bar.get_height() for bar in found], truth.value)
    for left, right, m in zip(reference, ours, range(1, 11), strict=True):
        assert left.get_x() + left.get_width() == pytest.approx(m) == right.get_x()
        assert left.get_hatch() and not right.get_hatch()
    ((_, segments),) = error_bars(axes).items()
    np.testing.assert_allclose([s[1, 1] - s[0, 1] for s in segments], 0.008)


def test_one_trial_has_no_bars() -> None:
    figure = draw_compare({part: table.assign(pm=NAN) for part, table in make_all().items()})
    assert not any(error_bars(axes) for axes in panels(figure))
    require_tidy(figure)


def test_a_bar_below_zero_does_not_stretch_the_axis() -> None:
    made = make_errors(())
    figure = draw_compare({"errors": made.assign(pm=2 * made.value)})
    low, _ = panels(figure)[0].get_ylim()
    assert low > 100 * made.value.min() / 3
    require_tidy(figure)


def test_files_repeat_byte_by_byte(tmp_path: Path) -> None:
    first = saved(draw_compare(make_all()), tmp_path, "smoke")
    assert saved(draw_compare(make_all()), tmp_path, "smoke") == first


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Summaries of the sweeps and of Table 1, with W2 added."""
    config, folder = whole_config(), tmp_path_factory.mktemp("scores")
    files = {}
    for k, case in enumerate(config.cases_of(["diffusion1d", *SWEEPS])):
        scores = case_scores(case, seed=k)
        spread = scores.loc[scores["metric"] == "mean_std"]
        ours = spread.loc[spread["method"] != "reference"]
        extra = [spread.assign(metric="w2"), ours.assign(metric="w2_gaussian")]
        files[case.name] = write_scores(pd.concat([scores, *extra]), folder / case.name)
    return summarise(files, config)


SWEEPS = ["diffusion1d_latent", "diffusion1d_size"]


def test_all_points_are_there(summaries: pd.DataFrame) -> None:
    distance = sweep(summaries, "distance", "diffusion1d_latent")
    ours = distance.loc[distance["method"] == "uqsonet"]
    assert sorted(ours["x"].unique()) == LATENT and len(ours) == 6 * 2 * 2
    assert set(distance.loc[distance["method"] == "reference", "sensors"]) == {3, 5}
    errors = sweep(summaries, "errors", "diffusion1d_size")
    assert sorted(errors["x"].unique()) == SIZES
    assert len(errors) == 6 * 2 * 5 * 2  # N, sensors, methods, metrics
    assert set(errors["metric"]) == {"err_mean", "err_std"} and "vidon" not in set(errors["method"])
    spread = sweep(summaries, "spread", "diffusion1d")
    assert list(spread.loc[spread["method"] == "uqsonet", "x"]) == list(range(1, 11))


def test_values_are_those_of_the_summary(summaries: pd.DataFrame) -> None:
    given = summaries.set_index(["case", "evaluation", "method", "metric", "sensors"])["value"]
    for row in sweep(summaries, "errors", "diffusion1d_size").to_dict("records"):
        case = f"diffusion1d_size-n{row['x']:.0f}"
        key = (case, "precise", row["method"], row["metric"], row["sensors"])
        assert row["value"] == given[key]


def test_a_figure_of_errors_alone(summaries: pd.DataFrame, tmp_path: Path) -> None:
    config = whole_config()
    figure = config.figures["1d-sde-compare"].model_copy(update={"errors": "diffusion1d_size"})
    config = config.model_copy(update={"figures": {"alone": figure}})
    summaries.to_csv(tmp_path / "summary.csv", index=False)
    drawn = compare.draw(config, "alone", {"summaries": [str(tmp_path / "summary.csv")]})
    assert titles(drawn) == ["$m = 3$", "$m = 5$"] and len(drawn.subfigs) == 1


def test_what_is_refused(summaries: pd.DataFrame) -> None:
    others = summaries.loc[summaries["method"] != "uqsonet"]
    with pytest.raises(DataError, match="_latent: the summary holds no w2 or w2_gaussian of uqson"):
        sweep(others, "distance", "diffusion1d_latent")
    with pytest.raises(DataError, match="diffusion1d: a value of mean_std is not finite"):
        sweep(summaries.assign(value=NAN), "spread", "diffusion1d")
