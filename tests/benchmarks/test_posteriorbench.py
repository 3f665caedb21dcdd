"""PosteriorBench: its metrics on known laws, its readings, and the whole of it in small."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import uqsonet
from benchmarks.posteriorbench import __main__ as bench
from benchmarks.posteriorbench import darcy, ensembles, problems
from benchmarks.posteriorbench.importance import ExactPosterior
from benchmarks.posteriorbench.metrics import covered, mmd
from benchmarks.posteriorbench.problems import POINTS, Case, Darcy, Poisson, cosines


def test_mmd_and_bands_of_gaussians_are_known() -> None:
    # With width c: E exp(-|X - Y|^2 / c) = (1 + 2 s^2 / c)^(-d/2) exp(-m^2 / (c + 2 s^2)).
    levels = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    x, y = torch.special.ndtri(levels)[:, None], torch.special.ndtri(levels)[:, None] + 1.5
    widths = [part * float(torch.cdist(x, y).square().median()) for part in (0.2, 0.5, 1, 2, 5)]
    parts = [2 / 5 * (1 + 4 / c) ** -0.5 * (1 - math.exp(-(1.5**2) / (c + 4))) for c in widths]
    assert mmd(x, y) == pytest.approx(math.sqrt(sum(parts)), rel=0.01)
    fields = torch.randn(3, 300, 64, 64, generator=torch.Generator().manual_seed(0))
    assert covered(fields[0], fields[1]) == pytest.approx([0.5, 0.9], abs=0.01)
    assert covered(fields[0], 2 * fields[2]) == pytest.approx([0.264, 0.589], abs=0.01)


def test_rows_of_sensors_read_what_the_solver_gives() -> None:
    case = Poisson().case(0)
    coefficients = cosines() @ case.truth @ cosines().T
    read = (Poisson().rows(case.sensors, POINTS) * coefficients).sum((1, 2))
    assert torch.allclose(read, case.readings, rtol=0, atol=1e-12)


def test_cases_are_scored_kept_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BANDS", 100)
    monkeypatch.setattr(ensembles, "MEMBERS", 64)
    few = lambda case, generator: ExactPosterior(case, generator, 5000)  # noqa: E731
    monkeypatch.setattr("benchmarks.posteriorbench.importance.ExactPosterior", few)
    problem = Poisson()
    linear = ensembles.Regression(*problem.pairs(300))

    def regression(case: Case) -> bench.Answer:
        found = linear.given(case, 100, np.random.default_rng(0))
        return bench.Answer(found.mean, found.std, found.samples, {})

    def es_mda(case: Case) -> bench.Answer:
        return bench.Answer.of(ensembles.smoothed(problem, case, np.random.default_rng(0)))

    methods: Any = {"ours": regression, "es_mda": es_mda}
    rows = bench.scored(problem, 0, methods, None, tmp_path)
    assert bench.scored(problem, 0, {}, None, tmp_path) == rows  # from its file
    assert rows["floor"]["mmd"] < rows["ours"]["mmd"]
    assert rows["floor"]["long_mean"] < 0.1 < rows["ours"]["long_std"]
    assert rows["floor"]["cover_90"] == pytest.approx(0.88, abs=0.06)
    assert rows["es_mda"]["long_mean"] < 0.5
    means, every = bench.tables("poisson", 300, [rows])
    path = tmp_path / "posterior.csv"
    bench.merge(means, path, bench.KEYS)
    bench.merge(means, path, bench.KEYS)
    table = pd.read_csv(path).set_index("method")
    assert list(table.index[:3]) == ["floor", "ours", "es_mda"] and len(every) == 3
    assert table.loc["DDIS (published)", "std"] == 0.32 and table.loc["ours", "cases"] == 1


@pytest.mark.long
def test_samples_of_darcy_are_within_the_cut_of_the_real_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("SIZE", 48), ("ROUNDS", 2), ("KEPT", 1)):
        monkeypatch.setattr(darcy, name, value)
    for module in (problems, darcy):
        monkeypatch.setattr(module, "SIGMA", 4e-4)
        monkeypatch.setattr(module, "CUT", 12e-4)
    media, solutions = Darcy().pairs(150)
    runs = uqsonet.Runs({"a": media.numpy()}, {"u": solutions.numpy()})
    model = uqsonet.fit(runs, sensors=[16], law="gaussian", bar=False)
    case = Darcy().case(0)
    (mean, _), halves, notes = darcy.reference(case, model, torch.Generator())
    read = Darcy().solve(torch.cat(halves)).flatten(1)[:, case.sensors]
    off = float((read - case.readings).abs().mean(1).max())
    assert off <= 1.01 * problems.CUT  # solves end at a residual
    assert set(torch.cat(halves).unique().tolist()) == {3.0, 12.0}
    assert ((mean - case.truth).norm() / case.truth.norm()).item() < 0.4
    assert 0 < notes["accepted"] <= 1
