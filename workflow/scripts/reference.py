"""Reference posteriors of an evaluation: see `uqsonet_study.references.compute_reference`."""

import os
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import ReferenceConfig
from uqsonet_study.jobs import job
from uqsonet_study.references import compute_reference

with job(snakemake, threads=1) as spec:  # a process for each core instead
    output_sensors = snakemake.input.get("output_sensors")
    compute_reference(
        Path(snakemake.input.functions),
        Path(snakemake.input.sensors),
        spec["split"],
        spec["label"],
        ReferenceConfig.model_validate(spec["config"]),
        spec["noise_std"],
        spec["seed"],
        Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        code=spec["code"],
        output_sensors=Path(output_sensors) if output_sensors else None,
        count_pairs=spec.get("count_pairs", []),
        output_noise=spec.get("output_noise", 0.0),
        workers=snakemake.threads,
        bar=os.environ.get("UQSONET_BAR") == "1",
    )
