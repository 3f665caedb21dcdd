"""The points of the figures of sweeps are those of the summary, no more and no fewer."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.report.conftest import case_scores, whole_config, write_scores
from uqsonet_study.config import Config
from uqsonet_study.report.figures import sweeps
from uqsonet_study.report.figures.sweeps import sweep_figure
from uqsonet_study.report.summary import summarise


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Summaries of the sweeps and of Table 1, with W2 added."""
    config, folder = whole_config(), tmp_path_factory.mktemp("scores")
    files = {}
    for k, case in enumerate(config.cases_of(["diffusion1d", *SWEEPS])):
        scores = case_scores(case, seed=k)
        spread = scores.loc[scores["metric"] == "mean_std"]
        ours = spread.loc[spread["method"] == "uqsonet"]
        extra = [spread.assign(metric="w2"), ours.assign(metric="w2_gaussian")]
        files[case.name] = write_scores(pd.concat([scores, *extra]), folder / case.name)
    return summarise(files, config)


SWEEPS = ["diffusion1d_latent", "diffusion1d_size"]
Tables = tuple[pd.DataFrame | None, ...]


def tables(summaries: pd.DataFrame, config: Config, name: str, patch: pytest.MonkeyPatch) -> Tables:
    found: list[Tables] = []
    patch.setattr(sweeps, "compare_figure", lambda *given: found.append(given[:3]))
    sweep_figure(summaries, config, name, Path("a.pdf"), Path("a.png"))
    return found[0]


def test_all_points_are_there(summaries: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    config = whole_config()
    distance, errors, spread = tables(summaries, config, "1d-pde-compare", monkeypatch)
    assert distance is not None and errors is not None and spread is not None
    ours = distance.loc[distance["method"] == "uqsonet"]
    assert sorted(ours["x"].unique()) == [1, 2, 5, 10, 15, 20] and len(ours) == 6 * 2 * 2
    floor = distance.loc[distance["method"] == "reference"]
    assert list(floor["sensors"]) == [3, 5] and floor["x"].isna().all()
    assert sorted(errors["x"].unique()) == [500, 1000, 2500, 5000, 10000, 20000]
    assert len(errors) == 6 * 2 * 4 * 2  # N, sensors, methods, metrics
    assert list(spread.loc[spread["method"] == "uqsonet", "x"]) == list(range(1, 11))


def test_values_are_those_of_the_summary(
    summaries: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, errors, _ = tables(summaries, whole_config(), "1d-pde-compare", monkeypatch)
    assert errors is not None
    given = summaries.set_index(["case", "evaluation", "method", "metric", "sensors"])["value"]
    for row in errors.to_dict("records"):
        case = f"diffusion1d_size-n{row['x']:.0f}"
        key = (case, "precise", row["method"], row["metric"], row["sensors"])
        assert row["value"] == given[key]


def test_a_figure_of_errors_alone(summaries: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    config = whole_config()
    figure = config.figures["1d-sde-compare"].model_copy(update={"errors": "diffusion1d_size"})
    config = config.model_copy(update={"figures": {"alone": figure}})
    distance, errors, spread = tables(summaries, config, "alone", monkeypatch)
    assert distance is None and spread is None and errors is not None
