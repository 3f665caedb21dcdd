"""Answers learned from runs with gaps: see `uqsonet_study.beyond.gaps.answer_from_gaps`."""

from uqsonet_study.beyond.gaps import answer_from_gaps
from uqsonet_study.jobs import job
from uqsonet_study.settings import Gaps

with job(snakemake) as (files, params):
    settings = Gaps.model_validate(params.settings)
    answer_from_gaps(snakemake.wildcards.seen, settings, params.seed, files.out)
