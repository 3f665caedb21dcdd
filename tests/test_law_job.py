"""The job that fits a law: from a stack of trials to one trial with its law."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.conftest import DataFiles
from uqsonet.errors import ConfigError, DataError
from uqsonet.fields.stacked import Domain
from uqsonet.networks.settings import TrainingConfig
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.weight_files import load, read_model, read_weights, write_weights
from uqsonet_study.beyond.law import fit_law
from uqsonet_study.settings import Jobs, Method
from uqsonet_study.storage import load_functions
from uqsonet_study.training import TrainingJob, train


@pytest.fixture(scope="module")
def stack(toy_files: DataFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trials 0 and 1 in one file, as earlier versions trained them."""
    folder = tmp_path_factory.mktemp("stack")
    method = Method(
        network=KarhunenLoeveNetwork(input_modes=2, output_modes=2, branch=[8]),
        training=TrainingConfig(iterations=20, batch_size=50, validate_every=20),
    )
    found = []
    for trial in (0, 1):
        job = TrainingJob(
            *("uqsonet", "toy_linear", method, toy_files.noise_std, trial, 200, toy_files.seed),
            *(toy_files.functions, toy_files.sensors, toy_files.validation),
        )
        paths = [folder / name for name in ("w.safetensors", "log.csv", "state.safetensors")]
        train(job, Jobs(), *paths)
        found.append(read_weights(paths[0]))
    (first, meta), (second, _) = found
    both = {k: torch.cat([v, second[k]]) for k, v in first.items() if k.startswith("parameter/")}
    write_weights(paths[0], first | both, meta | {"trials": [0, 1]})
    return paths[0]


def fitted(
    files: DataFiles, stack: Path, folder: Path, law: str, trial: int = 1, nearest: int = 0
) -> tuple[Path, pd.DataFrame]:
    folder.mkdir(exist_ok=True)
    fit_law(
        *(law, nearest, trial, files.noise_std, 200, files.seed),
        *(files.functions, files.sensors, stack),
        *(folder / "law.safetensors", folder / "law.csv", "code"),
    )
    return folder / "law.safetensors", pd.read_csv(folder / "law.csv")


def test_a_law_leaves_the_operator_as_it_was_trained(toy_files, stack, tmp_path):
    path, log = fitted(toy_files, stack, tmp_path, "mixture")
    assert list(log["law"]) == ["mixture"] and set(log["trial"]) == {1}
    assert {"crps_1", "crps_2", "crps_4", "chosen"} <= set(log.columns)
    model, meta, _ = read_model(path)
    for name, value in load(stack, 1).state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert meta["trials"] == [1] and meta["config"]["network"]["law"] == "mixture"
    assert meta["law"]["asked"] == "mixture" and meta["law"]["code"] == "code"
    assert isinstance(model, KarhunenLoeveModel) and model.law.name != "gaussian"
    # With the Gaussian law it answers as the operator does.
    path, _ = fitted(toy_files, stack, tmp_path, "gaussian", trial=0)
    functions = load_functions(toy_files.functions, "test")
    grid: Domain = functions.fields.input.grid
    places, values = grid.points()[[3, 20]], functions.kappa[0, [3, 20]]
    one, other = (load(p, 0).condition(places, values, noise_std=0.1) for p in (path, stack))
    assert torch.equal(one.mean(), other.mean()) and torch.equal(one.std(), other.std())


def test_a_chosen_law_is_named_in_the_file_and_bytes_repeat(toy_files, stack, tmp_path):
    path, log = fitted(toy_files, stack, tmp_path / "one", "auto")
    assert log["chosen"].tolist().count(True) == 1 and "gaussian" in set(log["law"])
    _, meta, _ = read_model(path)
    assert meta["law"]["asked"] == "auto"
    assert meta["config"]["network"]["law"] == log.loc[log["chosen"], "law"].iloc[0]
    again, _ = fitted(toy_files, stack, tmp_path / "two", "auto")
    assert again.read_bytes() == path.read_bytes()


def test_nearest_answers_are_outputs_of_validation_pairs(toy_files, stack, tmp_path):
    path, _ = fitted(toy_files, stack, tmp_path, "gaussian", nearest=1)
    model, held = load(path), load_functions(toy_files.functions, "validation")
    assert isinstance(model, KarhunenLoeveModel) and model.config.nearest == 1
    kept = held.fields.training_grid()[1]
    places = held.fields.input.grid.points()
    found = model.condition(places, held.kappa[3], noise_std=1e-3).sample(3)
    outputs = held.u[:, kept].double()
    assert torch.cdist(model.local_outputs.double(), outputs).amin(1).max() < 1e-5
    # All of a validation function is read, so the nearest answer is that of the pair itself.
    at = torch.cdist(found[:, kept].double(), outputs)
    assert (at.argmin(1) == 3).all()


def test_what_does_not_fit_together_is_refused(toy_files, stack, tmp_path):
    with pytest.raises(DataError, match=r"has trials \[0, 1\], asked for 2"):
        fitted(toy_files, stack, tmp_path, "auto", trial=2)
    with pytest.raises(ConfigError, match="'facies' is gone"):
        fitted(toy_files, stack, tmp_path, "facies")
    assert not list(tmp_path.iterdir())
