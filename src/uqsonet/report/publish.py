"""From a results folder to `published/`: what is kept in git, with how it came about."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from uqsonet.errors import DataError
from uqsonet.report.provenance import stage_costs
from uqsonet.simulation import processor
from uqsonet.storage import atomic_path, file_digest, provenance, write_text

KEPT = (
    "config.json",
    "scorecard.csv",
    "simulate/*.json",
    "tables/*",
    "figures/*",
    "summary/*.csv",
    "train/*/*/*.csv",
)
"""Files of a results folder that are published as they are."""


def publish(results: Path, folder: Path, commit: str, command: str) -> None:
    """Copy tables, scorecard, figures, logs and the first trial's weights, with provenance.

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
        If the folder holds no finished run.
    """
    if not (results / "tables" / "all.tex").is_file():
        raise DataError(f"{results}: no tables/all.tex, so no finished run to publish")
    files = [path for pattern in KEPT for path in sorted(results.glob(pattern))]
    files += sorted(results.glob("train/*/*/stack_0.safetensors"))
    for source in files:
        target = folder / source.relative_to(results)
        with atomic_path(target) as temporary:
            shutil.copyfile(source, temporary)
    record: dict[str, Any] = {
        "commit": commit,
        "command": command,
        "configuration_sha256": file_digest(results / "config.json"),
        "seed": json.loads((results / "config.json").read_text(encoding="utf-8"))["seed"],
        "processor": f"{processor()}, {os.cpu_count()} cores",
        **provenance(),
        "stages": stage_costs(results),
        "sha256": {str(f.relative_to(results)): file_digest(f) for f in files},
    }
    write_text(folder / "provenance.json", json.dumps(record, indent=2) + "\n")
