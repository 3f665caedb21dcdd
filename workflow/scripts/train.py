"""A stack of trials: see `uqsonet.training.loop.train`."""

from pathlib import Path

from uqsonet.config import JobsConfig, MethodConfig
from uqsonet.jobs import job
from uqsonet.training.loop import TrainingJob, train

with job(snakemake) as spec:
    train(
        TrainingJob(
            method=spec["method"],
            problem=spec["problem"],
            config=MethodConfig.model_validate(spec["config"]),
            noise_std=spec["noise_std"],
            trials=spec["trials"],
            seed=spec["seed"],
            functions=Path(snakemake.input.functions),
            sensors=Path(snakemake.input.sensors),
            reference=Path(snakemake.input.reference),
            code=spec["code"],
        ),
        JobsConfig.model_validate_json(snakemake.params.jobs),
        weights=Path(snakemake.output.weights),
        log=Path(snakemake.output.log),
        state=Path(snakemake.params.state),
        bar=snakemake.params.bar,
    )
