"""Reference posteriors of an evaluation: see `uqsonet_study.references.compute_reference`."""

from pathlib import Path

from uqsonet_study.config import ReferenceConfig
from uqsonet_study.jobs import job
from uqsonet_study.references import compute_reference

with job(snakemake, threads=1) as told:  # a process for each core instead
    output_sensors = snakemake.input.get("output_sensors")
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
        output_sensors=Path(output_sensors) if output_sensors else None,
        count_pairs=told.get("count_pairs", []),
        output_noise=told.get("output_noise", 0.0),
        workers=snakemake.threads,
    )
