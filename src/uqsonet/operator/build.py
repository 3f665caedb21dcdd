"""Untrained models by the names of their method and architecture."""

from __future__ import annotations

import importlib
import pkgutil

import torch

from uqsonet.errors import ConfigError
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.operator.base import REGISTRY, NetworkConfig, OperatorModel


def build_model(
    method: str, fields: OperatorFields, config: NetworkConfig, noise_std: float
) -> OperatorModel:
    """Return an untrained model with freshly drawn networks.

    Raises
    ------
    ConfigError
        If no file offers the method in that architecture.
    """
    key = method, config.architecture
    importlib.import_module("uqsonet.operator.model")
    if key not in REGISTRY:
        for found in pkgutil.iter_modules(importlib.import_module("uqsonet.networks").__path__):
            importlib.import_module(f"uqsonet.networks.{found.name}")
    if key not in REGISTRY:
        known = ", ".join(f"{m} ({a})" for m, a in sorted(REGISTRY))
        raise ConfigError(f"method {method!r} has no architecture {key[1]!r}; there are {known}")
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)  # of the networks, whatever a caller's default is
    try:
        return REGISTRY[key](fields, config, noise_std)
    finally:
        torch.set_default_dtype(kept)
