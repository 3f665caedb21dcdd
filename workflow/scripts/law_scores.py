"""Scores of laws of the input: see `uqsonet_study.beyond.scores.law_scores`."""

from pathlib import Path

from uqsonet_study.beyond.scores import law_scores
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.summary import write_csv

with job(snakemake) as told:
    found = law_scores(told["files"], load_config(told["config"]))
    write_csv(Path(snakemake.output[0]), found, 6)
