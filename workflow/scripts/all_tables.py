"""Every table in one document: see `uqsonet_study.report.tables.write.all_tables`."""

from uqsonet_study.jobs import job
from uqsonet_study.report.tables.write import all_tables

with job(snakemake) as (files, params):
    all_tables([*files.tables], files.tex)
