"""A step of training on a GPU, as far as a CPU can show it, and on a GPU where there is one.

A CUDA graph freezes what Python decided while it was recorded, and a stream that is recorded
refuses to wait for the host or to copy from it. `Recording` and `Graph` do so with kernels of the
CPU. Tensors without numbers, on the device ``meta``, show what was left behind on the host.
"""

import copy
from contextlib import contextmanager, nullcontext
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.models.test_attention import NETWORK
from uqsonet.errors import ConfigError
from uqsonet.networks import set_embedding
from uqsonet.networks.devices import require_device
from uqsonet.networks.set_embedding import HeadsMLP
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Trial
from uqsonet.operator import perceptrons
from uqsonet.operator.base import REGISTRY, model_type
from uqsonet.runs.functions import Functions
from uqsonet_study import gradients, trainer
from uqsonet_study.gradients import ChunkOptimiser
from uqsonet_study.layouts import uniform_layouts
from uqsonet_study.problems import get_problem
from uqsonet_study.settings import Method
from uqsonet_study.trainer import BatchSampler, SensorTrainer

ATTENTION = NETWORK.model_dump()
SMALL = {"input_modes": 8, "output_modes": 6, "branch": [16]}
FIELD = {"input_modes": 4, "output_modes": 4, "branch": [4, 4], "frequencies": 3, "patch": 3}
PRIOR = {**SMALL, "width": 8, "heads": 2, "correction": [8], "group": 4}
CASES = {
    "attention": ("uqsonet", ATTENTION, {"protocol": "batch_shared"}),
    "attention_vidon": ("vidon", ATTENTION, {"protocol": "fixed_batches"}),
    "attention_standardised": (
        "uqsonet",
        {**ATTENTION, "standardise_inputs": True, "count_feature": True, "activation": "silu"},
        {"gradient_clip": 1.0, "average_decay": 0.9},
    ),
    "attention_prior": ("uqsonet", {"architecture": "attention_prior", **PRIOR}, {}),
    "karhunen_loeve": ("uqsonet", {"architecture": "karhunen_loeve", **SMALL}, {}),
    "karhunen_loeve_set": ("vidon", {"architecture": "karhunen_loeve_set", **SMALL}, {}),
    "karhunen_loeve_field": (
        "uqsonet",
        {"architecture": "karhunen_loeve_field", "symmetries": "square", **FIELD},
        {},
    ),
}
BATCH, STEPS = 64, 6
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
WAITS = (
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "lift_fresh"),
    *("_unique2", "bincount", "_linalg_svd", "_linalg_eigh", "_linalg_check_errors"),
)
"""Kernels of PyTorch that wait for a GPU, or bring numbers of Python to it."""


CURRENT: list[torch.device] = []
"""The device that is chosen, as `torch.cuda.device` chooses it."""


class Recording(TorchDispatchMode):
    """Keeps kernels, and refuses what a stream that is recorded refuses."""

    def __init__(self, calls: list) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        index = args[1] if name.startswith("index") and isinstance(args[1], list | tuple) else ()
        masks = any(one is not None and one.dtype == torch.bool for one in index)
        assert name not in WAITS and not masks, f"{func} waits for the host or copies from it"
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out


class Graph:
    """Runs the kernels again, on the same memory."""

    def __init__(self) -> None:
        self.calls: list = []

    def pool(self) -> None:
        """Return no pool of memory."""

    @torch.no_grad()
    def replay(self) -> None:
        """Do what was recorded; what stands elsewhere than before is put there."""
        assert CURRENT
        for func, args, kwargs, out in self.calls:
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def stand_ins(monkeypatch):
    """What of torch.cuda makes graphs, which are made and started on the device of the batch."""

    @contextmanager
    def device(one):
        CURRENT.append(one)
        yield
        CURRENT.pop()

    @contextmanager
    def graph(found, pool=None):
        assert CURRENT
        with Recording(found.calls):
            yield

    stands = {"device": device, "graph": graph, "CUDAGraph": Graph, "stream": nullcontext}
    for name, one in (stands | dict.fromkeys(("Stream", "current_stream"), MagicMock())).items():
        monkeypatch.setattr(torch.cuda, name, lambda *a, _=one, **k: _(*a, **k))


def trained_on(case: str, device: str = "cpu") -> SensorTrainer:
    method, network, training = CASES[case]
    generator = np.random.default_rng(0)
    if network["architecture"] == "karhunen_loeve_field":
        fields = get_problem("toy_plane").fields
        kappa = torch.from_numpy(generator.standard_normal((300, 21 * 21))).float().cumsum(1)
        data = Functions(fields, "training", kappa, kappa.square())
    else:
        problem = get_problem("diffusion1d")
        kappa, u = problem.sample(generator, 300)
        u = u[:, problem.training_grid()[1]]
        data = Functions(problem.fields, "training", kappa.float(), u.float())
    points = data.fields.input.grid.size
    drawn = {m: uniform_layouts(generator, points, m, 50) for m in (1, 2, 5)}
    layouts = {m: torch.from_numpy(one).long() for m, one in drawn.items()}
    settings = {
        "iterations": STEPS,
        "batch_size": BATCH,
        "learning_rate": 1e-3,
        "epsilon": 1e-3,
        **training,
    }
    config = Method.model_validate({"network": network, "training": settings})
    return SensorTrainer(Trial(method, config, 0.1, 0, 3), data, layouts, device)


