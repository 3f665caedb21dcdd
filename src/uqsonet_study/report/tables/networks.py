"""Tables of networks: the paper's kind, Karhunen-Loeve, training; tab:NN beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from uqsonet.networks.config import AttentionNetwork
from uqsonet_study.cases import Row, Study
from uqsonet_study.report.names import method_title, problem_title
from uqsonet_study.report.paper import paper_networks
from uqsonet_study.report.printing import Panel, Table, integer, to_words
from uqsonet_study.report.tables.captions import distinct, quoted_recipes
from uqsonet_study.report.tables.records import about, shown_cases

DETERMINISTIC = ("vidon",)  # methods without a latent variable: they have no encoder and no d_z
ATTENTION = {
    "location_embedding": r"$\Lambda_x$",
    "value_embedding": r"$\Lambda_\kappa$",
    "score": "$w_{l}$",
    "projection": "$v_{l}$",
    "branch": "$B$",
    "trunk": "$T$",
    "encoder": r"$\mathcal{E}$",
    "latent_dim": "$d_z$",
    "embedding_dim": r"$d_\mathrm{emb}$",
    "truncation": "$p$",
    "heads": "$H$",
    "head_width": "$q$",
    "activation": "activation",
    "noise_variance": r"$\sigma_u^2$",
    "learning_rate": "$lr$",
}
KRIGING = {
    "input_modes": r"modes of $\kappa$ ($d_z$)",
    "output_modes": "modes of $u$ ($p$)",
    "branch": "branch",
    "activation": "activation",
}
TRAINING = {
    "iterations": "iterations",
    "batch_size": "batch",
    "learning_rate": "learning rate",
    "schedule": "schedule",
    "weight_decay": "weight decay",
    "protocol": "sensors per batch",
    "training": "$N$",
}
PROTOCOLS = {
    "fixed_batches": "one $m$, fixed layouts",
    "batch_shared": "one $m$, one layout",
    "redraw": "drawn for each pair",
}


def networks_table(name: str, study: Study) -> tuple[Table, pd.DataFrame]:
    """Return a table of the networks used and its settings in long form, as text."""
    cases = shown_cases(study, name)
    ours = [
        {"problem": case.problem, "method": method, "case": case.name}
        | settings_of(study, case, method)
        for case in cases
        for method in case.methods
    ]
    table = paper_networks().assign(method="paper", case="").set_index("problem", drop=False)
    known = table.to_dict("index")
    papers = [known[p] for p in distinct(case.problem for case in cases) if p in known]
    attention = [row for row in ours if row["kind"] == "attention"]
    kriging = [row for row in ours if row["kind"] == "kriging"]
    panels, records = [], list[dict[str, str]]()
    for title, headings, theirs, rows in (
        ("Networks of the paper's kind", ATTENTION, papers, attention),
        ("Karhunen-Loeve networks (not in the paper)", KRIGING, [], kriging),
        ("Training", TRAINING, papers, ours),
    ):
        if theirs or rows:
            panels.append(_panel(f"{title}.", headings, [*theirs, *rows]))
            records += _records(name, study, headings, rows, theirs)
    caption = (
        "Rows “paper”: what the paper prints, the same for VIDON and UQ-SONet; all others: what "
        f"this run used (recipe {quoted_recipes(cases)}). 2 × 40 are two hidden layers of "
        "40 neurons. Problems with equal settings share a row."
    )
    return Table(name, "Networks and training.", caption, tuple(panels)), pd.DataFrame(records)


def settings_of(study: Study, case: Row, method: str) -> dict[str, str]:
    """Return the settings of a method as they are printed, and of which `kind` its network is."""
    found = study.settings(case, method)
    kind = "attention" if isinstance(found.network, AttentionNetwork) else "kriging"
    values = found.network.model_dump()
    values |= found.training.model_dump() | {"training": case.N}
    values |= dict.fromkeys(("score", "projection"), values.get("attention"))
    without = [] if found.network.per_sensors else ["protocol"]
    if study.trained(case, method) in DETERMINISTIC:
        without += ["encoder", "latent_dim"]
    keys = (ATTENTION if kind == "attention" else KRIGING) | TRAINING
    return {"kind": kind} | {
        k: printed(values[k]) for k in keys if k in values and k not in without
    }


def printed(value: object) -> str:
    """Return a setting as it is printed: sizes of layers, a whole or a small number, a name.

    Hidden layers are ``2 x 40``, of unequal width ``64, 32``.
    """
    if isinstance(value, list):
        alike = len(set(value)) == 1
        return f"{len(value)} × {value[0]}" if alike else ", ".join(map(str, value))
    if isinstance(value, int):
        return integer(value)
    return power(value) if isinstance(value, float) else PROTOCOLS.get(str(value), str(value))


def power(number: float) -> str:
    """Return a small number as a multiple of a power of ten; zero and 0.01 to 999 as they are."""
    if number == 0 or 0.01 <= abs(number) < 1000:
        return f"{number:g}"
    factor, exponent = f"{number:e}".split("e")
    mantissa = f"{float(factor):g}"
    head = "" if mantissa == "1" else rf"{mantissa}\cdot "
    return f"${head}10^{{{int(exponent)}}}$"


def _panel(title: str, headings: Mapping[str, str], every: list[dict[str, str]]) -> Panel:
    """Return the settings of all rows; problems with equal settings of a method share one."""
    rows = pd.DataFrame(every).fillna("")
    settings = [key for key in headings if key in rows and any(rows[key])]
    kinds = rows.groupby(["problem", "method"])["case"].transform("size")
    alike = rows.groupby(["problem", "method", *settings])["case"].transform("size")
    # A case is named where its problem has other settings for the method.
    named = rows["problem"].map(problem_title)
    named = named.where(kinds == alike, named + " (" + rows["case"] + ")")
    shared = rows.assign(named=named).groupby(["method", *settings], sort=False)
    shared = shared["named"].agg(_joined).reset_index()
    shared["method"] = shared["method"].map(method_title)
    cells = shared.rename(columns={**headings, "named": "problem"})
    return Panel(title, cells.set_index(["problem", "method"]), words=True)


def _joined(titles: Sequence[str]) -> str:
    """Return ``2D PDE/SDE`` for ``2D PDE`` and ``2D SDE``."""
    found: dict[str, list[str]] = {}
    for title in titles:
        first, _, rest = title.partition(" ")
        found.setdefault(first, []).append(rest)
    names = (f"{first} {'/'.join(distinct(rest))}" for first, rest in found.items())
    return ", ".join(name.rstrip() for name in names)


def _records(
    name: str,
    study: Study,
    headings: Mapping[str, str],
    ours: list[dict[str, str]],
    papers: list[dict[str, str]],
) -> list[dict[str, str]]:
    """Return one row per setting of ours, the paper's beside it."""
    beside = {row["problem"]: row for row in papers}
    found = []
    for row in ours:
        where = about(name, study, study.cases.loc[row["case"]]) | {"method": row["method"]}
        del where["noise_std"], where["training"]
        for key in (key for key in headings if key in row):
            record = where | {"metric": key, "setting": to_words(row[key])}
            paper = beside.get(row["problem"], {}).get(key)
            found.append(record | ({"paper_setting": to_words(paper)} if paper else {}))
    return found
