"""Tables: see `uqsonet_study.report.tables.write.write_table`."""

from pathlib import Path

from uqsonet_study.config import load_config
from uqsonet_study.jobs import jobs
from uqsonet_study.report.tables.write import write_table

with jobs(snakemake) as each:
    folder = Path(snakemake.output[0]).parent
    for told in each:
        write_table(told["table"], load_config(told["config"]), told["files"], folder)