def on_a_card(monkeypatch) -> None:
    """Let tensors of the CPU take the way of a GPU's, many rows cut into parts."""
    for module in (gradients, perceptrons, set_embedding, trainer):
        monkeypatch.setattr(module, "on_cpu", lambda _: False)
    monkeypatch.setattr(set_embedding, "MANY_ROWS", 2 * BATCH)


def require_same_steps(host, other, drawn, expected, tolerance: float) -> None:
    """Take steps on the same batches, and compare with what the host found."""
    for k, (batch, normals) in enumerate(drawn):
        batch = {name: value.to(other.device) for name, value in batch.items()}
        found = other.optimiser.step(k, batch, normals.to(other.device))
        for name, value in expected[k].items():
            torch.testing.assert_close(found[name].cpu(), value, rtol=100 * tolerance, atol=1e-6)
    assert other.optimiser._recorded
    weights = other.optimiser.weights()
    for name, value in host.optimiser.weights().items():
        torch.testing.assert_close(weights[name].cpu(), value, rtol=0, atol=tolerance)


def test_every_architecture_is_tried() -> None:
    for method, network, _ in CASES.values():
        model_type(method, network["architecture"])
    assert set(REGISTRY) <= {
        (method, network["architecture"]) for method, network, _ in CASES.values()
    }


@pytest.mark.parametrize("case", CASES)
def test_recorded_graphs_take_the_steps_of_a_cpu(case, stand_ins, monkeypatch) -> None:
    host = trained_on(case)
    drawn = [host.draw() for _ in range(STEPS)]
    expected = [host.optimiser.step(k, *one) for k, one in enumerate(drawn)]
    on_a_card(monkeypatch)
    require_same_steps(host, trained_on(case), drawn, expected, 1e-6)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_takes_the_steps_of_a_cpu(case) -> None:
    host = trained_on(case)
    drawn = [host.draw() for _ in range(STEPS)]
    expected = [host.optimiser.step(k, *one) for k, one in enumerate(drawn)]
    require_same_steps(host, trained_on(case, "cuda"), drawn, expected, 1e-4)


@pytest.mark.parametrize("case", CASES)
def test_nothing_that_a_step_needs_is_left_on_the_host(case, stand_ins) -> None:
    host = trained_on(case)
    batch, normals = host.draw()
    optimiser = ChunkOptimiser(copy.deepcopy(host.model).to("meta"), host.trial.config.training)
    batch = {name: value.to("meta") for name, value in batch.items()}
    loss, _ = optimiser.gradients(batch, normals.to("meta"))
    assert loss.is_meta and loss.shape == ()


@pytest.mark.parametrize("protocol", ["fixed_batches", "batch_shared", "redraw"])
def test_drawing_a_batch_waits_for_nothing(protocol, monkeypatch) -> None:
    """Numbers on the device ``meta`` cannot be waited for."""
    fields = get_problem("diffusion1d").fields
    monkeypatch.setattr(trainer, "torch_generator", lambda *_, **__: torch.Generator())
    config = TrainingConfig(iterations=1, batch_size=20, protocol=protocol)
    kappa = torch.empty(60, fields.input.grid.size, device="meta")
    layouts = {m: torch.zeros(9, m, dtype=torch.long) for m in (1, 3)}
    sampler = BatchSampler(
        fields, config, kappa, {"u": kappa}, layouts, 0.1, 2, 0, torch.Generator().manual_seed(0)
    )
    shapes = {sampler.draw()[0]["values"].shape[1] for _ in range(20)}
    assert shapes == ({3} if protocol == "redraw" else {1, 3})


@pytest.mark.parametrize(
    "waiting",
    [
        lambda x: bool(x.any()),
        lambda x: x[x > 0],
        lambda x: x.new_tensor([1.0]),
        lambda x: torch.tensor(1.0),
        lambda x: torch.linalg.svd(x),
        lambda x: torch.linalg.cholesky(x @ x.T),
    ],
)
def test_what_waits_is_refused_in_a_graph(waiting) -> None:
    with Recording([]), pytest.raises(AssertionError, match="waits for the host or copies from it"):
        waiting(torch.eye(3))


def test_heads_and_tanh_have_the_same_gradients_on_a_gpu(monkeypatch) -> None:
    """In double precision: rows cut into 64 parts, and tanh itself."""
    torch.manual_seed(0)
    heads, x = HeadsMLP(3, 2, [8, 8], 4).double(), torch.randn(640, 2).double()
    found = []
    for _ in range(2):
        x.requires_grad_().grad = None
        heads.zero_grad()
        value = heads(x)
        value.square().sum().backward()
        found.append([value.detach(), x.grad, *(p.grad for p in heads.parameters())])
        on_a_card(monkeypatch)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_a_torch_without_cuda_is_named(cuda, monkeypatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError) as refused:
        require_device("cuda")
    assert ("is a build without CUDA" in str(refused.value)) == (cuda is None)
