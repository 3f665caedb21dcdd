"""Training jobs: resumed and repeated runs give the same numbers; failures are clear."""

import csv
import logging
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import uqsonet
from tests.models.test_attention import NETWORK as ATTENTION
from uqsonet.errors import ConfigError, DataError, TrainingError
from uqsonet.files import file_digest
from uqsonet.networks import train as loop
from uqsonet.networks.config import AttentionPriorNetwork, KarhunenLoeveSetNetwork
from uqsonet.networks.progress import termination_flag
from uqsonet.networks.settings import TrainingConfig
from uqsonet.networks.train import Optimiser, Trainer, Trial, learning_rate
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.weight_files import read_weights, write_weights
from uqsonet_study import trainer
from uqsonet_study.settings import Jobs, Method
from uqsonet_study.storage import load_functions
from uqsonet_study.trainer import SensorTrainer
from uqsonet_study.training import TrainingJob, train

SMALL = {"input_modes": 2, "output_modes": 2, "branch": [8]}
KRIGING = KarhunenLoeveNetwork(**SMALL)
NETWORKS = {
    "attention": ATTENTION,
    "attention_prior": AttentionPriorNetwork(**SMALL, width=8, heads=2, correction=[8], group=4),
    "karhunen_loeve": KRIGING,
    "karhunen_loeve_set": KarhunenLoeveSetNetwork(**SMALL),
}
JOBS = Jobs()
METHODS = dict.fromkeys(NETWORKS, "uqsonet") | {"karhunen_loeve_set": "vidon"}


@pytest.fixture
def make_job(toy_files):
    def make(architecture="attention", trial=0, method=None, seed=4, **changes):
        options = {"iterations": 12, "batch_size": 20, "learning_rate": 1e-3, "validate_every": 4}
        training = TrainingConfig(**(options | changes))
        return TrainingJob(
            method or METHODS[architecture],
            toy_files.problem,
            Method(network=NETWORKS[architecture], training=training),
            toy_files.noise_std,
            trial,
            400,
            seed,
            toy_files.functions,
            toy_files.sensors,
            toy_files.validation,
            "code-1",
        )

    return make


def run(job, folder: Path, name: str = "run", jobs: Jobs = JOBS) -> Path:
    folder.mkdir(exist_ok=True)
    weights = folder / f"{name}.safetensors"
    train(job, jobs, weights, folder / f"{name}.csv", folder / f"{name}.state")
    return weights


def rows(weights: Path) -> list[dict[str, str]]:
    with weights.with_suffix(".csv").open() as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def interrupt_at(monkeypatch, iteration: int) -> None:
    """Deliver SIGTERM's flag when this iteration has been taken."""
    received: list[int] = []

    @contextmanager
    def flag():
        yield received

    step = Optimiser.step

    def counted(self, index, batch, normals):
        found = step(self, index, batch, normals)
        if index + 1 == iteration:
            received.append(15)
        return found

    monkeypatch.setattr(loop, "termination_flag", flag)
    monkeypatch.setattr(Optimiser, "step", counted)


ALL = {"average_decay": 0.9, "schedule": "cosine", "weight_decay": 0.1, "gradient_clip": 0.5}
RESUMED = {
    "attention": ("attention", {}),
    "attention_with_all": ("attention", ALL),
    "attention_prior": ("attention_prior", ALL),
    "karhunen_loeve": ("karhunen_loeve", ALL),
    "karhunen_loeve_set": ("karhunen_loeve_set", ALL),
    "fixed_batches": ("attention", {"protocol": "fixed_batches"}),
    "batch_shared": ("attention", {"protocol": "batch_shared"}),
    "batch_shared_on_a_gpu": ("attention", {"protocol": "batch_shared"}),
    "double": ("attention", {"precision": "float64"}),
    "adam": ("attention", {"beta2": 0.9, "epsilon": 1e-3}),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    make_job, tmp_path, monkeypatch, name
):
    architecture, options = RESUMED[name]
    if name.endswith("gpu"):  # two generators: that of the device, and that of the host
        monkeypatch.setattr(trainer, "on_cpu", lambda _: False)
    job = make_job(architecture, 1, **options)
    whole = run(job, tmp_path, "whole")
    torch.manual_seed(999)  # the global generator has no influence
    for stop in (1, 5, 8):  # once, again before the first resumption is done, on a validation
        with monkeypatch.context() as patch:
            interrupt_at(patch, stop)
            with pytest.raises(TrainingError, match=f"stopped by signal 15 at iteration {stop}"):
                run(job, tmp_path, "parts")
        assert not (tmp_path / "parts.safetensors").exists()
    parts = run(job, tmp_path, "parts")
    assert file_digest(parts) == file_digest(whole)
    assert rows(parts) == rows(whole) and len(rows(whole)) == 3
    assert not (tmp_path / "parts.state").exists()
    tensors, _ = read_weights(whole)
    assert {v.dtype for k, v in tensors.items() if k.startswith("parameter/")} == {torch.float32}


