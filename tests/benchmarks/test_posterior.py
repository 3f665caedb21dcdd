"""The posterior benchmark from end to end, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import uqsonet
from benchmarks import posterior
from uqsonet_study.posterior import darcy, ensembles, problems
from uqsonet_study.posterior.importance import ExactPosterior
from uqsonet_study.posterior.problems import Case, Darcy, Poisson


def test_cases_are_scored_kept_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posterior, "BANDS", 100)
    monkeypatch.setattr(ensembles, "MEMBERS", 64)
    few = lambda case, generator: ExactPosterior(case, generator, 5000)  # noqa: E731
    monkeypatch.setattr("uqsonet_study.posterior.importance.ExactPosterior", few)
    problem = Poisson()
    linear = ensembles.Regression(*problem.pairs(300))

    def regression(case: Case) -> posterior.Answer:
        found = linear.given(case, 100, np.random.default_rng(0))
        return posterior.Answer(found.mean, found.std, found.samples, {})

    def es_mda(case: Case) -> posterior.Answer:
        return posterior.Answer.of(ensembles.smoothed(problem, case, np.random.default_rng(0)))

    methods: Any = {"ours": regression, "es_mda": es_mda}
    rows = posterior.scored(problem, 0, methods, None, tmp_path)
    assert posterior.scored(problem, 0, {}, None, tmp_path) == rows  # from its file
    assert rows["floor"]["mmd"] < rows["ours"]["mmd"]
    assert rows["floor"]["long_mean"] < 0.1 < rows["ours"]["long_std"]
    assert rows["floor"]["cover_90"] == pytest.approx(0.88, abs=0.06)
    assert rows["es_mda"]["long_mean"] < 0.5

    means, every = posterior.tables("poisson", 300, [rows])
    path = tmp_path / "posterior.csv"
    posterior.merge(means, path, posterior.KEYS)
    posterior.merge(means, path, posterior.KEYS)
    table = pd.read_csv(path).set_index("method")
    assert list(table.index[:3]) == ["floor", "ours", "es_mda"] and len(every) == 3
    assert table.loc["DDIS (published)", "std"] == 0.32 and table.loc["ours", "cases"] == 1


@pytest.mark.long
def test_samples_of_darcy_are_within_the_cut_of_the_real_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(darcy, "SIZE", 48)
    monkeypatch.setattr(darcy, "ROUNDS", 2)
    monkeypatch.setattr(darcy, "KEPT", 1)
    for module in (problems, darcy):
        monkeypatch.setattr(module, "SIGMA", 4e-4)
        monkeypatch.setattr(module, "CUT", 12e-4)
    media, solutions = Darcy().pairs(150)
    runs = uqsonet.Runs({"a": media.numpy()}, {"u": solutions.numpy()})
    model = uqsonet.fit(runs, 0.0, sensors=[16], law="gaussian", bar=False)
    case = Darcy().case(0)
    (mean, _), halves, notes = darcy.reference(case, model, torch.Generator())
    read = Darcy().solve(torch.cat(halves)).flatten(1)[:, case.sensors]
    assert (
        float((read - case.readings).abs().mean(1).max()) <= 1.01 * problems.CUT
    )  # solves end at a residual
    assert set(torch.cat(halves).unique().tolist()) == {3.0, 12.0}
    off = ((mean - case.truth).norm() / case.truth.norm()).item()
    assert off < 0.4 and 0 < notes["accepted"] <= 1
