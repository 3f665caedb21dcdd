"""What answers which number of sensors: held-out runs compare a model with plainer answers.

A model is never worse, as far as held-out runs can tell, than regression on the pairs with a kernel
(least squares and a Gaussian process on readings are its ends), than cokriging, or than the mean of
the runs (`uqsonet.operator.baselines`). The one with the lowest CRPS answers, if the model's is
higher by more than the standard error of the paired difference, and by 2 %; or one whose CRPS is as
good, if its bands hold what they promise and the model's do not. What is better in this sense over
all numbers of sensors together answers each of them, unless another is better there by two standard
errors: few runs show less of one number alone. An answer of a perceptron to
sensors of outputs takes seconds, so fewer runs are compared there; a law without a closed form is
not compared there at all.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from uqsonet.errors import ObservationError
from uqsonet.fitting.candidates import SCORED_RUNS, EncodedRuns
from uqsonet.fitting.held_out import LEVELS, SensorPlan, at_places, scores_of_samples, some_points
from uqsonet.gauss.seeds import numpy_generator, torch_generator
from uqsonet.operator.baselines import SIDES, candidates, kept_pairs
from uqsonet.operator.closed_form import unexplained_root
from uqsonet.sensors.sensors import Sensors

if TYPE_CHECKING:
    from uqsonet.operator.model import KarhunenLoeveModel
    from uqsonet.runs.functions import Functions

LOG = logging.getLogger("uqsonet")

DRAWS = 128
"""Number of functions behind the CRPS of one answer."""

POINTS = 200
"""Maximum number of points of a field that scores are averaged over."""

LAYOUTS = 3
"""Number of layouts for each number of sensors; runs share them."""

MIN_RUNS, MAX_VALUES = 8, 1 << 24
"""Number of held-out runs that are scored whatever their size, and maximum number of values of all
of them together."""

SLOW_RUNS = 16
"""Number of held-out runs whose outputs are read, where a perceptron answers."""

PARTICLES = 512
"""Number of samples behind an answer that has no closed form."""

NO_ANSWER = 10.0
"""CRPS of a model that has no answer to a run, relative to that of the mean of the runs."""

MIN_GAIN = 0.02
"""Share by which a CRPS must be lower to count: what closed forms of the model gain at other noise
and other numbers of sensors is not scored."""

ROUNDING = 1e-4
"""CRPS, relative to that of the mean of the runs, below which only rounding is left."""

MAX_MISS = 0.1
"""Sum, over both levels, of what a model's bands may hold too much or too little beyond those of a
candidate whose CRPS is as good."""

Scores = Mapping[tuple[str, int], Mapping[str, Tensor]]
"""For a side and a number of sensors, run by run, the CRPS of each candidate and the shares of the
output that its bands of `LEVELS` hold (3, S)."""


def choose_answer(
    parts: list[tuple[EncodedRuns, KarhunenLoeveModel]], may_choose: bool
) -> tuple[dict[str, dict[int, str]], list[dict[str, Any]]]:
    """Return what answers which number of sensors, and a row of the comparison for each.

    Parameters
    ----------
    parts : list of (EncodedRuns, KarhunenLoeveModel)
        Splits of the runs, and the model that was fitted to the training runs of each.
    may_choose : bool
        Without it the model answers always, and rows say what would be better.
    """
    found: dict[tuple[str, int], dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    for data, model in parts:
        for key, by_name in _scores(data, model).items():
            for name, scores in by_name.items():
                found[key][name].append(scores)
    joined = {
        key: {name: torch.cat(many, 1) for name, many in by_name.items()}
        for key, by_name in found.items()
    }
    choice: dict[str, dict[int, str]] = {side: {} for side in SIDES}
    rows = []
    for side in SIDES:
        by_count = {count: scores for (one, count), scores in joined.items() if one == side}
        usual = _better(_over_counts(list(by_count.values())), "uqsonet")[0] if by_count else ""
        for count, scores in by_count.items():
            best, why = _better(scores, usual, 2)
            taken = best if may_choose else "uqsonet"
            choice[side][count] = taken
            row = {"read": side, "sensors": count, "taken": taken, "best": best, "why": why}
            rows.append(row | _gain(scores, best))
            shown = ", ".join(f"{name} {float(one[0].mean()):.4g}" for name, one in scores.items())
            LOG.info("%d sensors of %s, CRPS: %s; taken: %s", count, side, shown, taken)
    return choice, rows


def _gain(scores: Mapping[str, Tensor], best: str) -> dict[str, Any]:
    """Return by how much the best is better than the model, and the scores of all candidates."""
    less = (scores["uqsonet"][0] - scores[best][0]) / scores["uqsonet"][0].mean()
    row: dict[str, Any] = {"less": float(less.mean())}
    row["standard_error"] = float(less.std()) / len(less) ** 0.5
    for name, one in scores.items():
        row[f"crps_{name}"] = float(f"{float(one[0].mean()):.4g}")
        row[f"bands_{name}"] = [round(float(share.mean()), 3) for share in one[1:]]
    return row


def _over_counts(scores: list[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    """Return the mean of scores over numbers of sensors, CRPS relative to that of the mean."""
    whole: dict[str, Tensor] = {}
    for name in scores[0]:
        parts = [
            torch.cat([one[name][:1] / one["mean"][0].mean(), one[name][1:]]) for one in scores
        ]
        whole[name] = torch.stack(parts).mean(0)
    return whole


def _better(scores: Mapping[str, Tensor], usual: str, errors: float = 1) -> tuple[str, str]:
    """Return what should answer, and why: ``crps``, ``bands``, or ``usual``.

    Another than the usual one is better by more than so many standard errors.
    """
    means = {name: float(one[0].mean()) for name, one in scores.items()}

    def above(name: str, other: str) -> bool:
        """Return whether a CRPS is higher than another, by more than chance and `MIN_GAIN`."""
        gap = scores[name][0] - scores[other][0]
        chance = errors * float(gap.std()) / len(gap) ** 0.5
        return float(gap.mean()) > max(chance, MIN_GAIN * means[name])

    def miss(name: str) -> float:
        held = scores[name][1:].mean(1)
        return float((held - torch.tensor(LEVELS)).abs().sum())

    if means["uqsonet"] < ROUNDING:
        return "uqsonet", "usual"
    order = sorted(means, key=lambda name: means[name])
    if above(usual, order[0]):
        return order[0], "crps"
    limit = miss(usual) - MAX_MISS
    honest = [name for name in order if not above(name, usual) and miss(name) < limit]
    return (honest[0], "bands") if honest else (usual, "usual")


@torch.no_grad()
def _scores(data: EncodedRuns, model: KarhunenLoeveModel) -> Scores:
    """Return the scores of a model and of its candidates on the validation runs."""
    training = data.part("training")
    most = max(MIN_RUNS, MAX_VALUES // (data.kappa.shape[1] + data.u.shape[1]))
    root = unexplained_root(model.bases, training)
    named = candidates(model, root, kept_pairs(model.bases, training))
    counts = {"inputs": SCORED_RUNS, "outputs": SLOW_RUNS if model.network else SCORED_RUNS}
    itself = [one.name for one in data.inputs] == [one.name for one in data.outputs]
    if itself or model.law is not None:
        counts.pop("outputs")
    if model.law is not None:
        LOG.info("sensors of outputs: not compared, as the law has no closed form for them")
    return {
        (side, count): scores
        for side, runs in counts.items()
        for count, scores in _of_side(
            data, named, side, data.functions(data.split.validation[: min(runs, most)])
        )
    }


def _of_side(
    data: EncodedRuns, named: Mapping[str, Any], side: str, held: Functions
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield scores for each number of sensors of one side."""
    sides = [(data.fields.output, held.u.double()), (data.fields.input, held.kappa.double())]
    field, functions = sides[side == "inputs"]
    size, seed = field.domain.size, data.seed
    levels = torch.zeros(size, dtype=torch.float64)
    plan = SensorPlan(tuple(sorted({min(count, size) for count in data.plan.counts})))
    if side == "inputs":
        levels, plan, sides = data.noise_levels(), data.plan, sides[:1]
    scored = []
    for one, truth in sides:
        drawn = numpy_generator(seed, "fit", "answers", "points")
        some = some_points(one.domain.size, POINTS, drawn)
        # About the CRPS of the mean of the runs: that of several fields is then one number.
        usual = 0.56 * truth.std(0).mean().clamp_min(1e-300)
        scored.append((one.domain.points()[some], truth[:, some], usual))
    for count, places in plan.layouts(LAYOUTS, size, seed, "fit", "answers", side).items():
        generator = numpy_generator(seed, "fit", "answers", side, "noise", count)
        parts = torch.arange(held.size).tensor_split(len(places))
        shared = torch.repeat_interleave(places, torch.tensor([len(part) for part in parts]), 0)
        read = at_places(field, functions, shared, levels, generator)
        other = read.each(lambda t: t[:, :0])
        sets = (read, other) if side == "inputs" else (other, read)
        whole = {}
        for name, one in named.items():
            found = [_scores_of(one, [t[part] for t in sets], part, scored, seed)
                     for part in parts if len(part)]  # fmt: skip
            fields = torch.cat(found, 2)  # (fields, 3, S)
            whole[name] = torch.cat([fields[:, 0].mean(0)[None], fields[0, 1:]])
        yield count, whole


def _scores_of(
    model: Any, sets: list[Sensors], part: Tensor, scored: list[tuple[Tensor, Tensor, Tensor]],
    seed: int,
) -> Tensor:  # fmt: skip
    """Return relative CRPS, and shares inside bands, (fields, 3, B) of answers to some pairs."""
    try:
        joint = model.condition_both(*sets, PARTICLES)
        scores = []
        for law, (points, truth, usual) in zip((joint.output, joint.input), scored, strict=False):
            draws = torch_generator(seed, "fit", "answers", "draws")
            scores.append(
                scores_of_samples(law, law.basis(points), truth[part], DRAWS, draws, LEVELS)
            )
            scores[-1][0] /= usual
        return torch.stack(scores)
    except (ObservationError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        none = torch.tensor([[NO_ANSWER], [0], [0]]) / 1.0
        return none.expand(len(scored), 3, len(part))
