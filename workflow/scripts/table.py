"""A table: see `uqsonet_study.report.tables.write.write_table`."""

from uqsonet_study.cases import Study
from uqsonet_study.jobs import job
from uqsonet_study.loading import load_config
from uqsonet_study.report.tables.write import write_table

with job(snakemake) as (files, params):
    study = Study(load_config(params.config))
    write_table(snakemake.wildcards.table, study, files.tex.parent)
