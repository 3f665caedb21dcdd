"""The card of a model: what it was made from, how, how good it is, and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from uqsonet.fields.field import part_columns
from uqsonet.files import readable
from uqsonet.operator.closed_form import left_over_std

if TYPE_CHECKING:
    from uqsonet.fields.field import Field
    from uqsonet.runs.runs import Runs

Model = Any  # an `uqsonet.Emulator`. Its methods call this room, which therefore does not import it

ROUGHNESS, MAX_OUTSIDE = (0.8, 1.25), 0.05  # of samples beside runs; beyond, the card says so

ORDER = {
    name: place
    for place, name in enumerate((
        *("branch", "law", "input_modes", "output_modes", "iterations", "transforms"),
        *("method", "field", "sensors", "runs", "training", "validation", "calibration"),
        *("err_mean", "err_mean_se", "crps", "energy"),
    ))
}  # fmt: skip
"""Order of the entries of data, recipe and scores; others follow."""


def field_text(one: Field) -> str:
    """Return a field in one line: points, box, transform, range."""
    domain = one.domain
    ends = zip(domain.lower, domain.upper, strict=True)
    box = " x ".join(f"[{a:g}, {b:g}]" for a, b in ends)
    points = " x ".join(map(str, domain.shape))
    units = f" {one.units}" if one.units else ""
    seen = ""
    if one.lowest > float("-inf"):
        seen = f", values {one.lowest:.4g} to {one.highest:.4g}{units}"
    return f"{one.name}: {points} points on {box}, transform {one.transform.name}{seen}"


def card_text(emulator: Model) -> str:
    """Return fields and card as plain text; `DataError` if it holds what no card has."""
    with readable(emulator.fields.name, "the card of this model cannot be read"):
        card, lines = emulator.card, []
        if title := card.get("title"):
            lines.append(f"{'model':9}{title}")
        for side in ("inputs", "outputs"):
            lines += [f"{side[:-1]:9}{field_text(one)}" for one in getattr(emulator, side)]
        operator: Any = emulator.operator
        if hasattr(operator, "method"):
            text = f"{operator.method}, architecture {operator.config.architecture}"
            lines.append(f"{'method':9}{text}")
        levels = [
            (one.name, emulator.default_noise(k)) for k, one in enumerate(emulator.named_fields)
        ]
        noise = ", ".join(f"{level:g} of {name}" for name, level in levels if level) or "0"
        lines.append(f"{'noise':9}{noise} (standard deviation that sensors have by default)")
        for key in ("data", "recipe"):
            value = card.get(key)
            if isinstance(value, Mapping):
                left_out = "tried", "laws", "answers"
                kept = {k: v for k, v in value.items() if k not in left_out}
                value = ", ".join(f"{k} {_plain(v)}" for k, v in _ordered(kept).items())
            if value:
                lines.append(f"{key:9}{value}")
        if rows := [_ordered(row) for row in card.get("scores") or []]:
            heading = "scores on runs that it has not seen (errors in percent):"
            lines += ["", heading, *table_lines(rows)]
        if texts := card.get("limits"):
            lines += ["", "limits"]
            lines += [fill(f"- {text}", 100, subsequent_indent="  ") for text in texts]
    return "\n".join(lines)


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows, one at least, as lines of a plain table with aligned columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "-")) for name in names] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    return ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]


def _ordered(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries in the order of `ORDER`: a file has them sorted by name."""
    return dict(sorted(stored.items(), key=lambda item: ORDER.get(item[0], len(ORDER))))


