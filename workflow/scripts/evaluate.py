"""Scores of a method: see `uqsonet.evaluation.evaluate`."""

from pathlib import Path

from uqsonet.config import EvaluationConfig
from uqsonet.evaluation import evaluate
from uqsonet.jobs import job

with job(snakemake) as spec:
    weights = snakemake.input.get("weights")
    evaluate(
        spec["experiment"],
        spec["method"],
        spec["label"],
        EvaluationConfig.model_validate(spec["config"]),
        spec["noise_std"],
        spec["seed"],
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        Path(weights) if weights else None,
        Path(snakemake.output[0]),
    )
