"""Modes that are fitted once: the same numbers, whoever fits them, and by whom they are read."""

import threading
import time
from functools import wraps

import pytest
import torch

from uqsonet.laws.bases import KarhunenLoeveBases
from uqsonet.operator import closed_form
from uqsonet_study import kept_modes
from uqsonet_study.kept_modes import Keeper
from uqsonet_study.storage import load_functions


@pytest.fixture
def path(toy_files, tmp_path):
    copy = tmp_path / "toy_linear.h5"
    copy.write_bytes(toy_files.functions.read_bytes())
    return copy


def fitted(path, keep=True, modes=2, linear=True, size=None):
    functions = load_functions(path, "training", size)
    functions.keeper = Keeper(path) if keep else None
    bases = KarhunenLoeveBases(functions.fields, modes, modes)
    closed_form.fit_bases(bases, functions, linear)
    return dict(bases.named_buffers()) | closed_form.targets(bases, functions)


def same(first, second):
    return all(torch.equal(first[key], second[key]) for key in first | second)


def kept(path):
    return sorted(path.with_name(".toy_linear.modes").glob("*.safetensors"))


@pytest.mark.parametrize("linear", [True, False])
def test_kept_modes_are_those_that_are_fitted(path, linear, monkeypatch):
    plain = fitted(path, keep=False, linear=linear)
    assert not kept(path)
    assert same(plain, fitted(path, linear=linear))

    @wraps(closed_form.fit_anew)
    def refuse(*_):
        raise AssertionError("fitted again")

    monkeypatch.setattr(closed_form, "fit_anew", refuse)
    assert same(plain, fitted(path, linear=linear))


def test_other_pairs_numbers_of_modes_and_functions_have_files_of_their_own(path, toy_files):
    fitted(path)
    fitted(path, modes=1)
    fitted(path, size=100)
    assert len(kept(path)) == 3
    assert same(fitted(path, size=100), fitted(path, size=100, keep=False))
    path.write_bytes(toy_files.functions.read_bytes())
    functions = load_functions(path, "training")
    functions.keeper = Keeper(path, "0" * 64)
    closed_form.fit_bases(KarhunenLoeveBases(functions.fields, 2, 2), functions)
    assert [file.name[:8] for file in kept(path)] == ["0" * 8]  # those of other functions are gone


def test_a_damaged_file_is_made_again(path):
    plain = fitted(path)
    (file,) = kept(path)
    content = file.read_bytes()
    file.write_bytes(content[:-8] + b"damaged!")
    assert same(plain, fitted(path))
    assert file.read_bytes() == content


def test_a_folder_that_cannot_be_written_costs_time_alone(path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_modes, "write_weights", full)
    assert same(fitted(path), fitted(path, keep=False))
    assert not kept(path)


def test_of_jobs_that_start_together_one_fits(path, monkeypatch):
    fits, fit = [], closed_form.fit_anew

    def slow(*arguments):
        fits.append(arguments)
        time.sleep(0.2)  # the others reach the lock meanwhile
        fit(*arguments)

    monkeypatch.setattr(closed_form, "fit_anew", slow)
    jobs = [threading.Thread(target=fitted, args=(path,)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(fits) == 1 and len(kept(path)) == 1
