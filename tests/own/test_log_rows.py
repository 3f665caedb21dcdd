"""Rows of a training reach whoever listens to the logger, as docs/hand-over.md has it."""

from __future__ import annotations

import logging

import numpy as np

import uqsonet


class Rows(logging.Handler):
    """Keeps the rows that records have."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if row := getattr(record, "row", None):
            self.rows.append(row)


def test_records_of_a_training_have_its_numbers():
    k = np.random.default_rng(0).standard_normal((240, 4)) @ np.eye(4, 21)
    runs, rows = uqsonet.Runs({"k": k}, {"u": np.tanh(k.cumsum(1))}), Rows()
    log = logging.getLogger("uqsonet")
    log.addHandler(rows)
    try:
        uqsonet.fit(runs, sensors=[3], law="gaussian")
    finally:
        log.removeHandler(rows)
    assert rows.rows
    for row in rows.rows:
        assert row["iteration"] > 0 and np.isfinite(row["reconstruction"])
