"""A set of sensors has the same answer alone, in any company, and at any place of a batch."""

import numpy as np
import pytest
import torch

from tests.laws.conftest import LAWS, SMALL
from tests.models import test_attention, test_attention_prior
from tests.test_joint import FIELDS, Bent, integral
from uqsonet.emulator.emulator import Emulator
from uqsonet.fields.field import Field, Transform
from uqsonet.fitting import choose_law as choice
from uqsonet.laws import law_class
from uqsonet.operator.base import build_model
from uqsonet.operator.closed_form import set_residuals
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.model import KarhunenLoeveModel
from uqsonet.runs.functions import Functions
from uqsonet.sensors.sensors import Sensors
from uqsonet_study.baselines import build_baseline
from uqsonet_study.ensemble import DeepEnsemble

NETWORKS = "attention", "ensemble", "prior"
ALL = *NETWORKS, "cokriging", "regression", *LAWS, *(f"bent {kind}" for kind in LAWS)
ASKED: list[tuple[str, dict[str, object]]] = [
    *(("mean", {}), ("std", {}), ("sample", {"size": 9, "rng": 2}), ("sample", {"size": 1})),
    *(("quantile", {"levels": 0.1, "size": 200}), ("band", {"kind": "plain"})),
]


@torch.no_grad()
def model_of(name: str) -> Emulator:
    """Return a small model; "bent" ones have a nonlinear branch and the logarithm of an input."""
    if name == "attention":
        return Emulator.around(test_attention.build())
    if name == "ensemble":
        members = [test_attention.build("vidon", seed=seed) for seed in (0, 1)]
        return Emulator.around(DeepEnsemble(members))
    kind = name.removeprefix("bent ")
    law, draw = LAWS.get(kind, LAWS["gaussian"])
    kappa = torch.from_numpy(draw(np.random.default_rng(0), 200))
    data = Functions(FIELDS, "training", kappa.float(), (kappa @ integral().T).float())
    if name in ("cokriging", "regression"):
        return Emulator.around(build_baseline(name, data, 0.1))
    if name == "prior":
        model = build_model("uqsonet", FIELDS, test_attention_prior.NETWORK, 0.1).eval()
        model.fit_constants(data)
        return Emulator.around(model)
    branch, change = ([], "identity") if kind == name else ([4], "log")
    sizes = {"input_modes": 6, "output_modes": 6, "branch": branch, "held_out_residuals": True}
    model = KarhunenLoeveModel(FIELDS, KarhunenLoeveNetwork.model_validate(sizes), 0.1).eval()
    model.fit_constants(data)
    set_residuals(model, 0.1 * torch.randn(50, 6, generator=torch.Generator()), 0.05, 0.05)
    model.network = Bent() if branch else None
    if law != "gaussian":
        model.use_law(law_class(law).fit(choice.input_sample(model, data), 0))
    read, left = [Field("k", SMALL, Transform(change))], torch.full((SMALL.size, 1), 0.05)
    noise = {"k": 0.1}
    return Emulator(model, read, [FIELDS.output], noise_std=noise, remainder=(left, left))


@pytest.mark.filterwarnings("ignore::uqsonet.ObservationWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if "margins" in name else name for name in ALL],
)
def test_company_has_no_influence(name, monkeypatch):
    monkeypatch.setattr("uqsonet.emulator.field_law.SETS", 2)
    model, counts = model_of(name), torch.tensor([[3, 0], [1, 2], [5, 0], [0, 1], [2, 4]])
    long = "classes", "margins", *NETWORKS
    joint = not name.endswith(long)
    counts = counts.clamp_min(name in NETWORKS) * torch.tensor([1, joint])
    mask = torch.cat([torch.arange(5) < count for count in counts.T[..., None]], 1)
    x = torch.rand(5, 10, 1, generator=torch.Generator().manual_seed(0)).double()
    field = (torch.arange(10) >= 5).long().expand(5, 10)
    y = (0.8 * (x[..., 0] - 0.5).sign() * torch.where(field == 0, 1.0, 0.1)).double()
    y = torch.where((field == 0) & name.startswith(("bent", *NETWORKS)), y.exp(), y)
    noise = torch.full_like(y, 0.0 if name in NETWORKS[:2] else 0.1)
    noise[2] *= 1 if name in NETWORKS else 5  # classes are uncertain
    sets = Sensors(x, y, mask, None, noise, field, [""] * 5)
    for number in (1,) if name in NETWORKS else (0, 1):
        answers = [model.answer(some, number) for some in (sets, *map(sets.alone, range(5)))]
        for ask, more in ASKED:
            found = [getattr(one, ask)(**more) for one in answers]
            together, *alone = [torch.cat(one, -1) if ask == "band" else one for one in found]
            for row, own in enumerate(alone):
                error = float((together[row] - own[0]).abs().max())
                most = (1e-4 if name in NETWORKS else 1e-6) * float(own.abs().max())
                assert error <= most, (ask, row)
