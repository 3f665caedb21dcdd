"""Scores of methods: see `uqsonet_study.evaluation.evaluate`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import EvaluationConfig
from uqsonet_study.evaluation import Scored, evaluate
from uqsonet_study.jobs import job

with job(snakemake) as spec:
    weights = map(Path, snakemake.input.get("weights", []))
    evaluate(
        [
            Scored(
                model["method"],
                [next(weights) for _ in range(model["weights"])],
                model["ensemble"],
                model["training"],
            )
            for model in spec["models"]
        ],
        spec["label"],
        EvaluationConfig.model_validate(spec["config"]),
        spec["noise_std"],
        spec["seed"],
        Path(snakemake.input.functions),
        Path(snakemake.input.reference),
        Path(snakemake.output[0]),
        cut_lines=spec["cut_lines"],
    )
