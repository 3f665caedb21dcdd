"""Nothing that is read can run code or write outside the results folder."""

import ast
import time
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.errors import ConfigError
from uqsonet_study.check import check_path
from uqsonet_study.cli import read_config
from uqsonet_study.config.loading import read_mapping
from uqsonet_study.pipeline import Plan

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")])
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_ATTRIBUTES = {
    *("torch.load", "torch.save", "torch.jit.load", "np.load", "numpy.load", "pd.read_pickle"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen"),
}


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_source_unpickles_or_evaluates(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not FORBIDDEN_MODULES & {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            name = name_of(node.func)
            assert name not in FORBIDDEN_CALLS | FORBIDDEN_ATTRIBUTES, f"{name}: {node.lineno}"
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", None)
                assert not (keyword.arg in ("shell", "allow_pickle") and value), node.lineno


CODE = "seed: !!python/object/apply:os.mkdir [{}]\n"


def test_a_configuration_of_tags_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(CODE.format(tmp_path / "made"))
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        read_config([ROOT / "config.yaml", file])
    assert not (tmp_path / "made").exists()


def test_a_configuration_too_deep_to_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text("a: " + "[" * 5000)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config([file])


RUNS = """\
__use_yte__: true
__definitions__:
  - import pathlib
  - pathlib.Path({!r}).write_text("ran")
"""
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}\n" for k in range(1, 22)
)
LAUGHS = "recipes: &r0 [x]\n" + "".join(
    f"r{k}: &r{k} [{', '.join([f'*r{k - 1}'] * 10)}]\n" for k in range(1, 10)
)
NOISES, SIZES = [k / 1000 for k in range(1000)], list(range(1, 1001))
CASES = f"experiments: {{diffusion1d: {{noise_std: {NOISES}, sweep: {{latent_dim: {SIZES}}}}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RUNS.format("ran.txt"), "line 1: __use_yte__ makes Snakemake run code; remove it"),
        (MERGED, "more than 100000 values with each alias written out"),
        (LAUGHS, "more than 100000 values with each alias written out"),
        ("seed: &a [*a]\n", "it holds itself"),
        ("problems: &a {x: *a}\n", "it holds itself"),
        ("[" * 50 + "]" * 50, "must hold a mapping, found seq"),
        ("a: " + "[" * 50 + "]" * 50, "nested more than 40 levels deep"),
        ("a: b\n" * 200_000, "1000000 characters, at most 524288 are read"),
        ("", "must hold a mapping, found nothing"),
        ("seed: 1\nseed: 2\n", "line 2: seed stands twice"),
        ("jobs: {device: cpu, device: cuda}\n", "line 1: device stands twice"),
        ("seed: 1:30:00\n", "line 1: 1:30:00 would be read to the base of 60"),
        ("seed: 010\n", "line 1: 010 is no integer in plain decimal digits"),
        (f"seed: 0x{'f' * 5000}\n", "fff is no integer in plain decimal digits"),
        ("seed: true\n", "seed: must be a number, found True"),
        ("experiments: {diffusion1d: {trials: true}}", "trials: must be a number, found True"),
        ("problems: {diffusion1d: {training: no}}", "problems.diffusion1d.training"),
        ("results: src\n", "results: is a part of the project itself"),
        ("results: workflow/rules\n", "results: is a part of the project itself"),
        ("results: Published/x\n", "results: is a part of the project itself"),
        ("results: Makefile\n", "results: is a part of the project itself"),
        (f"results: {'a' * 300}\n", "results: String should have at most 100 characters"),
        (CASES, "cases together, at most 5000"),
        ("recipe: tunde\n", "'; did you mean 'tuned'?"),
        ("select: [diffusoin1d]\n", "did you mean 'diffusion1d'?"),
        ("sede: 1\n", "sede: unknown key; did you mean 'seed'?"),
        ("jobs: {trails_per_job: 1}\n", "unknown key; did you mean 'trials_per_job'?"),
        (
            "recipes: {tuned: {diffusion1d: {uqsonet: {training: {batchsize: 1}}}}}\n",
            "training.batchsize: unknown key; did you mean 'batch_size'?",
        ),
    ],
)
def test_a_configuration_is_refused_in_a_moment(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    start = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        read_config([ROOT / "config.yaml", file])
    assert message in str(caught.value) and len(str(caught.value)) < 30_000
    assert time.monotonic() - start < 10
    assert not (tmp_path / "ran.txt").exists() and not Path("ran.txt").exists()


def test_all_configurations_of_the_project_are_read_as_before() -> None:
    for file in sorted([ROOT / "config.yaml", *(ROOT / "config").glob("*.yaml")]):
        text = file.read_text(encoding="utf-8")
        assert read_mapping(text, str(file)) == yaml.safe_load(text)


def test_a_named_configuration_is_checked(tmp_path: Path) -> None:
    assert [*check_path(ROOT / "config/smoke.yaml")] == [(ROOT / "config/smoke.yaml", None)]
    file = tmp_path / "evil.yaml"
    file.write_text(RUNS.format("ran.txt"))
    ((_, problem),) = check_path(file)
    assert problem is not None and "__use_yte__" in problem


def test_a_selection_says_what_it_leaves_alone() -> None:
    files = [ROOT / "config.yaml", ROOT / "config/smoke.yaml"]
    config = read_config(files)
    one = Plan(config.model_copy(update={"select": ["poisson2d"]}))
    text = one.left_alone()
    assert text.startswith("select: poisson2d alone. results/smoke/tables/all.tex")
    assert "1d-pde-error" in text and all(name not in text for name in one.tables())
    assert Plan(config).left_alone().endswith("tables none; figures none")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return fresh_copy(tmp_path_factory.mktemp("safe") / "project")


@pytest.mark.long
def test_the_workflow_reads_tags_as_little(project: Project, tmp_path: Path) -> None:
    file = project.path / "config/evil.yaml"
    file.write_text(CODE.format(tmp_path / "made"))
    result = project.snakemake("--dry-run", "--configfile", "config/evil.yaml")
    assert result.returncode != 0 and not (tmp_path / "made").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "line 2: seed stands twice"),
        ("seed: &a [*a]\n", "it holds itself"),
    ],
)
def test_the_workflow_refuses_a_file_before_it_plans(
    project: Project, text: str, message: str
) -> None:
    (project.path / "config/odd.yaml").write_text(text)
    result = project.snakemake("--dry-run", "--configfile", "config/odd.yaml")
    assert result.returncode != 0 and message in result.stdout + result.stderr


@pytest.mark.long
def test_the_workflow_runs_no_code_of_its_own_configuration(project: Project) -> None:
    """A file of --configfile is read by Snakemake before the Snakefile; see docs/reliability.md."""
    file = project.path / "config.yaml"
    before = file.read_text()
    file.write_text(RUNS.format("ran.txt") + before)
    result = project.snakemake("--dry-run")
    file.write_text(before)
    assert result.returncode != 0 and not (project.path / "ran.txt").exists()
    assert "__use_yte__ makes Snakemake run code" in result.stdout + result.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        "results/simulate/../../outside.h5",
        "results/train/diffusion1d/../../../outside/trial_0.safetensors",
        "results/evaluate/diffusion1d/paper/../../../../outside/trial_0.csv",
        "results/tables/../../outside.tex",
        "/tmp/simulate/diffusion1d.h5",
        "results/summary/diffusion1d;touch outside.csv",
    ],
)
def test_no_target_leaves_the_results_folder(project: Project, target: str) -> None:
    result = project.snakemake("--dry-run", "--", target)
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "MissingRuleException" in output or "not a valid" in output, output
