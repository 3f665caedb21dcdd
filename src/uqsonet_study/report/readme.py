"""Tables in README and docs, made from `published/`: no number of a result is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from uqsonet.errors import DataError
from uqsonet.operator.file import read_weights, shipped
from uqsonet_study.config import BASELINES
from uqsonet_study.problems import get_problem
from uqsonet_study.report.names import method_title
from uqsonet_study.report.page import HEADINGS, KINDS, load_interpretations
from uqsonet_study.report.paper import paper_cells
from uqsonet_study.report.printing import markdown, text_of
from uqsonet_study.report.tables.ablation import skill_text

INFORMED = tuple(name for name in BASELINES if name != "sensor_free")
"""Baselines that see the sensors."""

ERRORS = {"err_mean": "mean", "err_std": "std"}
TITLES = {
    "tab:1d-pde-error": "1D diffusion",
    "tab:1d-pde-addnoise-error": "1D diffusion, noise 0.1 to 1",
    "tab:2d-pde-error": "2D Poisson, noise 0 to 1",
    "tab:1d-sde-error": "1D SDE",
    "tab:2d-sde-error": "2D SDE, cut lines",
    "tab:2d-ns-error": "Navier-Stokes",
}
EXPERIMENTS = {
    "diffusion1d": "1D diffusion",
    "diffusion1d_noise": "1D diffusion, noise 0.1 to 1",
    "poisson2d": "2D Poisson",
    "poisson2d_noise": "2D Poisson, noise 0.5 and 1",
    "elliptic_sde1d": "1D SDE",
    "elliptic_sde1d_more": "1D SDE, N = 80,000",
    "elliptic_sde2d": "2D SDE, whole domain",
    "navier_stokes": "Navier-Stokes",
}

CELLS = {"paper": "paper", "precise": "ours"} | {f"precise_{name}": name for name in INFORMED}
"""Column of a scorecard -> heading."""

METHODS = {"ours": "uqsonet"} | {name: name for name in INFORMED}
METHODS["no sensors"] = "sensor_free"
"""Heading -> method of a summary."""


def overview_table(card: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each table and method of the scorecard: counts, and average errors."""
    places = ["table", "method"]
    run = card[card["precise"].notna()]
    found = run.assign(good=run["precise"] <= run["paper"]).groupby(places, sort=False)
    table = found.agg(cells=("good", "size"), good=("good", "sum"))
    averages = run.pivot_table(index=places, columns="metric", values=list(CELLS))
    for metric, name in ERRORS.items():
        for column, method in CELLS.items():
            table[f"{name}: {method}"] = averages[column, metric]
    table = table.rename(columns={"good": "at or below the paper"}).reset_index()
    return table.replace({"table": TITLES}).assign(method=table["method"].map(method_title))


