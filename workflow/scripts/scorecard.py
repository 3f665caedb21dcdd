"""Ours beside each cell of the paper: see `uqsonet_study.report.scorecard.scorecard`."""

from pathlib import Path

import pandas as pd

from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.scorecard import scorecard

with job(snakemake) as told:
    found = [pd.read_csv(path) for path in snakemake.input]
    summaries = (
        pd.concat(found) if found else pd.DataFrame()
    )  # a run may score validation sets alone
    scorecard(summaries, load_config(told["config"]), told["code"], Path(snakemake.output[0]))
