"""The figure of what learning the set embedding costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.report.fields import saved
from tests.report.inside import require_tidy
from uqsonet.errors import ConfigError, DataError
from uqsonet_study.cli import read_config
from uqsonet_study.config import Config
from uqsonet_study.pipeline import Plan
from uqsonet_study.report.figures import learning
from uqsonet_study.report.figures.style import styled

ROOT = Path(__file__).parents[2]
LEVELS = {"uqsonet": 0.02, "mixture": 0.03, "analogue": 0.05, "regression": 0.07}
COUNTS = (1, 4, 10)


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with styled():
        yield


@pytest.fixture(scope="module")
def config() -> Config:
    return read_config([ROOT / "config.yaml", ROOT / "config/learning.yaml"])


def value(method: str, experiment: str, training: int, m: int, metric: str) -> float:
    level = LEVELS.get(method, 0.3) * (4 if "learned" in experiment else 1)
    return level * (10000 / training) ** 0.4 * (1 + m / 100) * (2 if metric == "err_std" else 1)


@pytest.fixture
def files(config: Config, tmp_path: Path) -> dict[str, Any]:
    """What the jobs would write: an iteration of any training takes 6 ms, a law 30 s."""
    plan, declared = Plan(config), config.figures["learning"]
    rows = [
        (case.experiment, case.name, case.training, method, "precise", m, metric,
         value(method, case.experiment, case.training, m, metric))
        for case in config.cases_of(declared.experiments)
        for method in (*case.methods, "regression", "sensor_free", "cokriging")
        for m in range(1, 11)
        for metric in ("err_mean", "err_std", "mean_std")
    ]  # fmt: skip
    names = "experiment case training method evaluation sensors metric value".split()
    summary = tmp_path / "summary.csv"
    pd.DataFrame(rows, columns=names).to_csv(summary, index=False)
    runs = plan.runs(declared)  # type: ignore[arg-type]
    for run in runs:
        steps = config.method_of(run["case"], "uqsonet").training.iterations
        for kind, seconds in (("training", [0.003 * steps, 0.006 * steps]), ("laws", [0.0, 30.0])):
            found = []
            for log in run[kind]:
                found.append(str(tmp_path / log.replace("/", "_")))
                pd.DataFrame({"trial": 0, "seconds": seconds}).to_csv(found[-1], index=False)
            run[kind] = found
    return {"summaries": [str(summary)], "runs": runs}


def test_panels_hold_the_errors_of_their_row_and_column(
    config: Config, files: dict[str, Any], tmp_path: Path
) -> None:
    figure = learning.draw(config, "learning", files)
    saved(figure, tmp_path, "full")
    require_tidy(figure)
    panels = figure.axes
    assert len(panels) == 4 * len(COUNTS)
    for k, axes in enumerate(panels):
        m, metric, top = COUNTS[k % 3], ("err_mean", "err_std")[k // 3 % 2], k < 6
        lines = {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.lines}
        sizes = [1000, 3000, 10000, 30000, 100000]
        if top:
            where = "diffusion1d_sizes_learned"
            expected = [(n, 100 * value("uqsonet", where, n, m, metric)) for n in sizes]
            np.testing.assert_allclose(lines["learned set embedding"], expected)
            expected = [(n, 100 * value("mixture", "", n, m, metric)) for n in sizes]
            np.testing.assert_allclose(lines["law: mixture"], expected)
            assert len(lines["regression"]) == len(lines["sensor_free"]) == 5
        else:
            steps = 1000 * np.array([1, 2, 4, 8, 16])
            found = lines["learned set embedding"]
            np.testing.assert_allclose(found[:, 0], 0.006 * steps / 60)
            same = 100 * value("uqsonet", "learned", 10000, m, metric)
            np.testing.assert_allclose(found[:, 1], same)
            of_mixture = (0.006 * np.array([1000, 2000, 6000]) + 30) / 60
            np.testing.assert_allclose(lines["law: mixture"][:, 0], of_mixture)


def test_equal_figures_are_equal_files(
    config: Config, files: dict[str, Any], tmp_path: Path
) -> None:
    first = saved(learning.draw(config, "learning", files), tmp_path, "full")
    assert saved(learning.draw(config, "learning", files), tmp_path, "full") == first


def test_the_job_reads_every_log_once(config: Config) -> None:
    made = Plan(config).figure("learning")
    assert len(made.inputs["training"]) == len(set(made.inputs["training"])) == 18 - 2
    assert len(made.inputs["summaries"]) == 10 and made.inputs["laws"]


def test_more_lines_than_looks_are_refused(
    config: Config, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "LOOKS", learning.LOOKS[:3])
    with pytest.raises(DataError, match="4 lines, at most 3"):
        learning.draw(config, "learning", files)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("sizes: [diffusion1d_learned_2]", "diffusion1d_learned_2 has no sweep.training"),
        ("budgets: [diffusion1d_sizes_known]", "diffusion1d_sizes_known has several cases"),
        ("counts: [1, 11]", r"\[11\] not among experiments"),
    ],
)
def test_a_wrong_declaration_is_refused(tmp_path: Path, change: str, words: str) -> None:
    path = tmp_path / "extra.yaml"
    path.write_text(f"figures: {{learning: {{{change}}}}}\n")
    with pytest.raises(ConfigError, match=words):
        read_config([ROOT / "config.yaml", ROOT / "config/learning.yaml", path])
