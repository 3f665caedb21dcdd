"""Keep the merged configuration beside the results it made."""

from pathlib import Path

from uqsonet.storage.files import write_text
from uqsonet_study.jobs import frame

with frame(snakemake):
    write_text(Path(snakemake.output[0]), snakemake.params.text + "\n")
