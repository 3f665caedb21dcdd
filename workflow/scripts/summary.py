"""Averages and intervals of an experiment: see `uqsonet_study.report.summary.summarise`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet.storage.files import write_text
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.summary import summarise

with job(snakemake) as spec:
    files = {case: [Path(path) for path in paths] for case, paths in spec["files"].items()}
    summary = summarise(files, load_config(spec["config"]))
    write_text(Path(snakemake.output[0]), summary.to_csv(index=False, float_format="%.17g"))
