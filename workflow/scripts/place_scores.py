"""Scores of places: see `uqsonet_study.report.place_scores.place_scores`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.report.place_scores import place_scores
from uqsonet_study.report.summary import write_csv

with job(snakemake):
    write_csv(Path(snakemake.output[0]), place_scores(snakemake.input), 6)
