"""The package alone, in an environment that has nothing but its requirements."""

import json
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_packaging import LIBRARY, ROOT
from uqsonet.models.weights import shipped

(WEIGHTS,) = ROOT.glob("published/train/diffusion1d/uqsonet-*/trial_0.safetensors")
ABSENT = ("snakemake", "pandas", "matplotlib", "scipy", "ot", "deeptime", "yaml", "xarray")
PROGRAM = """
import json, sys, time
from importlib.util import find_spec
from pathlib import Path
import torch

start = time.perf_counter()
import uqsonet
posterior = uqsonet.load(sys.argv[1]).condition([[-0.4], [0.1], [0.7]], [0.9, 1.3, 1.1])
queries = torch.linspace(-1, 1, 11, dtype=torch.float64)[:, None]
std = posterior.std(queries)
seconds = time.perf_counter() - start
modules = [m for name, m in sys.modules.items() if name.split(".")[0].startswith("uqsonet")]
lines = sum(len(Path(m.__file__).read_text().splitlines()) for m in modules)
names = [m.__name__ for m in modules]

samples = posterior.sample(7, queries, torch.Generator().manual_seed(0))
from uqsonet.models.weights import shipped
spreads = {}
for name, path in shipped().items():
    centre = torch.full((1, uqsonet.load(name).fields.input.grid.dim), 0.25)
    spreads[name] = float(uqsonet.load(name).condition(centre, [1.0]).std(centre))
from uqsonet.problems import get_problem
problem = get_problem("diffusion1d")
u = problem.solve(torch.full((1, problem.grid.size), 2.0, dtype=torch.float64))[0]
print(json.dumps({
    "file": uqsonet.__file__,
    "found": [name for name in sys.argv[2:] if find_spec(name)],
    "std": std.tolist(), "samples": list(samples.shape), "finite": bool(samples.isfinite().all()),
    "weights": str(path), "spreads": spreads,
    "u": u.tolist(), "names": names, "lines": lines, "seconds": seconds,
}))
"""


def needed(requirements: list[Requirement]) -> set[str]:
    """Return the names of all distributions that requirements bring along."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and name not in found:
            found.add(name)
            waiting += map(Requirement, distribution(name).requires or [])
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with `pip install .`, its requirements linked instead of fetched."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in sorted(needed(LIBRARY)):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution(name).locate_file(top))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    done = subprocess.run([*install, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.long
def test_the_package_alone_loads_conditions_samples_and_solves(python: Path) -> None:
    command = [str(python), "-I", "-c", PROGRAM, str(WEIGHTS), *ABSENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["file"]).is_relative_to(python.parents[1]) and found["found"] == []
    assert Path(found["weights"]).is_relative_to(python.parents[1])
    assert list(found["spreads"]) == list(shipped()) and len(found["spreads"]) == 5
    assert all(0 < spread < 1 for spread in found["spreads"].values())
    assert found["samples"] == [7, 11] and found["finite"]
    # u vanishes at both ends, and is known best there.
    assert found["std"][0] == found["std"][-1] == 0 and min(found["std"][1:-1]) > 0
    # -0.1 (2 u')' = 2 sin(2 pi x)
    exact = np.sin(2 * np.pi * np.linspace(-1, 1, len(found["u"]))) / (0.1 * (2 * np.pi) ** 2)
    np.testing.assert_allclose(found["u"], exact, atol=1e-4)
    # What a user waits for: 24 modules and 4,300 lines when this was written.
    assert len(found["names"]) <= 30 and found["lines"] <= 5000, found["names"]
    assert not [name for name in found["names"] if name.startswith("uqsonet_study")]


@pytest.mark.long
def test_commands_of_the_study_are_missing_and_said_to_be(python: Path) -> None:
    command = [str(python), "-m", "uqsonet"]
    known, usage = (
        subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout
        for words in (["info", str(WEIGHTS)], ["--help"])
    )
    assert "architecture karhunen_loeve" in known
    assert "uqsonet[study]" in usage and "estimate" not in usage


@pytest.mark.long
def test_answers_are_printed_and_pictures_name_their_extra(python: Path, tmp_path: Path) -> None:
    (tmp_path / "sensors.csv").write_text("x,value\n-0.4,0.9\n0.1,1.3\n")
    command = [str(python), "-m", "uqsonet", "predict", str(WEIGHTS), str(tmp_path / "sensors.csv")]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table.startswith("x,mean,std,lower,upper\n-1,")
    for option in (["-o", str(tmp_path / "u.nc")], ["--plot", str(tmp_path / "u.png")]):
        done = subprocess.run([*command, *option], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert "pip install 'uqsonet[runs]'" in " ".join(done.stderr.split())
