"""Keep beside the results the configuration that made them, and which case reads which file."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet.files import write_text
from uqsonet_study.jobs import frame

with frame(snakemake):
    write_text(Path(snakemake.output.config), snakemake.params.config)
    write_text(Path(snakemake.output.jobs), snakemake.params.jobs)