def _plain(value: object) -> str:
    """Return an entry of the card as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    if isinstance(value, list):
        return "/".join(map(str, value))
    return str(value)


def _law_text(card: Mapping[str, Any]) -> str:
    """Return in words which law of its inputs a model assumes, and by how much that helps."""
    recipe = card.get("recipe", {})
    rows, law = {row["law"]: row for row in recipe.get("laws", [])}, recipe.get("law", "gaussian")
    if law == "gaussian" or law not in rows:
        compared = len(rows) > 1 and rows.get(law, {}).get("chosen")
        why = ", as no other law did better on held-out runs" if compared else ""
        return (
            f"The model takes them to be{why}: the shape of its plain bands may be wrong. "
            "Conformal bands hold what they promise."
        )
    text = f"The model takes the law '{law}'"
    if "gaussian" in rows:
        kinds = [k for k in rows[law] if k.startswith("crps_")]
        worse = [rows["gaussian"][k] / rows[law][k] - 1 for k in kinds]
        gain = 100 * sum(worse) / len(worse)
        if gain > 0:
            text += f"; the CRPS of held-out runs would be {gain:.1f} % higher with a Gaussian one"
        else:
            text += (
                f"; a Gaussian one has a CRPS that is {-gain:.1f} % lower, but "
                f"{100 * rows['gaussian']['outside']:.0f} % of its fields leave the runs' range"
            )
    return text + "."


ANSWERS = {
    "uqsonet": "the model",
    "regression": "regression on the pairs",
    "cokriging": "cokriging",
    "mean": "the law of the runs, as sensors tell nothing that could be learned",
}
"""What answers, in words."""


def _answer_texts(card: Mapping[str, Any]) -> list[str]:
    """Return in words what answers sensors of each side, how sure that is, and what is as good."""
    texts = []
    for row in card.get("recipe", {}).get("answers", []):
        best, sensors = row["best"], f"sensors of {row['read']}"
        size = f"{100 * abs(row['less']):.1f} ± {100 * row['standard_error']:.1f} %"
        sure = f"the CRPS of held-out runs is {size} {'lower' if row['less'] > 0 else 'higher'}"
        if row["why"] == "bands":
            percent = [
                ["-" if share is None else f"{100 * share:.0f}" for share in row[f"bands_{name}"]]
                for name in (best, "uqsonet")
            ]
            shares = map("/".join, percent)
            sure += ", bands of 50/90 % hold {} % instead of {}".format(*shares)
        alike = " and ".join(ANSWERS[name].partition(",")[0] for name in row["alike"])
        doubt = f" {row['runs']} runs do not tell it apart from {alike}." if alike else ""
        if best != row["taken"]:
            text = f"{sensors}: {ANSWERS[best]} would be better ({sure}); law='auto' takes it."
            texts.append(text + doubt)
        elif best != "uqsonet":
            texts.append(f"{sensors} are answered by {ANSWERS[best]}: {sure}.{doubt}")
        elif alike:
            texts.append(f"{sensors} are answered by the model.{doubt}")
    return [text[0].upper() + text[1:] for text in texts]


def sample_remarks(row: Mapping[str, Any]) -> list[str]:
    """Return in words where samples are not like the runs, from a row of scores."""
    texts, roughness, outside = [], row.get("roughness", 1.0), row.get("outside", 0.0)
    if roughness < ROUGHNESS[0] or roughness > ROUGHNESS[1]:
        texts.append(f"samples are {roughness:.2g} times as rough as the runs")
    if outside > MAX_OUTSIDE:
        texts.append(f"{outside:.0%} of the samples' values leave the range of the runs")
    return texts


def _blurred(emulator: Model) -> list[str]:
    """Return in words which outputs an operator knows less well than sensors of them read."""
    texts, left = [], left_over_std(emulator.operator)
    for number, one in enumerate(emulator.outputs):
        noise, here = emulator.noise_std.get(one.name, 0.0), part_columns(emulator.outputs, number)
        error = one.scale * float(left[here].square().mean().sqrt())
        if 0 < noise < error:
            texts.append(
                f"{one.name}: what the operator leaves over ({error:.2g}, root mean square) "
                f"exceeds the noise of its sensors ({noise:.2g}). That limits how sharp answers to "
                "them are, however many effective samples they have; more runs would help."
            )
    return texts


def limits(emulator: Model, runs: Runs, card: Mapping[str, Any]) -> list[str]:
    """Return in words what a fitted model cannot be asked."""
    description = runs.describe()
    texts = ["It answers inside the boxes of its fields, for functions like those of its runs."]
    recipe, flagged = card.get("recipe", {}), False
    for one in description.fields:
        if one.side == "input" and one.distance > one.chance:
            flagged = True
            texts.append(
                f"The coefficients of {one.name} are not Gaussian (Kolmogorov distance "
                f"{one.distance:.3f}, chance {one.chance:.3f}). {_law_text(card)}"
            )
    if recipe.get("drift"):
        texts.append(
            "New inputs may have another level and variance than the runs: readings find them. "
            "No runs are like these, so none calibrates and there are no conformal bands."
        )
    elif not flagged and recipe.get("law", "gaussian") != "gaussian":
        texts.append(_law_text(card))
    texts += _answer_texts(card) + _blurred(emulator)
    rows = {(r["method"], r["field"], r["sensors"]): r for r in card.get("scores", [])}
    for (method, field, count), row in rows.items():
        free = rows.get(("sensor_free", field, count))
        if method == "uqsonet" and free and row["crps"] > 0.98 * free["crps"]:
            texts.append(f"{count} sensors tell almost nothing about {field}.")
        remarks = sample_remarks(row) if method == "uqsonet" else []
        texts += [f"{field}, {count} sensors: {text}." for text in remarks]
    if not emulator.operator.closed:
        texts.append(
            "Sensors of outputs are answered by weighted samples: about a second of a core for "
            "each set, where sensors of inputs alone take some hundredths."
        )
    calibration = card.get("data", {}).get("calibration", 0)
    if not calibration and not recipe.get("drift"):
        texts.append("It has no calibration runs, as groups were few: bands are those of its law.")
    elif 0 < calibration < 50:
        texts.append(
            f"It has {calibration} calibration runs: conformal bands go up to a level of "
            f"{calibration / (calibration + 1):.2f} and are rough."
        )
    return texts
