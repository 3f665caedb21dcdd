"""Networks and training settings in words: what a table of networks prints of a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from uqsonet_study.config import AttentionNetwork, Case, Config, MethodConfig
from uqsonet_study.report.tables.text import TIMES, M, N, Text, integer, plain, power, text

DETERMINISTIC = ("vidon",)
"""Methods without a latent variable: they have no encoder and no d_z."""

Settings = dict[str, Text]


def _sub(name: str, below: str) -> Text:
    return Text(f"${name}_{{{below}}}$", f"<var>{name}</var><sub>{below}</sub>")


D_Z = Text("$d_z$", "<var>d<sub>z</sub></var>")
P = Text("$p$", "<var>p</var>")
ATTENTION = {
    "location_embedding": Text(r"$\Lambda_x$", "Λ<sub><var>x</var></sub>"),
    "value_embedding": Text(r"$\Lambda_\kappa$", "Λ<sub><var>κ</var></sub>"),
    "score": _sub("w", "l"),
    "projection": _sub("v", "l"),
    "branch": Text("$B$", "<var>B</var>"),
    "trunk": Text("$T$", "<var>T</var>"),
    "encoder": Text(r"$\mathcal{E}$", "<var>E</var>"),
    "latent_dim": D_Z,
    "embedding_dim": Text(r"$d_\mathrm{emb}$", "<var>d</var><sub>emb</sub>"),
    "truncation": P,
    "heads": Text("$H$", "<var>H</var>"),
    "head_width": Text("$q$", "<var>q</var>"),
    "activation": plain("activation"),
    "noise_variance": Text(r"$\sigma_u^2$", "<var>σ</var><sub><var>u</var></sub><sup>2</sup>"),
    "learning_rate": Text(r"$lr$", "<var>lr</var>"),
}
KRIGING = {
    "input_modes": text("modes of {k} ({d})", d=D_Z, k=Text(r"$\kappa$", "<var>κ</var>")),
    "output_modes": text("modes of {u} ({p})", p=P, u=Text("$u$", "<var>u</var>")),
    "branch": plain("branch"),
    "activation": plain("activation"),
}
TRAINING = {
    "iterations": plain("iterations"),
    "batch_size": plain("batch"),
    "learning_rate": plain("learning rate"),
    "schedule": plain("schedule"),
    "weight_decay": plain("weight decay"),
    "protocol": plain("sensors per batch"),
    "training": N,
}
PROTOCOLS = {
    "fixed_batches": text("one {m}, fixed layouts", m=M),
    "batch_shared": text("one {m}, one layout", m=M),
    "redraw": plain("drawn for each pair"),
}
INTEGERS = {"iterations", "batch_size", "training", "latent_dim", "truncation"}
SIZES = {"location_embedding", "value_embedding", "score", "projection", "branch", "trunk"}
SIZES |= {"encoder"}
SMALL = {"noise_variance", "learning_rate", "weight_decay"}


def layers(sizes: Sequence[int]) -> Text:
    """Return hidden layers as ``2 x 40``, of unequal width as ``64, 32``."""
    if len(set(sizes)) > 1:
        return plain(", ".join(map(str, sizes)))
    return text("{n} {times} {w}", n=len(sizes), times=TIMES, w=sizes[0])


def printed(quantity: str, value: object) -> Text:
    """Return a setting as it is printed, from its value or from the text of one."""
    if quantity in SIZES:
        words = value.split() if isinstance(value, str) else value
        assert isinstance(words, list)
        return layers([int(word) for word in words])
    if quantity in SMALL:
        return power(float(str(value)))
    if quantity in INTEGERS:
        return integer(int(str(value)))
    return PROTOCOLS.get(str(value), plain(value))


def network_settings(config: Config, case: Case, method: str) -> Settings:
    """Return the quantities of `ATTENTION` or `KRIGING` that a method has."""
    found = config.method_of(case.name, method)
    values = found.network.model_dump()
    if isinstance(found.network, AttentionNetwork):
        values |= {"score": values["attention"], "projection": values["attention"]}
        values["learning_rate"] = found.training.learning_rate
        ensemble = config.ensemble_of(case.experiment, method)
        if (ensemble.ensemble_of if ensemble else method) in DETERMINISTIC:
            del values["encoder"], values["latent_dim"]
        return {key: printed(key, values[key]) for key in ATTENTION if key in values}
    return {key: printed(key, values[key]) for key in KRIGING}


def training_settings(config: Config, case: Case, method: str) -> Settings:
    """Return the quantities of `TRAINING` that a method has."""
    found = config.method_of(case.name, method)
    values = found.training.model_dump() | {"training": case.training}
    if not found.network.per_sensors:
        del values["protocol"]
    return {key: printed(key, values[key]) for key in TRAINING if key in values}


def is_attention(found: MethodConfig) -> bool:
    """Return whether a method has the paper's networks."""
    return isinstance(found.network, AttentionNetwork)
