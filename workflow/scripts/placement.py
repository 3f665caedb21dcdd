"""Scores of places: see `uqsonet_study.placement.score_places`."""

from pathlib import Path

from uqsonet_study.jobs import job
from uqsonet_study.placement import PlacementJob, score_places

with job(snakemake, threads=1) as told:  # a process for each core instead
    data, weights = Path(snakemake.input.functions), Path(snakemake.input.weights[0])
    told.pop("problem")
    score_places(
        PlacementJob(**told, data=data, weights=weights),
        Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        workers=snakemake.threads,
    )
