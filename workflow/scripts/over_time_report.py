"""Errors by time: see `uqsonet_study.report.over_time.write_over_time`."""

from uqsonet_study.jobs import job
from uqsonet_study.report.over_time import write_over_time
from uqsonet_study.settings import OverTime

with job(snakemake) as (files, params):
    settings = OverTime.model_validate(params.settings)
    picture = files.figure[0].with_suffix("")
    write_over_time(settings, params.scale, files.answers, files.out.parent, picture)
