"""The library alone: what it needs, loads and can do without the packages of the study."""

import json
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_packaging import LIBRARY, ROOT
from uqsonet.operator.weight_files import shipped

ABSENT = ("snakemake", "matplotlib", "ot", "deeptime", "yaml")
WITHOUT = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
sys.modules.update(dict.fromkeys({ABSENT!r}))
"""
"""What makes an environment as bare as that of the library, for one process."""
PROGRAM = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
import torch
import uqsonet

posterior = uqsonet.load("diffusion1d").condition([[-0.4], [0.1], [0.7]], [0.9, 1.3, 1.1])
std = posterior.std(torch.linspace(-1, 1, 11, dtype=torch.float64)[:, None])
modules = [m for name, m in sys.modules.items() if name.split(".")[0].startswith("uqsonet")]
lines = sum(len(Path(m.__file__).read_text().splitlines()) for m in modules)
names = [m.__name__ for m in modules]

import numpy as np
from typer.testing import CliRunner
from uqsonet.cli import app

x = np.linspace(0, 1, 11)
k = np.random.default_rng(3).normal(size=(60, 3)) @ np.cos(np.outer(range(3), 3 * x))
for name, runs in (("runs.npz", k), ("more.npz", k[:10])):
    np.savez(name, k=runs, u=np.cumsum(runs, 1) / 11, x=x)
Path("sensors.csv").write_text("x,value\\n0.2,0.9\\n0.7,1.3\\n")
fit = "fit runs.npz --input k --output u -o model.safetensors --sensors 3".split()
predict = "predict model.safetensors sensors.csv".split()
commands = [fit, ["info", "model.safetensors"], predict]
commands += ["validate model.safetensors more.npz --sensors 3".split()]
commands += [[*predict, "--plot", "u.png"]]
done = [CliRunner().invoke(app, command) for command in commands]
answers = [(one.exit_code, " ".join(one.output.split())) for one in done]
print(json.dumps({
    "file": uqsonet.__file__,
    "found": [name for name in sys.argv[1:] if find_spec(name)],
    "std": std.tolist(), "names": names, "lines": lines, "answers": answers,
}))
"""


def ran(python: Path | str, program: str, folder: Path) -> dict[str, Any]:
    """Run the program in an environment, and check what it says of itself."""
    command = [str(python), "-I", "-c", program, *ABSENT]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["found"] == []
    # u vanishes at both ends, and is known best there.
    assert found["std"][0] == found["std"][-1] == 0 and min(found["std"][1:-1]) > 0
    assert not [name for name in found["names"] if name.startswith("uqsonet_study")]
    *worked, picture = found["answers"]
    assert [code for code, _ in worked] == [0] * 4, worked
    fit, info, predict, validate = (text for _, text in worked)
    assert "chosen: linear" in fit and "input k: 11 points" in info and "err_mean" in validate
    assert predict.startswith("x,mean,std,lower,upper 0,")
    assert picture[0] == 1 and "pip install 'uqsonet[runs]'" in picture[1]
    return found


def test_the_library_answers_and_its_commands_work_without_the_study(tmp_path: Path) -> None:
    found = ran(sys.executable, WITHOUT + PROGRAM, tmp_path)
    assert Path(found["file"]).is_relative_to(ROOT)


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


@pytest.mark.long
def test_the_package_brings_all_that_it_needs_and_says_what_is_missing(tmp_path: Path) -> None:
    """In an environment with `pip install .`, its requirements linked instead of fetched."""
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin/python"
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    for name in sorted(needed(LIBRARY)):
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution(name).locate_file(top))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    done = subprocess.run([*install, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    home = Path(ran(python, PROGRAM, tmp_path)["file"]).parent
    assert home.is_relative_to(tmp_path)
    assert sorted(path.stem for path in home.glob("emulator/weights/*.safetensors")) == sorted(
        shipped()
    )
    command = [str(python), "-m", "uqsonet", "--help"]
    usage = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "uqsonet" in usage and "estimate" not in usage
