"""Averages and intervals of an experiment: see `uqsonet_study.report.summary.summarise`."""

from uqsonet_study.cases import Study
from uqsonet_study.jobs import job
from uqsonet_study.loading import load_config
from uqsonet_study.report.summary import summarise, write_csv

with job(snakemake) as (files, params):
    study = Study(load_config(params.config))
    write_csv(files.out, summarise(study, snakemake.wildcards.experiment), 12)
