"""Nothing that is read can run code or write outside the results folder."""

import re
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, fresh_copy
from uqsonet.errors import ConfigError
from uqsonet_study.loading import read_config

FORBIDDEN = re.compile(
    r"(import|from) (c?[Pp]ickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|(?<![.\w])(eval|exec|compile|__import__)\("
    r"|\b(torch|torch\.jit|np|numpy|yaml)\.(load|save|unsafe_load|full_load)\("
    r"|\bos\.(system|popen)\(|read_pickle|(shell|allow_pickle)=True"
)
"""What could run what a file holds."""


def test_no_source_unpickles_or_evaluates() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]
    assert sources and not [p for p in sources if FORBIDDEN.search(p.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: !!python/object/apply:os.mkdir [ran.txt]\n", "could not determine a constructor"),
        ("".join(f"key{k}: 1\n" for k in range(150)), "... and 100 more"),
        ("results: Published/x\n", "results: is a part of the project itself"),
        (
            f"experiments: {{poisson2d: {{noise: {[*range(90)]}, dz: {[*range(1, 90)]}}}}}",
            "cases, at most 5000",
        ),
    ],
)
def test_a_configuration_is_refused_in_few_words(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config([ROOT / "config.yaml", file])
    assert message in str(caught.value) and len(str(caught.value)) < 30_000
    assert not Path("ran.txt").exists()


@pytest.mark.dag
def test_no_target_leads_out_of_the_folder_of_results(tmp_path: Path) -> None:
    project = fresh_copy(tmp_path / "project")
    for target in (
        "results/data/../../outside.h5",
        "results/train/diffusion1d/../../../outside/trial0.safetensors",
        "results/tables/../../outside.tex",
        "results/summary/diffusion1d;touch ran.txt.csv",
    ):
        result = project.snakemake("--dry-run", "--", target)
        output = result.stdout + result.stderr
        assert result.returncode != 0 and not (project.path / "ran.txt").exists()
        assert "MissingRuleException" in output or "not a valid" in output, output
