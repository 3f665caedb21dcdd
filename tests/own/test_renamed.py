"""Names of classes play no part: scores stand in for them, and answers do not change with them."""

import numpy as np
import pytest
import torch

import uqsonet
from tests.laws.conftest import SMALL, gaussian_fields, kernel
from uqsonet.fields.field import Field, Transform
from uqsonet.fitting import choose_law as choice
from uqsonet.fitting import fit as fitting
from uqsonet.fitting.stand_ins import class_transform
from uqsonet.laws import latent

RATES = np.array([1.0, 5.0, 2.0])


def layers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of three classes, any of which touch, and outputs linear in 1 / rate."""
    rng = np.random.default_rng(4)
    first, second = (gaussian_fields(rng, size, kernel(0.4)) for _ in range(2))
    classes = np.where(first > 0.3, 0, np.where(second > 0, 1, 2))
    return classes, np.cumsum(1 / RATES[classes], 1) / SMALL.size


def test_scores_make_the_operator_linear():
    classes, u = layers(300)
    share = np.array([(classes == k).mean() for k in range(3)])
    wanted = 1 / RATES - share @ (1 / RATES)
    wanted /= (share @ wanted**2) ** 0.5
    wanted *= np.sign(share @ wanted**3)
    for names in ([0.0, 1.0, 2.0], [7.0, -1.0, 2.0]):
        values = torch.tensor(names)[classes]
        found = class_transform(values, torch.from_numpy(u), values.unique())
        scores = dict(zip(found.values, found.scores, strict=True))
        assert [scores[name] for name in names] == pytest.approx(wanted, abs=1e-3)


def test_a_transform_of_classes_goes_forth_and_back():
    one = Transform("classes", values=(0.0, 1.0, 5.0), scores=(0.3, -1.2, 0.8))
    values = torch.tensor([0.0, 5.0, 1.0, 1.2, 4.0, 90.0])
    forward = one.forward(values)
    assert forward[:3].tolist() == pytest.approx([0.3, 0.8, -1.2])
    assert bool((forward[3:] != torch.tensor([-1.2, 0.8, 0.8])).all())  # no class: it can be told
    assert one.inverse(forward).tolist() == [0.0, 5.0, 1.0, 1.0, 5.0, 5.0]
    field = Field("k", SMALL, one)
    assert Field.from_dict(field.as_dict()) == field
    for tables in (((0.0, 1.0), (1.0, 1.0)), ((1.0, 0.0), (1.0, 2.0)), ((), ())):
        with pytest.raises(ValueError, match="class"):
            Transform("classes", values=tables[0], scores=tables[1])


@pytest.mark.parametrize("law", ["thresholded", "gaussian"])
def test_renaming_classes_changes_nothing(law, monkeypatch, tmp_path):
    monkeypatch.setattr(fitting, "score", lambda *_, **__: [[]])
    monkeypatch.setattr(choice, "SCORE_DRAWS", 64)
    monkeypatch.setattr(latent, "SPECTRUM_STEPS", 5)
    classes, u = layers(120)
    places, answers = [3, 9, 15, 21], []
    for names in (np.array([0.0, 1.0, 2.0]), np.array([4.0, 1.0, 2.0])):
        k = names[classes]
        runs = uqsonet.Runs({"k": (k, SMALL)}, {"u": (u, SMALL)})
        model = uqsonet.fit(runs, sensors=[4], bar=False, law=law)
        if answers:
            model.save(tmp_path / "model.safetensors")
            model = uqsonet.load(tmp_path / "model.safetensors")
        answer = model.condition(SMALL.points()[places], k[0, places])
        answers.append((np.asarray(answer.mean()), np.asarray(answer.std())))
        assert np.isin(np.asarray(answer["k"].sample(20)), names).all()
        assert np.isin(np.asarray(answer["k"].quantile([0.1, 0.6])), names).all()
    (mean, std), (other, _) = answers
    assert float((np.abs(other - mean) / std).max()) < 0.02
