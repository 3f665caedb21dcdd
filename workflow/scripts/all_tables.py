"""Every table in one document: see `uqsonet.report.tables.all_tables`."""

from pathlib import Path

from uqsonet.report.tables import all_tables

from uqsonet.jobs import job

with job(snakemake):
    all_tables([Path(path) for path in snakemake.input.tables], Path(snakemake.output[0]))
