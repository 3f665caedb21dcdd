"""pyproject.toml, requirements.lock and environment.yml name the same packages and versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
CUDA = re.compile(r"^(nvidia|cuda|cupy|triton|pytorch-triton)\b")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LIBRARY = [Requirement(line) for line in PROJECT["dependencies"]]
RUNTIME = LIBRARY + [Requirement(line) for line in {*EXTRAS["runs"], *EXTRAS["study"]}]
RUNTIME.sort(key=str)
DEV = [
    Requirement(line) for line in EXTRAS["dev"] + EXTRAS["docs"] if not line.startswith("uqsonet")
]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())


def name_of(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def read_lock() -> dict[str, str]:
    """Map each package to its version; a line that is no exact pin fails."""
    pins: dict[str, str] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        (pin,) = requirement.specifier
        assert pin.operator == "==" and "*" not in pin.version, line
        assert name_of(requirement) not in pins, f"two versions of {requirement.name}"
        pins[name_of(requirement)] = pin.version
    return pins


def read_environment() -> dict[str, str]:
    """Map each package of environment.yml, by its name on PyPI, to its version."""
    pins: dict[str, str] = {}
    for entry in ENVIRONMENT["dependencies"]:
        for line in entry["pip"] if isinstance(entry, dict) else [entry]:
            name, _, version = re.sub("=+", "=", line).partition("=")
            pins[canonicalize_name(CONDA_NAMES.get(name, name))] = version
    return pins


@pytest.mark.parametrize("requirement", RUNTIME + DEV, ids=name_of)
def test_lock_satisfies_pyproject(requirement: Requirement) -> None:
    assert requirement.specifier.contains(read_lock()[name_of(requirement)])


@pytest.mark.parametrize("requirement", RUNTIME, ids=name_of)
def test_environment_has_the_version_of_the_lock(requirement: Requirement) -> None:
    name = name_of(requirement)
    assert read_environment()[name] == read_lock()[name]


def test_environment_names_nothing_else() -> None:
    extra = set(read_environment()) - {name_of(r) for r in RUNTIME}
    assert {name for name in extra if not name.startswith("python")} == {"pip"}


def test_the_library_alone_needs_few_packages() -> None:
    assert len(LIBRARY) <= 8
    extra = {"snakemake", "pandas", "matplotlib", "pot", "deeptime", "jinja2", "scipy", "xarray"}
    assert not extra & {name_of(requirement) for requirement in LIBRARY}


def test_python_versions_agree() -> None:
    (line,) = [e for e in ENVIRONMENT["dependencies"] if str(e).startswith("python>")]
    assert SpecifierSet(line.removeprefix("python")) == SpecifierSet(PROJECT["requires-python"])


def test_every_dependency_has_a_lower_bound() -> None:
    for requirement in RUNTIME + DEV:
        assert ">=" in {s.operator for s in requirement.specifier}, requirement


def test_lock_has_no_cuda_package() -> None:
    assert [name for name in read_lock() if CUDA.match(name)] == []


def test_lock_pins_a_public_torch_version() -> None:
    # A local label such as +cpu would not be found on PyPI.
    assert Version(read_lock()["torch"]).local is None
