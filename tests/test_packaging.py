"""pyproject.toml, requirements.lock and environment.yml name the same packages and versions."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from uqsonet import __version__

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
CUDA = re.compile(r"^(nvidia|cuda|cupy|triton|pytorch-triton)\b")

STATED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = STATED["project"], STATED["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]
LIBRARY = [Requirement(line) for line in PROJECT["dependencies"]]
RUNTIME = LIBRARY + [Requirement(line) for line in {*EXTRAS["runs"], *EXTRAS["study"]}]
DEV = [
    Requirement(line)
    for lines in (EXTRAS["handover"], EXTRAS["meshes"], *GROUPS.values())
    for line in lines
    if isinstance(line, str)  # not a group of a group
]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())


def name_of(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def read_lock() -> dict[str, str]:
    """Map each package to its version; a line that is no exact pin with digests fails."""
    pins: dict[str, str] = {}
    lines = (ROOT / "requirements.lock").read_text().replace("\\\n", "").splitlines()
    for line in lines:
        text, *digests = line.partition("#")[0].split("--hash=sha256:")
        if not text:
            continue
        assert digests, f"no digest: {line}"
        requirement = Requirement(text.strip())
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


def test_lock_satisfies_pyproject_without_what_only_some_machines_can_install():
    lock = read_lock()
    for requirement in RUNTIME + DEV:
        assert requirement.specifier.contains(lock[name_of(requirement)]), requirement
        assert ">=" in {one.operator for one in requirement.specifier}, requirement
    assert [name for name in lock if CUDA.match(name)] == []
    assert len(LIBRARY) <= 12  # whoever only loads and conditions needs little
    # A local label such as +cpu would not be found on PyPI.
    assert Version(lock["torch"]).local is None


def test_environment_has_the_versions_of_the_lock_and_nothing_else():
    lock, environment = read_lock(), read_environment()
    names = {name_of(requirement) for requirement in RUNTIME}
    assert {name: environment.get(name) for name in names} == {name: lock[name] for name in names}
    extra = set(environment) - names
    assert {name for name in extra if not name.startswith("python")} == {"pip"}
    (line,) = [e for e in ENVIRONMENT["dependencies"] if str(e).startswith("python>")]
    assert SpecifierSet(line.removeprefix("python")) == SpecifierSet(PROJECT["requires-python"])


def test_the_records_of_the_software_agree():
    """CITATION.cff states version and addresses; pyproject.toml and CHANGELOG.md repeat them."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    urls = PROJECT["urls"]
    assert urls["Repository"] == citation["repository-code"]
    assert urls["Documentation"] == citation["url"]
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_actions_are_pinned_by_digest():
    """A tag of somebody else's repository may move; what runs with our rights may not."""
    used = re.findall(
        r"uses: (\S+)", "".join(path.read_text() for path in (ROOT / ".github").rglob("*.yml"))
    )
    assert used and [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []
