"""The job of the pipeline that gives a trained operator a law of its input (`uqsonet.laws`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from uqsonet.errors import DataError
from uqsonet.files import file_digest
from uqsonet.fitting.choose_answer import take_nearest
from uqsonet.fitting.choose_law import equip
from uqsonet.fitting.comparison import Comparison
from uqsonet.fitting.held_out import HeldOut
from uqsonet.gauss.seeds import numpy_generator, seed_sequence
from uqsonet.laws import NAMES
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.operator.weight_files import read_model, read_weights, write_weights
from uqsonet.runs.functions import Functions
from uqsonet_study.beyond.exact import EXACT
from uqsonet_study.jobs import log_rows
from uqsonet_study.layouts import load_layouts
from uqsonet_study.storage import load_functions

LAW_POINTS = 200  # output points behind the CRPS of one answer, at most
MAX_HELD = 200  # held-out pairs, at most
MIN_HELD = 20  # held-out pairs that are used whatever their sensors
MAX_ALL_SENSORS = 8000  # sensors of all pairs together, at most, if there are more pairs


def held_pairs(
    held: Functions, noise_std: float | Tensor, layouts: Mapping[int, Tensor], seed: int
) -> HeldOut:
    """Return held-out pairs as sensors read them; fewer of them where there are many sensors."""
    most = min(MAX_HELD, max(MIN_HELD, MAX_ALL_SENSORS // max(layouts)))
    some = {count: places[:most] for count, places in layouts.items()}
    points = numpy_generator(seed, "law", "points")
    return HeldOut.read(
        held, some, noise_std, lambda count: numpy_generator(seed, "law", "noise", count), points,
        LAW_POINTS, part=1,
    )  # fmt: skip


def fit_law(
    law: str,
    nearest: int,
    trial: int,
    noise_std: float,
    training: int,
    seed: int,
    functions: Path,
    sensors: Path,
    weights: Path,
    path: Path,
    log: Path,
    code: str = "",
) -> None:
    """Fit a law to the training inputs and write it with the operator, and what was tried.

    The validation functions, seen at the validation layouts, are the held-out pairs.

    Parameters
    ----------
    law : str
        Name of a law, or ``auto``.
    nearest : int
        Number of validation pairs with the nearest answers whose outputs are the answer, or 0.
    trial : int
        Number of the training whose operator the law gets.
    noise_std : float
        Noise of the held-out observations.
    training : int
        Training pairs N: the first N of the data set.
    functions, sensors, weights : Path
        Pairs, layouts, trained operators.
    path, log : Path
        Results: weights of the one trial (safetensors); a row for each law that was tried (CSV).
    code : str
        Digest of the source that determines the result.

    Raises
    ------
    DataError
        If the weights lack the trial or have no such law.
    """
    data = load_functions(functions, "training", training)
    validation = load_functions(functions, "validation")
    kept = data.fields.training_grid()[1]
    held = Functions(data.fields, "training", validation.kappa, validation.u[:, kept])
    model, meta, _ = read_model(weights, trial)
    if not isinstance(model, KarhunenLoeveModel):
        raise DataError(f"{weights}: laws are for the architecture karhunen_loeve")
    node = seed_sequence(seed, data.fields.name, "law", trial)
    number = int(node.generate_state(1, np.uint64)[0] >> np.uint64(1))
    layouts = load_layouts(sensors, "validation")
    rows = equip(
        [model],
        NAMES if law == "auto" else ["gaussian" if law == EXACT else law],
        [data],
        Comparison([held_pairs(held, noise_std, layouts, number)], number),
        noise_std=noise_std,
        seed=number,
    )
    tensors, _ = read_weights(weights)
    stacked = meta["trials"].index(trial)
    stored = {k: v[[stacked]] if k.startswith("parameter/") else v for k, v in tensors.items()}
    chosen = next(row["law"] for row in rows if row["chosen"])
    meta["config"]["network"]["law"] = chosen
    if nearest:
        take_nearest(model, held, range(held.size), nearest, model)
        meta["config"]["network"]["nearest"] = nearest
        tensors = {"local_answers": model.local_answers, "local_outputs": model.local_outputs}
        stored |= {f"buffer/{name}": tensor for name, tensor in tensors.items()}
    meta |= {
        "trials": [trial],
        "law": {
            "asked": law,
            "nearest": nearest,
            "noise_std": noise_std,
            "training": training,
            "seed": seed,
            "sensors": file_digest(sensors),
            "code": code,
        },
    }
    write_weights(path, stored | model.law_tensors(), meta)
    log_rows(log, [{"trial": trial} | row for row in rows])
