"""An answer is a value: it pickles, copies, and works in a process that has no model."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.own.test_answers import LAW, PLACES, VALUES
from tests.test_joint import curved_model, mixture_model
from uqsonet import Emulator, FieldPosterior
from uqsonet.networks.attention import AttentionModel
from uqsonet.networks.config import AttentionNetwork
from uqsonet.operator.closed_form import fit_bases, sized_bases, targets
from uqsonet.operator.regression import Regression

AT = [[0.2], [0.6]], [0.3, 0.4], 0.1
OF_BOTH = {"k": AT, "u": ([[0.5]], [0.1], 0.1)}


def fitted(linear: Emulator) -> FieldPosterior:
    """An answer with conformal bands."""
    return linear.condition(PLACES, VALUES)


def many(linear: Emulator) -> FieldPosterior:
    """More sets than are conditioned at a time."""
    return linear.condition(np.repeat(LAW.points[None, :3], 20, 0), np.zeros((20, 3)))


def curved(_: object) -> FieldPosterior:
    return Emulator.around(curved_model()).condition(**OF_BOTH)


def mixture(_: object) -> FieldPosterior:
    return Emulator.around(mixture_model()[0]).condition(k=AT)


def regression(_: object) -> FieldPosterior:
    functions = mixture_model()[1]
    bases = sized_bases(functions)
    fit_bases(bases, functions)
    return Emulator.around(Regression(bases, **targets(bases, functions))).condition(k=AT)


def attention(_: object) -> FieldPosterior:
    fields = mixture_model()[1].fields
    network = AttentionNetwork(embedding_dim=4, heads=1, head_width=4, latent_dim=2)
    return Emulator.around(AttentionModel(fields, network, 0.1).eval()).condition(k=AT[:2])


def found(posterior: FieldPosterior) -> dict[str, Any]:
    """Return all that an answer says, of its input, too, where it has a law of it."""
    fields = {"output": posterior}
    if posterior.law.knows_inputs():
        fields["input"] = posterior[posterior.inputs[0].name]
    return {
        f"{side} {what}": np.asarray(value)
        for side, one in fields.items()
        for what, value in (
            ("mean", one.mean()),
            ("std", one.std()),
            ("quantile", one.quantile([0.1, 0.9], size=200)),
            ("band", np.stack(one.band(0.8))),
            ("sample", one.sample(5, rng=2)),
            ("size", one.effective_size),
        )
    }


def require_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, name)


@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
@pytest.mark.parametrize("ask", [fitted, many, curved, mixture, regression, attention])
@pytest.mark.parametrize("asked_before", [False, True])
def test_copies_answer_alike(
    linear: Emulator, ask: Callable[[Emulator], FieldPosterior], asked_before: bool
) -> None:
    answer = ask(linear)
    if asked_before:
        answer.mean()
    copies = pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)
    expected = found(answer)
    for one in copies:
        assert one is not answer
        require_equal(expected, found(one))


def test_a_copy_shares_nothing(linear: Emulator) -> None:
    answer = fitted(linear)
    other = copy.deepcopy(answer)
    with torch.no_grad():
        other.law.emulator.operator.bases.linear_weight.zero_()  # type: ignore[attr-defined]
    assert np.abs(other.mean() - answer.mean()).max() > 0.01


def test_an_answer_holds_no_card(linear: Emulator) -> None:
    answer = fitted(linear)
    written = pickle.dumps(answer)
    assert linear.card and not answer.law.emulator.card
    assert len(written) < 2 * sum(t.nbytes for t in linear.operator.state_dict().values()) + 2e6  # type: ignore[attr-defined]


ELSEWHERE = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    answer = pickle.load(file)
np.savez(sys.argv[2], mean=answer.mean(), std=answer.std(), lower=answer.band(0.9)[0],
         a=answer["a"].sample(3, rng=1))
assert "uqsonet.fitting.fit" not in sys.modules
"""


def test_an_answer_works_in_another_process(linear: Emulator, tmp_path: Path) -> None:
    answer = fitted(linear)
    (tmp_path / "answer.pickle").write_bytes(pickle.dumps(answer))
    files = [str(tmp_path / name) for name in ("answer.pickle", "found.npz")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *files], check=True)
    with np.load(files[1]) as there:
        np.testing.assert_array_equal(there["mean"], answer.mean())
        np.testing.assert_array_equal(there["std"], answer.std())
        np.testing.assert_array_equal(there["lower"], answer.band(0.9)[0])
        np.testing.assert_array_equal(there["a"], answer["a"].sample(3, rng=1))