def test_another_seed_and_other_settings_of_adam_give_other_weights(make_job, tmp_path):
    jobs = make_job(), make_job(seed=5), *(make_job(**RESUMED[k][1]) for k in ("double", "adam"))
    found = [read_weights(run(job, tmp_path, str(i)))[0] for i, job in enumerate(jobs)]
    for other in found[1:]:
        assert not all(torch.equal(other[key], value) for key, value in found[0].items())


def test_a_signal_sets_the_flag_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with termination_flag() as received:
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("architecture", METHODS)
def test_each_trial_has_numbers_of_its_own(make_job, tmp_path, architecture):
    second, fifth = (
        run(make_job(architecture, trial), tmp_path, f"trial{trial}") for trial in (2, 5)
    )
    (one, meta), (other, _) = read_weights(second), read_weights(fifth)
    assert meta["trials"] == [2] and {row["trial"] for row in rows(second)} == {"2"}
    assert all(v.shape[0] == 1 for k, v in one.items() if k.startswith("parameter/"))
    assert any(not torch.equal(one[k], v) for k, v in other.items() if k.startswith("parameter/"))
    assert all(torch.equal(one[k], v) for k, v in other.items() if k.startswith("buffer/"))
    assert rows(second)[0]["loss"] != rows(fifth)[0]["loss"]


def test_training_lowers_the_loss(make_job, tmp_path):
    job = make_job(iterations=120, validate_every=10, learning_rate=1e-2)
    losses = [float(row["loss"]) for row in rows(run(job, tmp_path))]
    assert losses[-1] < 0.5 * losses[0]
    job = make_job("karhunen_loeve", iterations=200, learning_rate=1e-2)
    found = rows(run(job, tmp_path, "near_exact"))[-1]
    assert all(float(v) > 0.8 for k, v in found.items() if k.startswith("skill_")), found


def stopped_state(job, folder, monkeypatch) -> Path:
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        with pytest.raises(TrainingError):
            run(job, folder)
    return folder / "run.state"


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused_with_the_reason(
    make_job, toy_files, tmp_path, monkeypatch, caplog
):
    plain = make_job()
    state = stopped_state(plain, tmp_path, monkeypatch)
    content, other = state.read_bytes(), "belongs to another run"
    for job, damaged, words in (
        (make_job(learning_rate=2e-3), 0, (other, "config changed")),
        (make_job(seed=5), 0, (other, "seed changed")),
        (make_job(trial=1), 0, (other, "trial changed")),
        (replace(plain, code="code-2"), 0, (other, "code changed")),
        (replace(plain, reference=toy_files.test), 0, (other, "inputs changed")),
        (plain, 100, ("unreadable checkpoint",)),
    ):
        state.write_bytes(content[: len(content) - damaged])
        caplog.clear()
        with caplog.at_level(logging.INFO, "uqsonet"):
            weights = run(job, tmp_path)
        assert all(word in caplog.text for word in words)
    fresh = run(plain, tmp_path, "fresh")
    assert file_digest(weights) == file_digest(fresh)


def test_a_checkpoint_of_the_other_device_is_refused_in_a_sentence(
    make_job, tmp_path, monkeypatch, caplog
):
    """A generator of a GPU has a state of sixteen bytes, which one of a CPU cannot take."""
    state = stopped_state(make_job(), tmp_path, monkeypatch)
    tensors, meta = read_weights(state)
    assert meta["identity"].pop("device") == "cpu"
    meta["identity"]["device"] = "cuda"
    write_weights(state, tensors | {"generator/0": torch.zeros(16, dtype=torch.uint8)}, meta)
    with caplog.at_level(logging.INFO, "uqsonet"):
        weights = run(make_job(), tmp_path)
    assert f"starting from the beginning: {state} belongs to another run: device changed" in (
        caplog.text
    )
    assert file_digest(weights) == file_digest(run(make_job(), tmp_path, "fresh"))


def poison(monkeypatch, first: int) -> None:
    """Make losses NaN from an iteration on."""
    step = Optimiser.step

    def poisoned(self, index, batch, normals):
        if index >= first:
            batch["u"] = batch["u"] * float("nan")
        return step(self, index, batch, normals)

    monkeypatch.setattr(Optimiser, "step", poisoned)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(make_job, tmp_path, monkeypatch):
    job = make_job()
    state = stopped_state(job, tmp_path, monkeypatch)
    before = state.read_bytes()
    poison(monkeypatch, 9)
    with pytest.raises(TrainingError, match="loss of trial 0 is not finite at iteration 12"):
        run(job, tmp_path)
    assert state.read_bytes() == before
    assert not (tmp_path / "run.safetensors").exists()


