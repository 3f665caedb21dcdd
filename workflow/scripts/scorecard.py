"""Ours beside each cell of the paper: see `uqsonet_study.report.scorecard.scorecard`."""

from pathlib import Path

import pandas as pd

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.scorecard import scorecard
from uqsonet_study.report.summary import COLUMNS

with job(snakemake) as spec:
    found = [pd.read_csv(path) for path in snakemake.input]  # none where no scores are wanted
    summaries = pd.concat(found) if found else pd.DataFrame(columns=pd.Index(COLUMNS))
    scorecard(summaries, load_config(spec["config"]), spec["code"], Path(snakemake.output[0]))
