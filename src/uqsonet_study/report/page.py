"""The page of a run: every table and figure, provenance and differences in one HTML file.

Nothing is fetched from elsewhere: pictures are embedded, there is no script, and the page's own
security policy forbids both. No time of making stands on it: the same run gives the same bytes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.image import imread

from uqsonet.files import write_text
from uqsonet_study.config import BASELINES, Config
from uqsonet_study.report.names import OWN, method_title, problem_about
from uqsonet_study.report.paper import packaged
from uqsonet_study.report.printing import Panel, environment, html_table, text_of
from uqsonet_study.report.provenance import provenance_of

NUMBERS = ["paper", "paper_pm", "ours", "ours_pm", *BASELINES, "mc_floor"]
KINDS = ("interpretation", "difference")
HEADINGS = {"number": "#", "paper": "the paper", "here": "here", "why": "why", "key": "key"}
"""Columns of `interpretations.csv` as they are printed, in their order."""


def load_interpretations(kind: str) -> pd.DataFrame:
    """Return open choices of the paper (`interpretation`) or differences to it (`difference`).

    `interpretations.csv` is the only source of both, for the page and docs/interpretations.md. All
    is text, in the columns of `HEADINGS`; `key` names a key of the configuration or a file. Absent
    text is empty. Code stands between backticks.
    """
    table = packaged("interpretations.csv", keep_default_na=False, dtype=str)
    return table.loc[table["kind"] == kind, list(HEADINGS)]


@dataclass(frozen=True)
class Section:
    """A part of the page, such as a section of the paper or the costs."""

    title: str
    intro: str
    # as `write_table` writes them: caption and panels are HTML and stand as they are
    tables: list[dict[str, Any]] = field(default_factory=list)
    # ``name``, ``title``, ``caption`` (plain, and read out instead of the picture) and the path
    # ``png``
    figures: list[dict[str, Any]] = field(default_factory=list)


def build_page(
    config: Config,
    captions: Mapping[str, Sequence[str]],
    tables: Sequence[Path],
    figures: Sequence[Path],
    out: Path,
) -> None:
    """Write `report.html` of a run.

    Parameters
    ----------
    captions : mapping of str to (title, caption)
        Of every figure, by file name without suffix.
    tables : sequence of Path
        JSON files of `uqsonet_study.report.tables.write`.
    figures : sequence of Path
        PNG files.
    out : Path
        In the folder of results, which has the scorecard, and logs that say what each stage took.
    """
    shown = [json.loads(path.read_text(encoding="utf-8")) for path in tables]
    for table in shown:
        table["title"] = f"tab:{table['name']}. {table['title']}"
    pictures = [
        dict(zip(("title", "caption"), captions[path.stem], strict=True), name=path.stem, png=path)
        for path in figures
    ]
    scorecard = pd.read_csv(out.parent / "scorecard.csv")
    sections, provenance = _sections(config, shown, pictures), provenance_of(out.parent, config)
    write_page(sections, scorecard, provenance, out, config.scale)


def write_page(
    sections: Sequence[Section],
    scorecard: pd.DataFrame,
    provenance: dict[str, Any],
    out: Path,
    scale: str,
) -> None:
    """Write one HTML file that needs nothing else; a banner says so at smoke scale."""
    cells = scorecard_cells(scorecard)
    counts = scorecard_counts(cells)
    templates = environment().overlay()
    templates.filters |= {"slug": slug, "picture": _picture}
    text = templates.get_template("page.html.j2").render(
        sections=sections,
        counts=counts[["cells", "run", "below"]].sum().to_dict(),
        counts_html=html_table(Panel("", _printed_counts(counts))),
        cells_html=html_table(Panel("", _printed_cells(cells))),
        stages_html=html_table(Panel("", _printed_stages(provenance["stages"]))),
        provenance=provenance,
        choices={kind: load_interpretations(kind).to_dict("records") for kind in KINDS},
        headings=HEADINGS,
        smoke=scale == "smoke",
    )
    write_text(out, text)


def scorecard_cells(scorecard: pd.DataFrame) -> pd.DataFrame:
    """Return a scorecard with the ratio of our error to the paper's, NaN where nothing was run."""
    numbers = scorecard[NUMBERS].astype(float)
    ratio = numbers["ours"] / numbers["paper"]
    titles = scorecard["method"].map(method_title)
    lines = scorecard["cut_line"].fillna("").replace("", "–")
    below = ratio < 1
    return scorecard.assign(**numbers, ratio=ratio, below=below, cut_line=lines, method=titles)


