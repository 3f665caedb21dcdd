"""The posterior benchmark from end to end, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import posterior
from uqsonet_study.posterior import ensembles, flow
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
    rows = posterior.scored(problem, 0, methods, tmp_path)
    assert posterior.scored(problem, 0, {}, tmp_path) == rows  # from its file
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


def test_an_emulator_of_darcy_predicts_and_knows_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "CENTRES", 40)
    monkeypatch.setattr(flow, "HELD", 20)
    media, solutions = Darcy().pairs(120)
    emulation = flow.Emulation.of(media, solutions)
    sensors = Darcy().case(0).sensors
    error = (emulation(media[60:], sensors) - solutions[60:].flatten(1)[:, sensors]).abs().mean()
    stated = emulation.errors[:, sensors].abs().mean()
    spread = solutions[60:].flatten(1)[:, sensors].std(0).mean()
    assert float(error) == pytest.approx(float(stated), rel=0.2)
    assert float(error) < 0.3 * float(spread)
    turned = emulation(torch.rot90(media[60:], 1, (1, 2)), torch.arange(128**2))
    straight = emulation(media[60:], torch.arange(128**2)).view(-1, 128, 128)
    assert torch.allclose(turned.view(-1, 128, 128), torch.rot90(straight, 1, (1, 2)), atol=2e-5)


def test_the_latent_spectrum_is_that_of_the_media() -> None:
    generator = np.random.default_rng(0)
    media = Darcy().draw(generator, 300)
    found, true = flow.latent_spectrum(media), Darcy().std
    ratio = (found / true)[:8, :8].flatten()[1:]
    assert float(ratio.max() / ratio.min()) < 1.6
