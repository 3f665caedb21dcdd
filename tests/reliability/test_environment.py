"""What the machine can refuse: room, writing, memory, a device. One clear message, work intact."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.workflow.conftest import Project, fresh_copy
from uqsonet.devices import require_device
from uqsonet.errors import ConfigError, DataError
from uqsonet.storage.files import file_digest
from uqsonet_study.config import ProblemConfig
from uqsonet_study.simulation import simulate

HERE = Path(__file__).resolve().parent
TARGET = "results/tiny/simulate/diffusion1d.h5"


def mount(folder: Path, options: str) -> None:
    """Mount a small file system in memory, or skip the test."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Path]:
    """A place to mount at."""
    place = tmp_path / "disk"
    yield place
    subprocess.run(["umount", str(place)], capture_output=True, check=False)


WRITERS = {
    "arrays": "write_arrays(folder / 'a', 'part', {}, {'x': [np.random.rand(size // 8)]})",
    "weights": "write_weights(folder / 'a', {'x': torch.randn(size // 4)}, {})",
    "text": "write_text(folder / 'a', 'x' * size)",
}
PROGRAM = """
import sys, numpy as np, torch
from pathlib import Path
from uqsonet.errors import DataError
from uqsonet.storage.arrays import write_arrays
from uqsonet.storage.files import write_text
from uqsonet.storage.weights import write_weights
folder, sizes = Path(sys.argv[1]), map(int, sys.argv[2:])
for size in sizes:
    try:
        %s
    except DataError as error:
        print(error)
    else:
        sys.exit(f"{size} bytes fitted on the disk")
    assert not list(folder.glob(".*")), "temporary files are left"
"""


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_one_message_from_every_writer(kind: str, mounts: Path) -> None:
    """HDF5 keeps blocks back and reports nothing when it is closed: 0.3 to 3 MB on 0.3 MB."""
    mount(mounts, "size=300k")
    sizes = ("308000", "320000", "800000", "3000000")
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM % WRITERS[kind], str(mounts), *sizes],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")  # no crash at exit, nothing "ignored"
    expected = f"{mounts / 'a'}: cannot be written: No space left on device"
    assert result.stdout.splitlines() == [expected] * len(sizes)


def test_a_generation_continues_when_there_is_room_again(mounts: Path, tmp_path: Path) -> None:
    config = ProblemConfig(training=600, validation=10, test=10, shard=100)
    simulate("diffusion1d", config, 3, tmp_path / "whole.h5")
    mount(mounts, "size=1m")
    target = mounts / "parts.h5"
    with pytest.raises(DataError, match=r"training_00000\d\.h5: cannot be written: No space left"):
        simulate("diffusion1d", config, 3, target)
    kept = len(list(mounts.rglob("training_*.h5")))
    assert kept > 0 and not target.exists()
    subprocess.run(["mount", "-o", "remount,size=16m", str(mounts)], check=True)
    simulate("diffusion1d", config, 3, target)
    assert file_digest(target) == file_digest(tmp_path / "whole.h5")


def as_nobody(code: str, *arguments: str) -> list[str]:
    """Run code without root's rights; return its lines."""
    if os.geteuid() != 0:
        pytest.skip("giving up root's rights needs them")
    imports = "import os, sys\nfrom pathlib import Path\nimport h5py, torch, uqsonet_study.check\n"
    imports += "from uqsonet.storage import files\nfrom uqsonet.errors import DataError\n"
    source = imports + "os.setgid(65534); os.setuid(65534)\n" + code
    result = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that others than root may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_missing_permission_names_the_file(public: Path) -> None:
    (public / "results").mkdir(mode=0o755)
    for name in ("a.h5", "a.safetensors", "a.csv", "a.json"):
        (public / name).write_bytes(b"secret")
        (public / name).chmod(0o600)
    (public / "closed").mkdir(mode=0o700)
    code = """
folder = Path(sys.argv[1])
try:
    files.write_text(folder / "results" / "t.csv", "x")
except DataError as error:
    print(error)
for name in ("a.h5", "a.safetensors", "a.csv", "a.json", "closed"):
    print(*[why for _, why in uqsonet_study.check.check_path(folder / name)])
"""
    first, *others = as_nobody(code, str(public))
    assert first == f"{public / 'results' / 't.csv'}: cannot be written: Permission denied"
    assert len(others) == 5 and all("ermission denied" in line for line in others), others


def test_too_little_memory_is_one_message(tmp_path: Path) -> None:
    code = """
import resource, sys, types
from pathlib import Path
import torch, numpy as np
from uqsonet_study.jobs import frame
out = [Path(sys.argv[1]) / "out.h5"]
job = types.SimpleNamespace(threads=1, log=[sys.argv[1] + "/job.log"], output=out, rule="train")
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with frame(job):
    {"torch": torch.ones, "numpy": np.ones}[sys.argv[2]](1 << 28)
"""
    for library in ("torch", "numpy"):
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), library],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 1
        assert result.stderr.startswith("\ntrain: not enough memory (this job had ")
        assert "Traceback" not in result.stderr
        assert "lower batch_size" in (tmp_path / "job.log").read_text()


def test_small_results_do_not_make_a_process_grow_by_large_ones() -> None:
    """A reference once took 22 GiB: each result lay at the start of a large block that was free."""
    code = """
import resource
import torch
from uqsonet.devices import keep_freed_memory
keep_freed_memory()
before, kept = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
for _ in range(30):
    large = torch.ones(36 << 18)
    del large
    kept.append(torch.ones(20_000))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(result.stdout) < 150


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:", "", "cpu:0", "cuda:99999999999999999"])
def test_a_wrong_device_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.device = "):
        require_device(name)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the workflow in which nothing has run."""
    copy = fresh_copy(tmp_path_factory.mktemp("refused") / "project")
    (copy.path / "config/tiny.yaml").write_text((HERE / "tiny.yaml").read_text())
    return copy


def refused(project: Project, *arguments: str) -> str:
    """Run a stage that must fail; return what it says."""
    configs = ("--configfile", "config/smoke.yaml", "config/tiny.yaml")
    result = project.snakemake(*configs, *arguments, "--", TARGET, cores=1)
    output = result.stdout + result.stderr
    assert result.returncode != 0 and "Traceback" not in output, output
    assert not (project.path / TARGET).exists()
    return output


@pytest.mark.long
def test_the_workflow_says_what_is_refused(project: Project) -> None:
    place = project.path / "results/tiny"
    for options, message in (
        ("size=1m", "h5: cannot be written: No space left on device"),
        ("size=1m,ro", "Read-only file system: 'results/tiny/"),
    ):
        mount(place, options)
        try:
            assert message in refused(project)
        finally:
            subprocess.run(["umount", str(place)], check=True)
    (project.path / ".snakemake").rename(project.path / "kept")
    mount(project.path / ".snakemake", "size=1m,ro")
    try:
        assert "cannot be written, and Snakemake keeps its notes there" in refused(project)
    finally:
        subprocess.run(["umount", str(project.path / ".snakemake")], check=True)
    if not torch.cuda.is_available():
        message = "simulate: jobs.device = 'cuda', but torch sees 0 CUDA devices; use 'cpu'"
        assert message in refused(project, "--config", 'jobs={"device": "cuda"}')
    message = "jobs.device: String should match pattern"
    assert message in refused(project, "--config", 'jobs={"device": "tpu"}')
