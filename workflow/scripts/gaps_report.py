"""Errors from runs with gaps: see `uqsonet_study.report.gaps.write_gaps`."""

from uqsonet_study.jobs import job
from uqsonet_study.report.gaps import write_gaps
from uqsonet_study.settings import Gaps

with job(snakemake) as (files, params):
    settings = Gaps.model_validate(params.settings)
    write_gaps(settings, params.scale, files.answers, files.out.parent)