def scorecard_counts(cells: pd.DataFrame) -> pd.DataFrame:
    """Count the cells of each table and method: all, those run, those below the paper."""
    return cells.groupby(["table", "method"], sort=False).agg(
        cells=("ratio", "size"),
        run=("ratio", "count"),
        below=("below", "sum"),
        ratio=("ratio", "median"),
    )


def _printed_counts(counts: pd.DataFrame) -> pd.DataFrame:
    below = counts["below"].astype(str).where(counts["run"] > 0, "")
    printed = counts.assign(below=below, ratio=counts["ratio"].map(text_of)).astype(str)
    titles = {"below": "below the paper", "ratio": "median of ours / paper"}
    return printed.rename(columns=titles).rename_axis(["table of the paper", "method"])


def _printed_cells(cells: pd.DataFrame) -> pd.DataFrame:
    known = cells["ratio"].notna()
    signs = pd.Series(["▼ " if below else "▲ " for below in cells["below"]])
    labels = {
        "table": cells["table"],
        "method": cells["method"],
        "sensors": cells["sensors"].astype(str),
        "noise": cells["noise_std"].map("{:g}".format),
        "cut line": cells["cut_line"],
        "error of": cells["metric"].replace({"err_mean": "mean of u", "err_std": "std of u"}),
    }
    numbers: dict[str, Any] = {
        name: [text_of(*pair) for pair in zip(cells[name], cells[f"{name}_pm"], strict=True)]
        for name in ("paper", "ours")
    }
    numbers["ours / paper"] = (signs + cells["ratio"].map(text_of)).where(known, "")
    others = {method_title(name): name for name in BASELINES} | {"Monte Carlo floor": "mc_floor"}
    numbers |= {title: cells[name].map(text_of) for title, name in others.items()}
    return pd.DataFrame(labels | numbers).set_index(list(labels))


def _printed_stages(stages: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """Return jobs, hours and memory of stages, the longest first, and of all together."""
    table = pd.DataFrame(stages).T.sort_index().sort_values("hours", ascending=False, kind="stable")
    table.loc["all"] = table.agg({"jobs": "sum", "hours": "sum", "peak_memory_mib": "max"})
    columns = {
        "jobs": table["jobs"].map("{:.0f}".format),
        "hours": table["hours"].map("{:.3f}".format),
        "peak memory of a job, MiB": table["peak_memory_mib"].map("{:.0f}".format),
    }
    return pd.DataFrame(columns).rename_axis("stage")


def slug(text: str) -> str:
    """Return a text as part of an address: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _picture(path: Path) -> dict[str, Any]:
    """Return a PNG file to embed."""
    height, width = imread(path, format="png").shape[:2]
    encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"uri": f"data:image/png;base64,{encoded}", "width": width, "height": height}


def _sections(
    config: Config, tables: Sequence[dict[str, Any]], figures: Sequence[dict[str, Any]]
) -> list[Section]:
    """Return the model, then a section for each problem, then what concerns several of them."""
    problem_of = {e: config.experiments[e].problem for e in config.selected}
    found = {"model": Section("The model", "")}
    for name in sorted(set(problem_of.values()), key=problem_about):
        section, called = problem_about(name)
        own = ", ".join(e for e in config.selected if problem_of[e] == name)
        title = f"Section {section}: {called}" if section[0].isdigit() else called
        title = f"Own data: {called}" if section == OWN else title
        found[name] = Section(title, f"Experiments: {own}.")
    found["all"] = Section("All problems", "")

    def home(name: str, outputs: Mapping[str, object]) -> Section:
        """Return where an output stands. Pictures of data and training are not declared."""
        output = outputs.get(name)
        if getattr(output, "across", False):
            return found["all"]
        experiments = getattr(output, "experiments", [name.rpartition("_")[0]])
        return found[next((problem_of[e] for e in experiments if e in problem_of), "model")]

    for table in tables:
        home(table["name"], config.tables).tables.append(table)
    for figure in figures:
        home(figure["name"], config.figures).figures.append(figure)
    return [section for section in found.values() if section.tables or section.figures]
