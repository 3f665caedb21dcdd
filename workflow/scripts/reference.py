"""Reference posteriors of an evaluation: see `uqsonet_study.references.compute_reference`."""

from pathlib import Path

from uqsonet_study.config import ReferenceConfig
from uqsonet_study.jobs import job
from uqsonet_study.references import compute_reference

with job(snakemake, threads=1) as told:  # a process for each core instead
    compute_reference(
        Path(snakemake.input.functions),
        Path(snakemake.input.sensors),
        told["split"],
        told["evaluation"],
        ReferenceConfig.model_validate(told["config"]),
        told["noise_std"],
        told["seed"],
        Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        code=told["code"],
        workers=snakemake.threads,
    )
