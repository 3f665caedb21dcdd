"""Scores of places: see `uqsonet_study.placement.score_places`."""

import os
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.jobs import job
from uqsonet_study.placement import PlacementJob, score_places

with job(snakemake, threads=1) as spec:  # a process for each core instead
    data, weights = Path(snakemake.input.functions), Path(snakemake.input.weights[0])
    score_places(
        PlacementJob(**spec, data=data, weights=weights),
        Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        workers=snakemake.threads,
        bar=os.environ.get("UQSONET_BAR") == "1",
    )
