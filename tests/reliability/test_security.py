"""Nothing that is read can run code or write outside the results folder."""

import ast
from pathlib import Path

import pytest

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.errors import ConfigError
from uqsonet_study.cli import read_config

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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return fresh_copy(tmp_path_factory.mktemp("safe") / "project")


@pytest.mark.slow
def test_the_workflow_reads_tags_as_little(project: Project, tmp_path: Path) -> None:
    file = project.path / "config/evil.yaml"
    file.write_text(CODE.format(tmp_path / "made"))
    result = project.snakemake("--dry-run", "--configfile", "config/evil.yaml")
    assert result.returncode != 0 and not (tmp_path / "made").exists()


@pytest.mark.slow
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
