"""The whole DAG at smoke scale: what it makes, and what an edit makes it do again."""

import csv
import filecmp
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import pytest
import yaml

from tests.workflow.conftest import CORES, ROOT, SMOKE, Project, fresh_copy
from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config
from uqsonet_study.pipeline import Plan

pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]  # what takes time is watched
SINGLE = "config/single.yaml"
"""One trial of one method a job, as in the full run."""


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new, 1))


@pytest.fixture(autouse=True)
def single(request: pytest.FixtureRequest) -> None:
    if "editable" in request.fixturenames:
        path = request.getfixturevalue("editable").path / SINGLE
        path.write_text("jobs: {trials_per_job: 1, methods_together: false}\n")


IDLE = """from pathlib import Path

for path in (*snakemake.output, *snakemake.log):
    Path(path).touch()
"""


def let_jobs_idle(project: Project) -> None:
    """Replace what jobs compute by empty files, where only their number matters."""
    for script in (project.path / "workflow/scripts").glob("*.py"):
        script.write_text(IDLE)


def overlay(project: Project, values: dict) -> str:
    path = project.path / "config" / "extra.yaml"
    path.write_text(yaml.safe_dump(values))
    return "config/extra.yaml"


def test_every_promised_file_is_there(finished: Project) -> None:
    results = finished.path / SMOKE
    for name in (
        "tables/all.tex",
        "tables/1d-pde-error.tex",
        "tables/1d-pde-error.csv",
        "tables/1d-pde-error.json",
        "tables/1d-pde-addnoise-error.tex",
        "tables/training-cost.csv",
        "report.html",
        "scorecard.csv",
        "config.json",
        "jobs.csv",
        "figures/diffusion1d_data.pdf",
        "figures/diffusion1d_data.png",
        "figures/1d-pde-plot.pdf",
        "figures/1d-pde-plot.png",
        "figures/1d-pde-addnoise.pdf",
        "figures/diffusion1d_training.pdf",
    ):
        assert (results / name).stat().st_size > 0, name
    assert json.loads((results / "config.json").read_text())["scale"] == "smoke"


