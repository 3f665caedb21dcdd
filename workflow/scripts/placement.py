"""Scores of places: see `uqsonet_study.placement.score_places`."""

from pathlib import Path

from uqsonet_study.config import ReferenceConfig
from uqsonet_study.jobs import job
from uqsonet_study.placement import PlacementJob, score_places

with job(snakemake, threads=1) as spec:
    files = {
        "functions": Path(snakemake.input.functions),
        "weights": Path(snakemake.input.weights[0]),
    }
    given = spec | files | {"config": ReferenceConfig.model_validate(spec["config"])}
    score_places(
        PlacementJob(**given),
        Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        workers=snakemake.threads,
    )
