"""Averages and intervals of experiments: see `uqsonet_study.report.summary.summarise`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.summary import summarise, write_csv

with jobs(snakemake) as each:
    for told, out in zip(each, snakemake.output, strict=True):
        write_csv(Path(out), summarise(told["files"], load_config(told["config"])), 17)