def highlights_table(read: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """Return one row for each task of the page of benchmarks: the best possible, ours, the others.

    `read` returns a table of `published/`: the scorecard of the paper's cells, errors with 500
    sensors, scores of whole posteriors, and scores of data sets that people bring.
    """
    cells = read("scorecard").dropna(subset="precise")
    good = np.count_nonzero(cells["precise"] <= cells["paper"])
    of_mean = cells.query("metric == 'err_mean' and method == 'uqsonet'")
    inverse = read("benchmark/table").query("problem == 'poisson' and direction == 'inverse'")
    inverse = inverse.drop_duplicates("method").set_index("method")
    both = inverse.apply(joined, axis=1, names=["err_sample", "err_mean"])
    published = inverse["err_sample"].drop(["exact", "ours", "regression"])
    whole = read("benchmark/posterior").pivot(index="method", columns="problem", values="mean")
    whole = (100 * whole).apply(joined, axis=1, names=["poisson", "darcy"])
    people = read("own_data/people").set_index(["data", "sensors", "method"])
    crps = people["crps"].unstack()
    others = crps.drop(columns="uqsonet").min(axis=1)
    held = np.count_nonzero(crps["uqsonet"] <= others + people["crps_se"].xs("uqsonet", level=2))
    rows = (
        (
            "the paper's tables: error of the mean of u, in percent",
            "",
            f"{of_mean['precise'].mean():.1f}; {good} of {len(cells)} cells at or below",
            f"{of_mean['paper'].mean():.1f} (the paper)",
        ),
        (
            "Poisson inverse, 500 sensors: error of one sample / of the mean, in percent",
            both["exact"],
            both["ours"],
            f"{published.min():.1f} / - ({published.idxmin()}, 50,000 pairs)",
        ),
        (
            "PosteriorBench, Poisson / Darcy: error of the posterior's mean, in percent",
            whole["floor"],
            f"{whole['ours']} (4,000 / 10,000 pairs, seconds)",
            f"{whole['DDIS (published)']} (DDIS, 50,000 pairs, minutes of a GPU)",
        ),
        (
            "data that people bring: CRPS within its error of the best method",
            "",
            f"{held} of {len(crps)} rows",
            "each row's best of least squares, Gaussian process, cokriging, mean",
        ),
    )
    return pd.DataFrame(rows, columns=pd.Index(["task", "best possible", "ours", "others"]))


PEOPLE = {
    "uqsonet": "uqsonet",
    "least_squares": "least squares",
    "gaussian_process": "Gaussian process",
    "cokriging": "cokriging",
    "mean": "mean of the runs",
}
"""Names of the methods that own data is compared with."""

BANDS = ["plain_50", "plain_90", "conformal_50", "conformal_90"]


def people_table(people: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each data set and number of sensors: CRPS of all methods, bands of ours."""
    row = ["data", "sensors", "runs"]
    ours = people[people["method"] == "uqsonet"].set_index(row)
    wide = people.set_index([*row, "method"])["crps"].unstack().loc[ours.index, list(PEOPLE)]
    scores = {f"CRPS: {PEOPLE[name]}": wide[name] for name in wide}
    scores = {"± of CRPS": ours["crps_se"], **scores}
    printed = {name: [f"{x:.3g}" for x in column] for name, column in scores.items()}
    bands = {name.replace("_", " "): 100 * ours[name].to_numpy() for name in BANDS}
    return pd.DataFrame({**printed, **bands}, index=ours.index).reset_index()


def errors(
    summary: pd.DataFrame, evaluation: str = "precise", rows: Sequence[str] = ("sensors",)
) -> dict[str, pd.DataFrame]:
    """Return method -> averages in percent: a row for each sensor count, a column a metric."""
    chosen = summary[summary["evaluation"] == evaluation]
    index = [*rows, "method"]
    wide = 100 * chosen.pivot_table(index=index, columns="metric", values="value", sort=False)
    return {str(name): part.droplevel("method") for name, part in wide.groupby(level="method")}


def joined(row: Mapping[str, Any] | pd.Series, names: Sequence[str]) -> str:
    """Return some numbers of a row as one text."""
    return " / ".join(f"{row[name]:.1f}" for name in names) if len(row) else "-"


def named(table: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """Return columns of a table under their titles."""
    return pd.DataFrame({title: table[column] for column, title in titles.items()})


def beside(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return errors of the mean, then of the std, of several tables beside each other."""
    columns = {f"{e}: {name}": t[m] for m, e in ERRORS.items() for name, t in tables.items()}
    return pd.DataFrame(columns).reset_index()


def first_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1 of the paper beside ours, from the summary of `diffusion1d`."""
    cells = paper_cells().query("table == 'tab:1d-pde-error' and method == 'uqsonet'")
    paper = {"paper": cells.pivot_table(index="sensors", columns="metric", values="paper")}
    paper["ours, 10 sets"] = errors(summary, "paper")["uqsonet"]
    ours = {title: errors(summary)[name] for title, name in METHODS.items()}
    paper["ours, 200 sets"] = ours.pop("ours")
    return beside(paper | ours)


def worst_table(summaries: Path) -> pd.DataFrame:
    """Return largest errors and smallest skills of UQ-SONet in each experiment, in percent."""
    rows = []
    for experiment, title in EXPERIMENTS.items():
        averages = errors(pd.read_csv(summaries / f"{experiment}.csv"), rows=["case", "sensors"])
        row: dict[str, Any] = {"experiment": title}
        for metric, name in ERRORS.items():
            for heading in ("ours", *INFORMED):
                row[f"{name}: {heading}"] = averages[METHODS[heading]][metric].max()
            row[f"{name}: skill"] = averages["uqsonet"][f"skill_{name}"].min()
        rows.append(row)
    return pd.DataFrame(rows)


SHARE = {
    "err_mean": "mean: error",
    "skill_mean": "mean: skill",
    "err_std": "std: error",
    "skill_std": "std: skill",
    "coverage_90": "90 % band holds",
}
"""Metric -> heading, of what the paper's own recipe reached in Table 1."""


def data_table(records: Path) -> pd.DataFrame:
    """Return size and cost of each data set, from the records of their generation."""
    rows = []
    for path in records.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        row = {"problem": f"`{path.stem}`", "section": get_problem(path.stem).section}
        row |= {"N": record["config"]["training"], "file, MB": record["file"]["bytes"] / 1e6}
        row["pairs a second"] = round(record["functions_per_second"])
        rows.append(row | {"seconds": sum(record["seconds"].values())})
    return pd.DataFrame(rows).sort_values("section")


def reference_table(folder: Path) -> pd.DataFrame:
    """Return samples and own error of the `precise` references of each problem."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    printed = paper_cells().pivot_table(
        index="problem", columns="metric", values="paper", aggfunc="min"
    )
    rows = []
    for name in config["problems"]:
        found = errors(pd.read_csv(folder / f"summary/{name}.csv"))["reference"]
        chosen = config["experiments"][name]["reference_samples"]
        samples = chosen.get("precise", config["evaluations"]["precise"]["reference_samples"])
        exact = not found["err_mean"].to_numpy().any()
        row = {"problem": f"`{name}`", "samples": "closed form" if exact else samples}
        for metric, error in ERRORS.items():
            row |= {f"{error}: own error": f"{found[metric].max():.2f}"}
            row |= {f"{error}: smallest of the paper": f"{printed.loc[name, metric]:.2f}"}
        rows.append(row)
    return pd.DataFrame(rows)


def baseline_table(folder: Path) -> pd.DataFrame:
    """Return the errors of predictors without networks, for every third sensor count."""
    tables = []
    for path in sorted(folder.glob("data/*.json")):
        averages = errors(pd.read_csv(folder / f"summary/{path.stem}.csv"))
        columns = {
            f"{title}: {error}": averages[METHODS[title]][metric].iloc[::3]
            for title in ("no sensors", *INFORMED)
            for metric, error in ERRORS.items()
        }
        tables.append(pd.DataFrame(columns).reset_index())
        tables[-1].insert(0, "problem", f"`{path.stem}`")
    return pd.concat(tables)


def stage_table(benchmarks: pd.DataFrame) -> pd.DataFrame:
    """Return what the stages of the default run take, those of half a minute or more."""
    pattern = r"default run, (?:estimated, )?(?P<stage>\w+): (?P<jobs>\d+) jobs"
    table = benchmarks["name"].str.extract(pattern).assign(minutes=benchmarks["value"]).dropna()
    table = table.astype({"jobs": int, "minutes": float})
    table = table[table["minutes"] >= 0.5].sort_values("minutes", ascending=False)
    return table.rename(columns={"minutes": "core-minutes"})


def peer_table(benchmarks: pd.DataFrame) -> pd.DataFrame:
    """Return all that was timed beside a peer, training apart."""
    rows = benchmarks.dropna(subset="ratio")
    rows = rows[rows["unit"].str.startswith("s/") & ~rows["name"].str.startswith("training")]
    times = {
        name: [f"{float(f'{1000 * float(seconds):.3g}'):,g}" for seconds in rows[name]]
        for name in ("value", "peer_value")
    }
    table = {"what": rows["name"], "ours, ms": times["value"], "peer": rows["peer"]}
    return pd.DataFrame(table | {"peer, ms": times["peer_value"], "peer / ours": rows["ratio"]})


def ablation_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return validation skills with their ± over trials, from the CSV of a table of ablations."""
    found = _named(table).assign(cell=[skill_text(record) for record in table.itertuples()])
    names = {metric: _skill_title(metric) for metric in dict.fromkeys(table["metric"])}
    wide = found.pivot_table(
        index=["problem", "recipe"], columns="metric", values="cell", aggfunc="first", sort=False
    )
    wide = wide.reindex(columns=list(names)).fillna("--").rename(columns=names)
    return wide.reset_index()


def _skill_title(metric: str) -> str:
    """Return the heading of a column of an ablation."""
    skill, _, count = metric.removeprefix("skill_").partition("_")
    if not metric.startswith("skill_"):
        return metric.replace("_", " ")
    named = {"": "average skill", "worst": "worst m"}
    return f"{skill}: {named.get(count, f'm = {count}')}"


def learned_table(card: pd.DataFrame, ours: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each case of a scorecard: the paper, the learned embedding, and ours."""
    found = card[card["precise"].notna()]
    keys = ["table", "method", "sensors", "noise_std", "metric"]
    found = found.merge(ours[[*keys, "precise"]], on=keys, suffixes=("", "_ours"))
    places, values = ["table", "noise_std", "sensors"], ["paper", "precise", "precise_ours"]
    rows = found.pivot_table(index=places, columns="metric", values=values)
    order = {table: number for number, table in enumerate(TITLES)}
    rows = rows.sort_index(key=lambda level: level.map(lambda value: order.get(value, value)))
    names = {"paper": "paper", "precise": "learned", "precise_ours": "tuned"}
    table = beside({name: pd.DataFrame(rows[column]) for column, name in names.items()})
    return table.replace({"table": TITLES}).rename(columns={"noise_std": "noise"})


SHARES = {
    "share_encoder": "z of the encoder",
    "share_wrong_h": "the same z, another h",
    "share_features": "read off h",
    "share_cokriging": "cokriging",
    "share_prior": "prediction",
    "effect_h": "by h",
    "effect_z": "by z",
    "effect_both": "by both",
}


def mechanism_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what z and h tell of u, in percent of its variance, from `benchmarks.mechanism`."""
    found = rows[["recipe", "sensors"]].join(100 * named(rows, SHARES))
    nats = zip(rows["nats_features"], rows["nats_cokriging"], strict=True)
    found["nats in h (cokriging)"] = [f"{own:.1f} ({best:.1f})" for own, best in nats]
    more = {"active_units": "active units", "kl": "KL, nats", "attended": "sensors attended"}
    return found.join(named(rows, more))


def part_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return errors and gains in percent, averaged over m, from the CSV of the table `parts`."""
    learned = table.loc[~table["method"].isin(BASELINES)]
    groups = _named(learned).groupby(["problem", "recipe", "metric"])["value"]
    found = groups.agg(["mean", "max"]).unstack("metric")
    columns = {
        f"{error}: {name}": found[how, metric]
        for metric, error in ERRORS.items()
        for name, how in (("average", "mean"), ("worst m", "max"))
    }
    columns["CRPS gain: average"] = found["mean", "gain_crps"]
    return pd.DataFrame(columns).reset_index()


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with problem and recipe, which name an experiment of an ablation."""
    names = zip(table["experiment"], table["recipe"], strict=True)
    problems = [str(name).removesuffix(f"_{recipe}") for name, recipe in names]
    return table.assign(problem=problems, recipe=table["recipe"].str.replace("_", " "))


def operator_table() -> pd.DataFrame:
    """Return what comes with the library: fields, sizes, and differences to the full files."""
    rows = []
    for name, path in shipped().items():
        _, meta = read_weights(path)
        fields, card = meta["fields"], meta["card"]
        grid, (low, high) = fields["input"]["grid"], card["typical_input"]
        ends = zip(grid["lower"], grid["upper"], strict=True)
        row: dict[str, Any] = {
            "name": f"`{name}`",
            "operator": f"{fields['input']['symbol']} -> {fields['output']['symbol']}",
            "domain": " x ".join(f"[{a:g}, {b:g}]" for a, b in ends),
            "90 % of all inputs": f"{low:g} to {high:g}",
            "KB": round(path.stat().st_size / 1000),
        }
        for what in ("mean", "std", "sample"):
            found = [card["difference"][kind][what] for kind in ("random", "clustered")]
            middle, most = (max(f[how] for f in found) for how in ("median", "largest"))
            row[f"{what}: median, largest"] = f"{middle:.1g}, {most:.1g}"
        rows.append(row)
    return pd.DataFrame(rows)


def own_data_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return scores of `uqsonet validate`: error and coverage in percent."""
    rows = pd.DataFrame({"sensors": found["sensors"], "method": found["method"]})
    errors = zip(found["err_mean"], found["err_mean_se"], strict=True)
    rows["error, %"] = [text_of(*pair, digits=1) for pair in errors]
    rows["CRPS"] = [f"{value:.4f}" for value in found["crps"]]
    for kind in ("plain", "conformal", "whole"):
        for level in (50, 80, 90):
            rows[f"{kind} {level}"] = [f"{100 * share:.0f}" for share in found[f"{kind}_{level}"]]
    return rows


SHORT = ("mean", "std", "w1")
PARTS = ("err_mean", "err_std", "w1")
LAWS = (*INFORMED, "gaussian", "mixture", "analogue", "auto", "exact")


def law_tables(scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return errors of all laws beside the floor, and medians, CRPS and coverage of `auto`."""
    errors, details = [], []
    for _, group in scores.groupby(["problem", "sensors"], sort=False):
        laws = group.set_index("law").to_dict("index")
        auto = laws["auto"]
        case = {"problem": f"`{auto['problem']}`", "m": auto["sensors"]}
        cells = {law: joined(laws.get(law, {}), PARTS) for law in LAWS}
        errors.append(case | cells | {"floor": joined(auto, [f"floor_{p}" for p in SHORT])})
        row = case | {"medians": joined(auto, [f"median_{p}" for p in SHORT])}
        for law in (*BASELINES, "gaussian", "auto"):
            row[f"CRPS: {law}"] = f"{laws[law]['crps']:.4g}" if law in laws else "-"
        for law in ("gaussian", "auto"):
            row[f"bands: {law}"] = joined(laws[law], [f"cover_{p}" for p in (50, 90, 95)])
        details.append(row)
    return {"laws": pd.DataFrame(errors), "law-details": pd.DataFrame(details)}


def flow_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return errors of the flow that was left out, beside other laws (`benchmarks/flow_law.py`)."""
    rows = []
    for m, group in scores.groupby("sensors"):
        laws = group.set_index("law").to_dict("index")
        rows.append({"m": m} | {str(law): joined(laws[law], PARTS) for law in laws})
    return pd.DataFrame(rows)


def whole_laws(
    summary: pd.DataFrame, methods: Mapping[str, str], parts: Sequence[str]
) -> pd.DataFrame:
    """Return errors of methods, by title, and what the bands of ours hold; a row a case and m."""
    means = errors(summary, rows=["case", "sensors"])
    bands = [f"within_{level}" for level in (50, 90, 95)]
    table = {
        title: means[method].apply(joined, axis=1, names=parts) for title, method in methods.items()
    }
    table["bands"] = means["uqsonet"].apply(joined, axis=1, names=bands)
    return pd.DataFrame(table).rename_axis(["case", "m"]).reset_index()


def either_side_table(folder: Path) -> pd.DataFrame:
    """Return errors of mean and std given sensors of both sides, and what bands hold of the law."""
    methods = {"ours": "uqsonet", "chains' own": "reference"} | METHODS
    tables = []
    for name, field in {"either_side": "u", "either_side_input": "log k"}.items():
        summary = pd.read_csv(folder / f"{name}.csv")
        table = whole_laws(summary, methods, [*ERRORS])
        noise = table["case"].str.rpartition("-out")[2].astype(float)
        table["case"] = (100 * noise).map("{:g} %".format)
        table.insert(0, "field", field)
        size = errors(summary, rows=["case", "sensors"])["uqsonet"]["effective_size"] / 100
        tables.append(table.assign(**{"effective size": size.round().astype(int).to_numpy()}))
    return pd.concat(tables).rename(columns={"case": "noise of u", "bands": "bands: ours"})


def learned_law_table(summaries: Path) -> pd.DataFrame:
    """Return errors of the learned set embedding on inputs that are not Gaussian."""
    methods = {"learned": "uqsonet", "regression": "regression", "no sensors": "sensor_free"}
    methods["floor"] = "reference"
    summary = pd.concat(map(pd.read_csv, sorted(summaries.glob("*_learned.csv"))))
    table = whole_laws(summary, methods, PARTS).rename(columns={"case": "problem"})
    return table.assign(problem="`" + table["problem"].str.removesuffix("_learned") + "`")


def published_tables(folder: Path) -> dict[str, dict[str, str]]:
    """Return document -> marker -> table for all that is made by the program."""

    def read(name: str) -> pd.DataFrame:
        return pd.read_csv(folder / f"{name}.csv")

    laws = law_tables(read("any_law/scores"))
    benchmarks, card = read("benchmarks"), read("scorecard")
    found = {
        "README.md": {"highlights": highlights_table(read)},
        "docs/benchmarks.md": {
            "overview": overview_table(card),
            "people": people_table(read("own_data/people")),
        },
        "docs/inverse.md": {"either-side": either_side_table(folder / "either_side")},
        "docs/api.md": {"operators": operator_table()},
        "docs/own-data.md": {
            "scores": own_data_table(read("own_data/scores")),
            "finer": own_data_table(read("own_data/scores_32")),
        },
        "docs/data.md": {
            "data": data_table(folder / "data"),
            "baselines": baseline_table(folder),
            "references": reference_table(folder),
        },
        "docs/model.md": {
            "ablation": ablation_table(read("tables/ablation")),
            "parts": part_table(read("tables/parts")),
            **laws,
            "flow": flow_table(read("any_law/flow")),
            "learned": learned_table(read("attention/scorecard"), card),
            "learned-laws": learned_law_table(folder / "attention_laws/summary"),
            "steps": ablation_table(read("readings/tables/attention-steps")),
        },
        "docs/performance.md": {
            "stages": stage_table(benchmarks),
            "peers": peer_table(benchmarks),
        },
        "docs/reproduction.md": {
            "results": first_table(read("summary/diffusion1d")),
            "worst": worst_table(folder / "summary"),
            "share": named(
                errors(read("paper_share/summary/diffusion1d"))["uqsonet"], SHARE
            ).reset_index(),
            "readings": ablation_table(read("readings/tables/readings")),
            "mechanism": mechanism_table(read("readings/mechanism")),
        },
        "docs/interpretations.md": {
            f"{kind}s": load_interpretations(kind).rename(columns=HEADINGS) for kind in KINDS
        },
    }
    printed = {
        document: {name: markdown(table) for name, table in tables.items()}
        for document, tables in found.items()
    }
    return printed


def replaced(text: str, blocks: dict[str, str], document: str) -> str:
    """Return a text with its blocks between ``<!-- name -->`` and ``<!-- /name -->`` replaced.

    Raises
    ------
    DataError
        If markers are missing; `document` says where.
    """
    for name, content in blocks.items():
        first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, start, rest = text.partition(first)
        _, end, after = rest.partition(last)
        if not start or not end:
            raise DataError(f"{document}: markers {first} and {last} are missing")
        text = f"{before}{first}\n{content}\n{last}{after}"
    return text
