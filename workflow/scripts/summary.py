"""Averages and intervals of experiments: see `uqsonet_study.report.summary.summarise`."""

from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.summary import summarise

with jobs(snakemake) as each:
    for told, out in zip(each, snakemake.output, strict=True):
        files = {case: [Path(path) for path in paths] for case, paths in told["files"].items()}
        found = summarise(files, load_config(told["config"]))
        write_text(Path(out), found.to_csv(index=False, float_format="%.17g"))
