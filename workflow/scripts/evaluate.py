"""Scores of a method: see `uqsonet_study.evaluation.evaluate`."""

from pathlib import Path

from uqsonet_study.config import EvaluationConfig
from uqsonet_study.evaluation import evaluate
from uqsonet_study.jobs import job

with job(snakemake) as spec:
    evaluate(
        spec["method"],
        spec["label"],
        EvaluationConfig.model_validate(spec["config"]),
        spec["noise_std"],
        spec["seed"],
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        [Path(path) for path in snakemake.input.get("weights", [])],
        Path(snakemake.output[0]),
        ensemble=spec["ensemble"],
        training=spec["training"],
        cut_lines=spec["cut_lines"],
    )
