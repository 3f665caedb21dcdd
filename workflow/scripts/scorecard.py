"""Ours beside each cell of the paper: see `uqsonet_study.report.scorecard.scorecard`."""

from uqsonet_study.cases import Study
from uqsonet_study.jobs import job
from uqsonet_study.loading import load_config
from uqsonet_study.report.scorecard import scorecard

with job(snakemake) as (files, params):
    scorecard(Study(load_config(params.config)), params.code, files.out)
