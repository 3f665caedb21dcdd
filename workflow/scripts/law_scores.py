"""Scores of laws of the input: see `uqsonet_study.beyond.scores.law_scores`."""

from uqsonet_study.beyond.scores import law_scores
from uqsonet_study.cases import Study
from uqsonet_study.jobs import job
from uqsonet_study.loading import load_config
from uqsonet_study.report.summary import write_csv

with job(snakemake) as (files, params):
    study = Study(load_config(params.config))
    write_csv(files.out, law_scores(study), 6)
