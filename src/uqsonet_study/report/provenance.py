"""What made a results folder: configuration, seed, versions, machine, and what each stage took."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd

from uqsonet.files import file_digest, provenance
from uqsonet.operator.devices import processor
from uqsonet_study.config import Config
from uqsonet_study.pipeline import Plan

FINISHED = re.compile(r"(\w+) done in ([\d.]+) s,(?: processor ([\d.]+) s,)? peak memory (\d+) MiB")
"""Older logs have no time of the processor."""

PAGE_RULE = "page"
"""The rule that makes the page of a run. Its log comes after the page, so a page that is made again
would differ from the first one if it were counted."""


def stage_costs(results: Path, config: Config) -> dict[str, dict[str, float]]:
    """Return jobs, hours, hours of the processor and peak memory of each stage, from the logs.

    A job that ran twice has two such lines in its log. The last one is of the run that counts. Logs
    of files that the configuration does not need do not count.
    """
    logs = sorted((results / "logs").rglob("*.log"))
    listed = {_job(Path(file).relative_to(config.results)) for file in Plan(config).files()}
    folders = {job.parts[0] for job in listed}
    of = {log: _job(log.relative_to(results / "logs")) for log in logs}
    logs = [log for log, job in of.items() if job.parts[0] not in folders or job in listed]
    lines = [FINISHED.findall(log.read_text(encoding="utf-8"))[-1:] for log in logs]
    rows = [
        (rule, float(wall) / 3600, float(processor or wall) / 3600, int(memory))
        for found in lines
        for rule, wall, processor, memory in found
    ]
    table = pd.DataFrame(rows, columns=pd.Index(["rule", "wall", "processor", "memory"]))
    costs = table.groupby("rule", sort=False).agg(
        jobs=("rule", "size"),
        hours=("wall", "sum"),
        processor_hours=("processor", "sum"),
        peak_memory_mib=("memory", "max"),
    )
    return costs.round({"hours": 5, "processor_hours": 5}).to_dict("index")


def _job(path: Path) -> Path:
    """Return what a file or log belongs to: trials of one model are one."""
    return path.parent if path.name.startswith("trial") else path.with_suffix("")


def provenance_of(results: Path, config: Config) -> dict[str, Any]:
    """Return what a reader needs to know where the numbers of a run come from.

    Read from the folder's `config.json` and logs; `stages` are jobs, hours and peak memory in MiB.
    """
    used = {name: config.recipe_of(name) for name in config.experiments}
    others = [f"{name}: {recipe}" for name, recipe in used.items() if recipe != config.recipe]
    return {
        "configuration_sha256": file_digest(results / "config.json"),
        "seed": config.seed,
        "recipe": config.recipe + (f" ({', '.join(others)})" if others else ""),
        "processor": processor(),
        "cores": os.cpu_count(),
        **provenance(),
        "stages": {
            rule: c for rule, c in stage_costs(results, config).items() if rule != PAGE_RULE
        },
    }
