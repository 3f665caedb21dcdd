"""From a results folder to `published/`: what is kept in git, with how it came about.

Kept are numbers, tables, logs and the pictures that a page shows. Of weights there is the digest:
the command that made them makes them again, to the rounding of the processor.

A run may hold some of the experiments only (`select`). What it lacks stays as an earlier one left
it: files of other experiments, rows of other problems in `scores.csv`, and tables that show an
experiment that was not selected. Every filled row of the scorecard names the run that it is from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.errors import DataError
from uqsonet.files import atomic_path, file_digest, provenance, write_text
from uqsonet.operator.devices import processor
from uqsonet_study.config import Config, load_config
from uqsonet_study.pipeline import Paths
from uqsonet_study.report.provenance import stage_costs

KEPT = (
    "config.json",
    "scores.csv",
    "data/*.json",
    "tables/*.csv",
    "tables/*.tex",
    "summary/*.csv",
)
"""Files of a results folder that are published as they are, besides logs and pictures."""

WHOLE = ("all.csv", "all.tex")  # all tables once more, in one file
PAGES = ("README.md", "docs/*.md")


def publish(results: Path, folder: Path, commit: str, command: str) -> None:
    """Copy tables, logs and the pictures that a page shows; merge scorecard and provenance.

    The pages are those of the working folder.

    Parameters
    ----------
    results : Path
        A finished results folder.
    folder : Path
        Where to put them.
    commit : str
        Version of the sources that made the results.
    command : str
        The command that made them.

    Raises
    ------
    DataError
        If the folder holds no finished run, or what was published before cannot be read.
    """
    if not (results / "tables" / "all.tex").is_file():
        raise DataError(f"{results}: no tables/all.tex, so no finished run to publish")
    try:
        text = (results / "config.json").read_text(encoding="utf-8")
        config = load_config(json.loads(text), str(results / "config.json"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{results / 'config.json'}: not the configuration of a run ({error})"
        ) from None
    configuration = file_digest(results / "config.json")
    run = f"{commit[:10]}-{configuration[:6]}"
    card = _merged(results / "scorecard.csv", folder / "scorecard.csv", run)
    files = [path for pattern in KEPT for path in sorted(results.glob(pattern))]
    selected = set(config.selected)
    whole = {
        name for name, table in config.tables.items() if selected.issuperset(table.experiments)
    }
    files = [
        path
        for path in files
        if path.name not in WHOLE
        and (path.parent.name != "tables" or path.stem in whole or path.stem not in config.tables)
    ]
    pictures = shown(Path())
    for path in sorted(results.glob("figures/*.png")):
        if (folder / path.relative_to(results)).resolve() in pictures:
            files.append(path)
    # A folder of results may hold trainings that this run did not ask for, finished or not.
    files += _made(results, config, "csv") + _made(results, config, "csv", laws=True)
    for source in files:
        target = folder / source.relative_to(results)
        if source.name == "scores.csv" and target.is_file():
            write_text(target, _with_other_problems(source, target))
            continue
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)
    write_text(folder / "scorecard.csv", card.to_csv(index=False, lineterminator="\n"))
    record: dict[str, Any] = {
        "commit": commit,
        "command": command,
        "configuration_sha256": configuration,
        "seed": config.seed,
        "processor": f"{processor()}, {os.cpu_count()} cores",
        **provenance(),
        "stages": stage_costs(results, config),
        "sha256": _digests(folder, [folder / path.relative_to(results) for path in files]),
        "weights_sha256": _digests(results, _made(results, config, "safetensors")),
    }
    for earlier in _earlier(folder / "provenance.json").values():
        if earlier["command"] == command:  # which this run replaces
            for name in set(earlier["sha256"]) - set(record["sha256"]):
                (folder / name).unlink(missing_ok=True)
    runs = _remaining(folder, set(card["run"].dropna()), record) | {run: record}
    write_text(folder / "provenance.json", json.dumps({"runs": runs}, indent=2) + "\n")


def _with_other_problems(new: Path, old: Path) -> str:
    """Return scores as CSV: old rows of problems that the new ones lack, then the new rows."""
    scores, earlier = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (new, old))
    if "problem" not in scores or list(scores) != list(earlier):
        return new.read_text(encoding="utf-8")
    kept = earlier[~earlier["problem"].isin(scores["problem"])]
    return pd.concat([kept, scores]).to_csv(index=False, lineterminator="\n")


def shown(root: Path) -> set[Path]:
    """Return the pictures that README and docs of a project show."""
    found = set[Path]()
    for page in (page for pattern in PAGES for page in root.glob(pattern)):
        links = re.findall(r"\]\(([^)\s]+\.png)\)", page.read_text(encoding="utf-8"))
        found |= {(page.parent / link).resolve() for link in links}
    return found


def _digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files, by their names within a folder."""
    return {str(file.relative_to(folder)): file_digest(file) for file in files}


def _made(results: Path, config: Config, suffix: str, *, laws: bool = False) -> list[Path]:
    """Return the logs (`csv`) or weights (`safetensors`) that a folder has of selected cases.

    Those of trainings, or of laws.
    """
    files = Paths(config).laws if laws else Paths(config).trained
    cases = config.cases_of(config.selected)
    found = {Path(f) for case in cases for m in case.methods for f in files(case, m, suffix)}
    there = (results / path.relative_to(config.results) for path in found)
    return sorted(path for path in there if path.is_file())


def _merged(new: Path, old: Path, run: str) -> pd.DataFrame:
    """Return the new scorecard, with the rows of the old one where it is empty."""
    try:
        card = pd.read_csv(new, dtype=str)
        filled = card["run"].notna()
        merges = old.is_file() and not bool(filled.all())
        earlier = pd.read_csv(old, dtype=str) if merges else card
        # One of an earlier version may lack a baseline, but no cell.
        if not set(earlier.columns) <= set(card.columns) or len(earlier) != len(card):
            raise ValueError("columns or rows are not those of this version")
    except (OSError, ValueError) as error:
        raise DataError(f"{old}: cannot be merged with {new} ({error})") from None
    card.loc[filled, "run"] = run
    return card.where(filled, earlier.reindex(columns=card.columns))


def _remaining(folder: Path, scored: set[str], new: dict[str, Any]) -> dict[str, Any]:
    """Return earlier runs that a row of the scorecard or a file still comes from.

    Of their files, those are named that are there as they left them; of their weights, those that
    the new run did not train.
    """
    found = {}
    for name, run in _earlier(folder / "provenance.json").items():
        files = {
            file: digest
            for file, digest in run["sha256"].items()
            if file not in new["sha256"]
            and (folder / file).is_file()
            and file_digest(folder / file) == digest
        }
        if files or name in scored:
            weights = {
                file: digest
                for file, digest in run["weights_sha256"].items()
                if file not in new["weights_sha256"]
            }
            found[name] = run | {"sha256": files, "weights_sha256": weights}
    return found


def _earlier(path: Path) -> dict[str, Any]:
    """Return the runs published before, by name."""
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the provenance of published runs ({error!r})") from None
