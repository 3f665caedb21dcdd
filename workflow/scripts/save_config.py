"""Keep beside the results the configuration that made them."""

import json
from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.jobs import frame

with frame(snakemake):
    write_text(Path(snakemake.output[0]), json.dumps(snakemake.params.told, indent=2) + "\n")
