"""Where sensors stand, through the whole DAG, with `config/placement.yaml` in small."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.workflow.conftest import Project, fresh_copy
from uqsonet_study.report.place_scores import COLUMNS, STRATEGIES

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.xdist_group("placement"),  # one worker makes what they share
]

FILES = "config/smoke.yaml", "config/placement.yaml", "tiny.yaml"
RESULTS = Path("results/smoke")
WANTED = [str(RESULTS / name) for name in ("tables/placement.tex", "figures/placement.pdf")]
SHOWN = ["diffusion1d", "elliptic_sde1d_more"]
OVERLAY: dict[str, Any] = {
    "results": str(RESULTS),
    "select": SHOWN,
    "tables": {
        "placement": {
            "shipped": False,
            "counts": [1, 4, 8],
            "random": 8,
            "functions": 2,
            "samples": 60,
        }
    },
    "figures": {"placement": {"experiments": SHOWN}},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = fresh_copy(tmp_path_factory.mktemp("places") / "project")
    (project.path / "tiny.yaml").write_text(yaml.safe_dump(OVERLAY))
    result = project.snakemake("--configfile", *FILES, "--", *WANTED)
    assert result.returncode == 0, result.stdout + result.stderr
    return project


def test_greedy_places_leave_less_than_others(places: Project) -> None:
    scores = pd.read_csv(places.path / RESULTS / "placement/scores.csv")
    assert list(scores.columns) == COLUMNS
    assert len(scores) == 2 * 3 * len(STRATEGIES) and min(scores["std"].tolist()) > 0
    columns = ["problem", "strategy", "sensors", "std"]
    at = {tuple(key): std for *key, std in scores[columns].to_numpy().tolist()}
    for problem in ("diffusion1d", "elliptic_sde1d"):
        for m in (1, 4, 8):
            ends = at[problem, "random_low", m], at[problem, "random_high", m]
            assert ends[0] <= at[problem, "random", m] <= ends[1]
            if problem == "diffusion1d":
                assert at[problem, "greedy", m] < ends[0]
        last = at[problem, "greedy", 8]
        assert last < at[problem, "greedy", 1] and last < at[problem, "worst", 8]


def test_table_and_figure_are_there(places: Project) -> None:
    folder = places.path / RESULTS
    assert "space-filling" in (folder / "tables/placement.tex").read_text()
    assert (folder / "figures/placement.pdf").stat().st_size > 5000
    table = pd.read_csv(folder / "tables/placement.csv")
    assert set(table["method"]) == set(STRATEGIES)
