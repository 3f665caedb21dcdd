"""Ours beside each cell of the paper: see `uqsonet_study.report.scorecard.scorecard`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.scorecard import scorecard

with job(snakemake) as told:
    config = load_config(told["config"])
    scorecard(snakemake.input, config, told["code"], Path(snakemake.output[0]))