def test_a_loss_that_is_not_finite_is_never_checkpointed(make_job, tmp_path, monkeypatch):
    """Even when a checkpoint falls due between two checks."""
    poison(monkeypatch, 3)
    with pytest.raises(TrainingError, match="iteration 4"):
        run(make_job(iterations=30), tmp_path, jobs=Jobs(checkpoint_minutes=1e-9))
    tensors, meta = read_weights(tmp_path / "run.state")
    assert meta["iteration"] == 3
    assert all(t.isfinite().all() for t in tensors.values() if t.is_floating_point())


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
def test_a_missing_device_gives_one_clear_message(make_job, tmp_path):
    message = r"jobs.device = 'cuda:3', but torch sees 0 CUDA devices; use 'cpu'"
    with pytest.raises(ConfigError, match=message):
        run(make_job(), tmp_path, jobs=Jobs(device="cuda:3"))


def of_two_trials(single: Path, weights: Path) -> Path:
    """Write a file as earlier versions did: of several trials, the second of them changed."""
    tensors, meta = read_weights(single)
    parameters = {k: v for k, v in tensors.items() if k.startswith("parameter/")}
    tensors |= {k: torch.cat([v, 0.9 * v + 0.01]) for k, v in parameters.items()}
    write_weights(weights, tensors, meta | {"trials": [3, 7]})
    return weights


@pytest.mark.parametrize("architecture", METHODS)
def test_trained_weights_load_and_answer(make_job, tmp_path, toy_files, architecture):
    single = run(make_job(architecture, 3, iterations=1), tmp_path / "one")
    weights = of_two_trials(single, tmp_path / "two.safetensors")
    first, seventh = uqsonet.load(single), uqsonet.load(weights, trial=7)
    a, b = (model.condition([0.25, -0.5], [1.0, 2.0]) for model in (first, seventh))
    assert a.mean().shape == (33,)
    if first.operator.probabilistic:
        assert (a.std() >= 0).all()
    assert not np.array_equal(a.mean(), b.mean())
    for same in (uqsonet.load(tmp_path / "one"), uqsonet.load(weights), uqsonet.load(weights, 3)):
        assert np.array_equal(same.condition([0.25, -0.5], [1.0, 2.0]).mean(), a.mean())
    with pytest.raises(DataError, match=r"has trials \[3, 7\], asked for 0"):
        uqsonet.load(weights, trial=0)


def test_weights_that_do_not_fit_their_description_are_refused(make_job, tmp_path):
    tensors, meta = read_weights(run(make_job(iterations=1), tmp_path))
    changed = tmp_path / "changed.safetensors"
    write_weights(changed, {k: v for k, v in tensors.items() if "trunk" not in k}, meta)
    with pytest.raises(DataError, match="do not fit the networks"):
        uqsonet.load(changed)
    write_weights(changed, tensors, {k: v for k, v in meta.items() if k != "method"})
    with pytest.raises(DataError, match="header cannot be read"):
        uqsonet.load(changed)
    with pytest.raises(DataError, match="holds 2 weight files"):
        uqsonet.load(tmp_path)


def test_missing_skill_and_a_collapsed_latent_space_are_said_aloud(make_job, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "uqsonet"):
        weights = run(make_job(method="vidon", iterations=1, learning_rate=1e-9), tmp_path)
    assert "training 0 is no better than no sensors" in caplog.text
    skills = {key for key in rows(weights)[0] if key.startswith("skill")}
    assert skills == {"skill_mean_1", "skill_mean_2", "skill_mean_4"}  # VIDON has no spread
    caplog.clear()
    loop.warn({"trial": 0, "iteration": 1, "kl": 0.01})
    assert "latent space collapsed" in caplog.text


def test_both_trainers_take_the_same_steps_where_no_sensors_are_read(toy_files):
    training = TrainingConfig(iterations=5, batch_size=20, gradient_clip=0.1)
    method = Method(network=KRIGING, training=training)
    data = load_functions(toy_files.functions, "training", 200)
    trial = Trial("uqsonet", method, 0.0, 2, 7)
    small, other = Trainer(trial, data), SensorTrainer(trial, data, None)
    for step in range(5):
        assert torch.equal(small.step(step)["loss"], other.step(step)["loss"])
    theirs = other.optimiser.weights()
    assert all(torch.equal(w, theirs[name]) for name, w in small.optimiser.weights().items())


def test_fit_needs_no_network_of_the_paper():
    code = "import sys, uqsonet.fitting.fit; print([m for m in sys.modules if 'networks' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_learning_rate_schedules():
    constant = TrainingConfig(iterations=100, learning_rate=0.3)
    assert {learning_rate(constant, i) for i in range(100)} == {0.3}
    cosine = TrainingConfig(iterations=1000, learning_rate=0.3, schedule="cosine")
    values = [learning_rate(cosine, i) for i in range(1000)]
    peak = values.index(max(values))
    assert 45 <= peak <= 52 and max(values) == pytest.approx(0.3, rel=0.03)
    assert values[:peak] == sorted(values[:peak])
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert values[0] == pytest.approx(0.3 / 50) and values[-1] == pytest.approx(0, abs=1e-9)
