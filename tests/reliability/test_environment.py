"""What the machine can refuse: room, writing, memory, a device. One clear message, work intact."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.errors import ConfigError, DataError
from uqsonet.files import file_digest
from uqsonet.networks.devices import require_device
from uqsonet_study.settings import Sizes
from uqsonet_study.simulation import simulate

HERE = Path(__file__).resolve().parent
TARGET = "results/tiny/data/diffusion1d.h5"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory for a while, or skip the test."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def lines_of(code: str, folder: Path, *arguments: object) -> list[str]:
    """Run a program that must end well, without a crash at exit or anything "ignored"."""
    imports = "import sys\nfrom pathlib import Path\nimport h5py, numpy, torch\n"
    imports += "from uqsonet.errors import DataError\nfolder = Path(sys.argv[1])\n"
    command = [sys.executable, "-c", imports + code, str(folder), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return [line for line in result.stdout.splitlines() if line]


WRITERS = """
from uqsonet_study.storage import write_arrays
from uqsonet.files import write_text
from uqsonet.operator.weight_files import write_weights
for size in map(int, sys.argv[2:]):
    numbers = torch.rand(size // 8).double()
    for write, *content in (
        (write_arrays, "part", {}, {"x": [numbers.numpy()]}),
        (write_weights, {"x": numbers}, {}),
        (write_text, "x" * size),
    ):
        try:
            write(folder / "a", *content)
        except DataError as error:
            print(error)
        assert not list(folder.glob("*")), "something is left"
"""


def test_a_full_disk_is_one_message_from_every_writer(tmp_path: Path) -> None:
    """HDF5 keeps blocks back and reports nothing when it is closed: 0.3 to 3 MB on 0.3 MB."""
    sizes = 308_000, 320_000, 800_000, 3_000_000
    with mounted(tmp_path / "disk", "size=300k") as disk:
        found = lines_of(WRITERS, disk, *sizes)
    assert found == [f"{disk / 'a'}: cannot be written: No space left on device"] * 3 * len(sizes)


def test_a_generation_continues_when_there_is_room_again(tmp_path: Path) -> None:
    config = Sizes(training=600, validation=10, test=10, shard=100)
    simulate("diffusion1d", config, 3, tmp_path / "whole.h5")
    with mounted(tmp_path / "disk", "size=1m") as disk:
        with pytest.raises(DataError, match=r"training_00000\d\.h5: cannot be written: No space"):
            simulate("diffusion1d", config, 3, disk / "parts.h5")
        assert list(disk.rglob("training_*.h5")) and not (disk / "parts.h5").exists()
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        simulate("diffusion1d", config, 3, disk / "parts.h5")
        assert file_digest(disk / "parts.h5") == file_digest(tmp_path / "whole.h5")


AS_NOBODY = """
import os
from uqsonet import files
from uqsonet.operator.weight_files import read_weights
from uqsonet_study.storage import ArrayFile
os.setgid(65534); os.setuid(65534)
try:
    files.write_text(folder / "closed/t.csv", "x")
except DataError as error:
    print(error)
for name, read in (("a.h5", lambda path: ArrayFile(path, "part")), ("a.safetensors", read_weights)):
    try:
        read(folder / name)
    except DataError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up root's rights needs them")
def test_missing_permission_names_the_file() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # others than root may enter it
        for closed in ("a.h5", "a.safetensors"):
            (folder / closed).touch(0o600)
        (folder / "closed").mkdir(0o700)
        first, *others = lines_of(AS_NOBODY, folder)
    assert first == f"{folder / 'closed/t.csv'}: cannot be written: Permission denied"
    assert len(others) == 2 and all("ermission denied" in line for line in others), others


LITTLE_MEMORY = """
import resource, types
from uqsonet_study import jobs
sys.stderr = sys.stdout
class Files(list):
    items = dict().items
    keys = dict().keys
told = {"threads": 1, "log": [folder / "job.log"], "output": Files(["a"]), "input": Files()}
job = types.SimpleNamespace(**told, params=Files(), rule="train")
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for library in (torch, numpy):
    try:
        with jobs.job(job):
            library.ones(1 << 28)
    except SystemExit as end:
        assert end.code == 1
"""


def test_too_little_memory_is_one_message(tmp_path: Path) -> None:
    messages = lines_of(LITTLE_MEMORY, tmp_path)
    assert len(messages) == 2, messages
    assert all(m.startswith("train: not enough memory (this job had ") for m in messages)
    assert (tmp_path / "job.log").read_text().count("lower batch_size") == 2


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "cpu:0", "cuda:99999999999999999"])
def test_a_wrong_device_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.device = "):
        require_device(name)


def refused(project: Project, *arguments: str) -> str:
    """Run a stage that must fail; return what it says."""
    configs = ("--configfile", "config/smoke.yaml", "config/tiny.yaml")
    result = project.snakemake(*configs, *arguments, "--", TARGET, cores=1)
    output = result.stdout + result.stderr
    assert result.returncode != 0 and "Traceback" not in output, output
    assert not (project.path / TARGET).exists()
    return output


@pytest.mark.dag
def test_the_workflow_says_what_is_refused(tmp_path: Path) -> None:
    project = fresh_copy(tmp_path / "project")
    (project.path / "config/tiny.yaml").write_text((HERE / "tiny.yaml").read_text())
    for options, message in (
        ("size=1m", "h5: cannot be written: No space left on device"),
        ("size=1m,ro", "Read-only file system: 'results/tiny/"),
    ):
        with mounted(project.path / "results/tiny", options):
            assert message in refused(project)
    with mounted(project.path / ".snakemake", "size=1m,ro"):
        assert "cannot be written, and Snakemake keeps its notes there" in refused(project)
    if not torch.cuda.is_available():
        message = "simulate: jobs.device = 'cuda', but torch sees 0 CUDA devices; use 'cpu'"
        assert message in refused(project, "--config", 'jobs={"device": "cuda"}')
    message = "jobs.device: String should match pattern"
    assert message in refused(project, "--config", 'jobs={"device": "tpu"}')
