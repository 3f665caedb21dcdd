"""Networks and training settings in words: what a table of networks prints of a configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence

from uqsonet_study.config import AttentionNetwork, Case, Config, MethodConfig
from uqsonet_study.report.printing import integer

DETERMINISTIC = ("vidon",)
"""Methods without a latent variable: they have no encoder and no d_z."""

Settings = dict[str, str]
"""Quantity -> its setting as it is printed."""

ATTENTION = {
    "location_embedding": r"$\Lambda_x$",
    "value_embedding": r"$\Lambda_\kappa$",
    "score": "$w_{l}$",
    "projection": "$v_{l}$",
    "branch": "$B$",
    "trunk": "$T$",
    "encoder": r"$\mathcal{E}$",
    "latent_dim": "$d_z$",
    "embedding_dim": r"$d_\mathrm{emb}$",
    "truncation": "$p$",
    "heads": "$H$",
    "head_width": "$q$",
    "activation": "activation",
    "noise_variance": r"$\sigma_u^2$",
    "learning_rate": "$lr$",
}
KRIGING = {
    "input_modes": r"modes of $\kappa$ ($d_z$)",
    "output_modes": "modes of $u$ ($p$)",
    "branch": "branch",
    "activation": "activation",
}
TRAINING = {
    "iterations": "iterations",
    "batch_size": "batch",
    "learning_rate": "learning rate",
    "schedule": "schedule",
    "weight_decay": "weight decay",
    "protocol": "sensors per batch",
    "training": "$N$",
}
PROTOCOLS = {
    "fixed_batches": "one $m$, fixed layouts",
    "batch_shared": "one $m$, one layout",
    "redraw": "drawn for each pair",
}


def layers(sizes: Sequence[int]) -> str:
    """Return hidden layers as ``2 x 40``, of unequal width as ``64, 32``."""
    if len(set(sizes)) > 1:
        return ", ".join(map(str, sizes))
    return f"{len(sizes)} × {sizes[0]}"


def printed(value: object) -> str:
    """Return a setting as it is printed: sizes of layers, a whole or a small number, a name."""
    if isinstance(value, list):
        return layers(value)
    if isinstance(value, int):
        return integer(value)
    return power(value) if isinstance(value, float) else PROTOCOLS.get(str(value), str(value))


def parsed(words: str) -> object:
    """Return a setting of the paper from its text, where ``40 40`` are two layers."""
    sizes = words.split()
    if len(sizes) > 1:
        return [int(size) for size in sizes]
    try:
        return json.loads(words)
    except ValueError:
        return words


def power(number: float) -> str:
    """Return a small number as a multiple of a power of ten; zero and 0.01 to 999 as they are."""
    if number == 0 or 0.01 <= abs(number) < 1000:
        return f"{number:g}"
    factor, exponent = f"{number:e}".split("e")
    mantissa = f"{float(factor):g}"
    head = "" if mantissa == "1" else rf"{mantissa}\cdot "
    return f"${head}10^{{{int(exponent)}}}$"


def network_settings(config: Config, case: Case, method: str) -> Settings:
    """Return the quantities of `ATTENTION` or `KRIGING` that a method has."""
    found = config.method_of(case.name, method)
    values = found.network.model_dump()
    if not has_attention(found):
        return {key: printed(values[key]) for key in KRIGING}
    values |= {"score": values["attention"], "projection": values["attention"]}
    values["learning_rate"] = found.training.learning_rate
    ensemble = config.ensemble_of(case.experiment, method)
    if (ensemble.ensemble_of if ensemble else method) in DETERMINISTIC:
        del values["encoder"], values["latent_dim"]
    return {key: printed(values[key]) for key in ATTENTION if key in values}


def training_settings(config: Config, case: Case, method: str) -> Settings:
    """Return the quantities of `TRAINING` that a method has."""
    found = config.method_of(case.name, method)
    values = found.training.model_dump() | {"training": case.training}
    if not found.network.per_sensors:
        del values["protocol"]
    return {key: printed(values[key]) for key in TRAINING if key in values}


def has_attention(found: MethodConfig) -> bool:
    """Return whether a method has the paper's networks."""
    return isinstance(found.network, AttentionNetwork)
