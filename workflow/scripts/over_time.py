"""A method's answers over time: see `uqsonet_study.beyond.over_time.answer_over_time`."""

from uqsonet_study.beyond.over_time import answer_over_time
from uqsonet_study.jobs import job
from uqsonet_study.settings import OverTime

with job(snakemake) as (files, params):
    answer_over_time(
        snakemake.wildcards.method,
        OverTime.model_validate(params.settings),
        params.seed,
        files.trajectories,
        files.sensors,
        files.out,
    )
