"""Rows of a training reach whoever listens to the logger, as docs/hand-over.md has it."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from uqsonet.fields.field import Field
from uqsonet.fields.grid import Grid
from uqsonet.fields.operator_fields import OperatorFields
from uqsonet.networks.settings import MethodConfig, TrainingConfig
from uqsonet.networks.train import Trainer, Trial, train
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.runs.functions import Functions


class Rows(logging.Handler):
    """Keeps the rows that records have."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if row := getattr(record, "row", None):
            self.rows.append(row)


def test_records_of_a_training_have_its_numbers(tmp_path: Path) -> None:
    grid = Grid((0.0,), (1.0,), (21,))
    fields = OperatorFields("runs", Field("k", grid), Field("u", grid))
    k = torch.randn(240, 4, generator=torch.Generator().manual_seed(0)) @ torch.eye(4, 21)
    functions = Functions(fields, "training", k, torch.tanh(k.cumsum(1)))
    network = KarhunenLoeveNetwork(input_modes=4, output_modes=4, branch=[8])
    training = TrainingConfig(iterations=20, batch_size=50, validate_every=10)
    trial = Trial("uqsonet", MethodConfig(network=network, training=training), 0.0, 0, 0)
    rows, log = Rows(), logging.getLogger("uqsonet")
    level = log.level
    log.addHandler(rows)
    log.setLevel(logging.INFO)
    try:
        train(Trainer(trial, functions), lambda _: {}, tmp_path / "state", {}, bar=False)
    finally:
        log.removeHandler(rows)
        log.setLevel(level)
    assert [row["iteration"] for row in rows.rows] == [10, 20]
    assert all(0 < row["reconstruction"] < 10 for row in rows.rows)
