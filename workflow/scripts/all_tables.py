"""Every table in one document: see `uqsonet_study.report.tables.write.all_tables`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.report.tables.write import all_tables

with job(snakemake):
    all_tables([Path(path) for path in snakemake.input.tables], Path(snakemake.output.tex))
