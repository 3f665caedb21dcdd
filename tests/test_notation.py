"""The paper's symbols and labels: every file and name that docs/notation.md cites exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
PACKAGES = ("uqsonet", "uqsonet_study")
FOLDERS = [ROOT, *(ROOT / "src" / package for package in PACKAGES)]
TEXT = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "|---" not in line]
CITED = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])})
WORDS = {"queries", "training", "recipes.paper", "err_mean", "err_std"}
"""What stands in code letters and is neither a file nor a Python name."""


def found(name: str) -> bool:
    """Whether a dotted name exists below a package; attributes may be set in `__init__`."""
    return any(found_below(package, name) for package in PACKAGES)


def found_below(package: str, name: str) -> bool:
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join([package, *parts[:k]]))
        except ModuleNotFoundError:
            continue
        for i, part in enumerate(parts[k:]):
            if isinstance(thing, type) and i + k == len(parts) - 1:
                return has_attribute(thing, part)
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def has_attribute(cls: type, name: str) -> bool:
    if issubclass(cls, BaseModel):
        return name in cls.model_fields
    declared = any(name in getattr(base, "__annotations__", {}) for base in cls.__mro__)
    return hasattr(cls, name) or declared or f"self.{name} =" in inspect.getsource(cls)


@pytest.mark.parametrize("name", [name for name in CITED if name not in WORDS])
def test_what_is_cited_exists(name: str) -> None:
    if "/" in name or name.endswith((".py", ".yaml", ".md")):
        assert any((folder / name).exists() for folder in FOLDERS)
    else:
        assert found(name)


@pytest.mark.parametrize(
    "name",
    [
        "models.attention.AttentionModel.stem",
        "nn.attention.AttentionModel",
        "config.TrainingConfig.m",
        "no",
    ],
)
def test_what_does_not_exist_is_noticed(name: str) -> None:
    assert not found(name)


def test_every_label_of_the_paper_is_there() -> None:
    cited = set(re.findall(r"(?:tab|fig|eq|eqn|alg):[\w-]+", TEXT))
    figures = "setonet 1d-pde-compare 1d-pde-plot 1d-pde-addnoise 2d-pde-plot 1d-sde-compare"
    figures += " 1d-sde-plot 2d-sde-plot 2d-ns-plot 1d-pde-ensemble-plot"
    tables = "notation 1d-pde-error 1d-pde-addnoise-error 2d-pde-error 1d-sde-error 2d-sde-error"
    tables += " 2d-ns-error NN training-cost"
    equations = (
        "eq:deeponet-conventional eq:stochastic-operator eq:pooling eq:set eq:decoder eq:loss"
    )
    equations += " eq:1d eqn:1d-gp eqn:2d-pde eqn:2d-gp eq:1d-sto eqn:2d-sde eqn:2d-ns"
    equations += " eq:functional-loss alg:setonet"
    assert {f"fig:{name}" for name in figures.split()} <= cited
    assert {f"tab:{name}" for name in tables.split()} <= cited
    assert set(equations.split()) <= cited