def test_the_document_of_tables_compiles_by_itself(finished: Project, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (apt install texlive-latex-extra lmodern)")
    shutil.copy(finished.path / SMOKE / "tables" / "all.tex", tmp_path)
    result = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert "Overfull \\hbox" not in result.stdout


def test_captions_say_that_it_is_smoke_scale(finished: Project) -> None:
    assert "SMOKE SCALE" in (finished.path / SMOKE / "tables" / "all.tex").read_text()


def test_the_scorecard_has_all_142_cells_and_ours_where_this_run_has_them(
    finished: Project,
) -> None:
    with (finished.path / SMOKE / "scorecard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 142
    ours = [row for row in rows if row["ours"]]
    cells = Counter(row["table"] for row in ours)
    assert cells == {"tab:1d-pde-error": 30, "tab:1d-pde-addnoise-error": 20}


def test_the_results_tree_passes_the_check(finished: Project) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "uqsonet", "check", str(finished.path / SMOKE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("ok ") >= 9


def test_nothing_is_planned_right_after_a_run(finished: Project) -> None:
    assert finished.planned() == {}


def test_another_number_of_cores_or_checkpoint_interval_reruns_no_training(
    editable: Project,
) -> None:
    single = editable.smoke(dry=True, cores=CORES + 1)
    assert "Nothing to be done" in single.stdout + single.stderr
    extra = overlay(editable, {"jobs": {"checkpoint_minutes": 7}})
    assert set(editable.planned(extra)) <= {"save_config", "all_tables", "page"}


def test_a_comment_a_message_or_a_version_reruns_nothing(editable: Project) -> None:
    source = editable.path / "src/uqsonet"
    model = source / "models/karhunen_loeve.py"
    edit(source / "models/attention.py", "import torch\n", "import torch  # a comment\n")
    edit(model, '"""The closed-form', '"""In better words: the closed-form')
    edit(source / "training/loop.py", 'f"the loss of trial', 'f"in other words: the loss of trial')
    edit(source / "version.py", '"', '"1.')
    edit(source / "solvers/elliptic1d.py", "from torch", "\n\nfrom torch")
    script = editable.path / "workflow/scripts/train.py"
    script.write_text(script.read_text() + "\n# a comment\n")
    edit(editable.path / "src/uqsonet_study/report/figures/style.py", "#", "#  ")
    style = editable.path / "src/uqsonet_study/report/figures/style.py"
    style.write_text(style.read_text() + "\nEXTRA_COLOUR = '#123456'\n")
    assert set(editable.planned()) == {"figure", "page"}
    pictures = {"diffusion1d_data", "diffusion1d_training"}
    assert editable.redrawn() == {"1d-pde-plot", "1d-pde-addnoise"} | pictures


def test_an_edit_of_a_model_retrains_it_and_no_other(editable: Project) -> None:
    model = editable.path / "src/uqsonet/models/karhunen_loeve_vidon.py"
    edit(model, "1 - (law.variance_reduction", "1.0 - (law.variance_reduction")
    planned = editable.planned()
    assert planned["train"] == 1  # vidon; uqsonet does not import that module
    assert "simulate" not in planned
    assert "reference" not in planned


def test_an_edit_of_the_solver_starts_at_the_beginning(editable: Project) -> None:
    edit(editable.path / "src/uqsonet/solvers/elliptic1d.py", "2.0 / (k", "2 / (k")
    planned = editable.planned()
    assert planned["simulate"] == 1
    assert planned["train"] == 2


def test_one_more_trial_adds_one_training_a_method(editable: Project) -> None:
    let_jobs_idle(editable)
    assert editable.smoke(SINGLE).returncode == 0
    trials = {"diffusion1d": {"trials": 3}, "diffusion1d_noise": {"trials": 3}}
    extra = overlay(editable, {"experiments": trials})
    planned = editable.planned(SINGLE, extra)
    assert planned["train"] == 2  # one for each of two methods
    # Each method in both evaluations, and uqsonet in both evaluations of five noise levels.
    assert planned["evaluate"] == 4 + 10
    assert "reference" not in planned


def test_one_more_noise_level_adds_its_reference_and_scores(editable: Project) -> None:
    levels = {"noise_std": [0.1, 0.3, 0.5, 0.7, 1.0, 2.0]}
    extra = overlay(editable, {"experiments": {"diffusion1d_noise": levels}})
    planned = editable.planned(extra)
    assert planned["reference"] == 2 and planned["evaluate"] == 2
    assert not {"train", "simulate", "sensors"} & set(planned)
    assert planned["summary"] == 1 and planned["table"] == 1  # and no other table
    result = editable.smoke(extra)
    assert result.returncode == 0, result.stdout + result.stderr
    table = (editable.path / SMOKE / "tables/1d-pde-addnoise-error.csv").read_text()
    assert "diffusion1d_noise-noise2," in table


def test_another_figure_draws_that_figure(editable: Project) -> None:
    figures = {"1d-pde-addnoise": {"noise_std": [0.3, 0.7]}}
    extra = overlay(editable, {"figures": figures})
    assert set(editable.planned(extra)) == {"figure", "page", "save_config", "all_tables"}
    assert editable.redrawn(extra) == {"1d-pde-addnoise"}


def test_a_stage_forced_alone_reruns_what_follows(editable: Project) -> None:
    result = editable.smoke("--forcerun", "scorecard", dry=True)
    assert result.returncode == 0, result.stdout + result.stderr
    for rule in ("scorecard", "all_tables", "page"):
        assert f"rule {rule}:" in result.stdout + result.stderr
    for rule in ("train", "evaluate", "summary", "figure"):
        assert f"rule {rule}:" not in result.stdout + result.stderr


def test_clustered_sensors_are_pictured(editable: Project) -> None:
    sensors = {"layout": "regular_space", "margin": 0.1, "distances": {2: 0.8, 4: 0.3}}
    extra = overlay(editable, {"experiments": {"diffusion1d": {"sensors": sensors}}})
    editable.select = ("diffusion1d",)
    assert editable.planned(extra)["sensors"] == 1
    assert "diffusion1d_layouts" in editable.redrawn(extra)
    target = str(SMOKE / "figures/diffusion1d_layouts.png")
    result = editable.smoke(extra, targets=(target,))
    assert result.returncode == 0, result.stdout + result.stderr
    assert (editable.path / target).stat().st_size > 0


def test_one_and_two_cores_give_the_same_bytes(finished: Project, tmp_path: Path) -> None:
    other = fresh_copy(tmp_path / "other")
    plan = other.plan()
    targets = (
        plan.functions("diffusion1d"),
        plan.layouts("diffusion1d"),
        plan.posteriors("diffusion1d", "paper"),
        *plan.trained("diffusion1d", "uqsonet", "safetensors"),
    )
    result = other.smoke(targets=targets, cores=2 if CORES == 1 else 1)
    assert result.returncode == 0, result.stdout + result.stderr
    for target in targets:
        assert filecmp.cmp(finished.path / target, other.path / target, shallow=False), target


BAD = [
    ({"experimentz": {}}, "experimentz: unknown key"),
    ({"experiments": {"diffusion1d": {"noise_std": -1}}}, "diffusion1d.noise_std: "),
    ({"tables": {"1d-pde-error": {"rows": "metric"}}}, "tables.1d-pde-error"),
    ({"figures": {"1d-pde-plot": {"counts": [99]}}}, "figures.1d-pde-plot: [99] not among"),
    ({"select": ["diffusion2d"]}, "select: ['diffusion2d'] not among the experiments"),
    ({"experiments": {"diffusion1d": {"problem": "diffusion9d"}}}, "diffusion9d"),
    ({"experiments": {"diffusion1d": {"methods": ["gnn"]}}}, "gnn"),
    ({"results": "../elsewhere"}, "results"),
    ({"evaluations": {"precise": {"sets": 11}}}, "exceeds the 10 test functions"),
]


@pytest.mark.parametrize(("values", "words"), BAD)
def test_a_bad_configuration_is_refused_with_its_key(
    tmp_path: Path, values: dict, words: str
) -> None:
    path = tmp_path / "extra.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError) as refused:
        Plan(read_config([ROOT / "config.yaml", ROOT / "config/smoke.yaml", path]))
    assert words in str(refused.value)


def test_the_workflow_ends_at_once_with_every_bad_key(editable: Project) -> None:
    values = {"experimentz": {}, "results": "../elsewhere"}
    values |= {"experiments": {"diffusion1d": {"noise_std": -1}}}
    result = editable.smoke(overlay(editable, values), dry=True)
    assert result.returncode != 0
    output = result.stdout + result.stderr
    for words in ("experimentz: unknown key", "results: ", "diffusion1d.noise_std: "):
        assert words in output
    assert "Traceback" not in output


def test_the_workflow_ends_at_once_without_a_file_for_a_method(editable: Project) -> None:
    values = {"experiments": {"diffusion1d": {"methods": ["gnn"]}}}
    result = editable.smoke(overlay(editable, values), dry=True)
    assert result.returncode != 0
    assert "gnn" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_a_job_that_nothing_needs_is_refused_by_name(editable: Project) -> None:
    target = str(SMOKE / "train/diffusion1d/uqsonet-00000000/trial_0.safetensors")
    result = editable.smoke(targets=(target,), dry=True)
    assert result.returncode != 0
    message = "needs no train job 'diffusion1d/uqsonet-00000000/trial_0'"
    assert message in result.stdout + result.stderr


def test_more_sensors_than_grid_points_are_refused(editable: Project) -> None:
    values = {"experiments": {"diffusion1d": {"sensors": {"counts": [2, 4, 7, 10, 402]}}}}
    before = (editable.path / SMOKE / "simulate/diffusion1d.h5").read_bytes()
    result = editable.smoke(overlay(editable, values))
    assert result.returncode != 0
    assert "402 sensors cannot stand on 401" in result.stdout + result.stderr
    assert (editable.path / SMOKE / "simulate/diffusion1d.h5").read_bytes() == before


@pytest.mark.parametrize("damage", ["nan", "truncated"])
def test_damaged_data_stops_the_jobs_that_read_it(editable: Project, damage: str) -> None:
    path = editable.path / SMOKE / "simulate/diffusion1d.h5"
    plan = editable.plan()
    weights = editable.path / plan.trained("diffusion1d", "vidon", "safetensors")[0]
    kept = weights.read_bytes()
    if damage == "nan":
        with h5py.File(path, "r+") as file:
            file["training/kappa"][3, 7] = float("nan")
    else:
        path.write_bytes(path.read_bytes()[:100_000])
    targets = tuple(plan.trained("diffusion1d", "uqsonet", "safetensors"))
    result = editable.smoke(targets=targets)
    assert result.returncode != 0
    output = result.stdout + result.stderr
    assert "results/smoke/simulate/diffusion1d.h5" in output
    assert ("SHA-256" if damage == "nan" else "HDF5") in output
    assert weights.read_bytes() == kept


def test_a_new_problem_and_a_new_method_need_one_file_each(editable: Project) -> None:
    source = editable.path / "src/uqsonet"
    text = (source / "problems/diffusion1d.py").read_text()
    text = text.replace('name = "diffusion1d"', 'name = "reaction1d"').replace("std=0.5", "std=0.4")
    (source / "problems/reaction1d.py").write_text(text)
    text = (source / "models/karhunen_loeve_vidon.py").read_text()
    text = text.replace('method = "vidon"', 'method = "other"').replace(
        "KarhunenLoeveVIDON(", "Other("
    )
    (source / "models/other.py").write_text(text)
    config = yaml.safe_load((editable.path / "config.yaml").read_text())
    recipe = config["recipes"]["tuned"]["diffusion1d"]["vidon"]
    recipe["training"]["iterations"] = 20
    values = {
        "select": ["reaction"],
        "problems": {"reaction1d": {"training": 1000, "validation": 10, "test": 10}},
        "experiments": {
            "reaction": {
                "problem": "reaction1d",
                "sensors": {"counts": [1, 2], "pool": 100},
                "methods": ["other"],
                "trials": 1,
                "evaluations": ["paper"],
            }
        },
        "recipes": {"tuned": {"reaction1d": {"other": recipe}}},
    }
    target = str(SMOKE / "summary/reaction.csv")
    result = editable.smoke(overlay(editable, values), targets=(target,))
    assert result.returncode == 0, result.stdout + result.stderr
