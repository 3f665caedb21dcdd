"""Runs over time: see `uqsonet_study.beyond.over_time.simulate_over_time`."""

from uqsonet_study.beyond.over_time import simulate_over_time
from uqsonet_study.jobs import job
from uqsonet_study.settings import OverTime

with job(snakemake) as (files, params):
    simulate_over_time(OverTime.model_validate(params.settings), params.seed, files.out)
