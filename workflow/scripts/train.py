"""A training: see `uqsonet_study.training.train`."""

import os
from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import JobsConfig, MethodConfig
from uqsonet_study.jobs import job
from uqsonet_study.training import TrainingJob, train

with job(snakemake) as spec:
    train(
        TrainingJob(
            method=spec["method"],
            problem=spec["problem"],
            config=MethodConfig.model_validate(spec["config"]),
            noise_std=spec["noise_std"],
            trial=spec["trial"],
            training=spec["training"],
            seed=spec["seed"],
            functions=Path(snakemake.input.functions),
            sensors=Path(snakemake.input.sensors),
            reference=Path(snakemake.input.reference),
            code=spec["code"],
        ),
        # Not parameters, which would make Snakemake train again: where a job runs, how often it
        # saves and what it draws change no result.
        JobsConfig.model_validate(snakemake.config.get("jobs", {})),
        weights=Path(snakemake.output.weights),
        log=Path(snakemake.output.log),
        state=Path(snakemake.params.state),
        bar=os.environ.get("UQSONET_BAR") == "1",
    )
