"""Averages and intervals of an experiment: see `uqsonet.report.summary.summarise`."""

from pathlib import Path

from uqsonet.jobs import job
from uqsonet.report.summary import summarise
from uqsonet.storage import write_text

with job(snakemake):
    summary = summarise([Path(path) for path in snakemake.input])
    write_text(Path(snakemake.output[0]), summary.to_csv(index=False, float_format="%.9g"))
