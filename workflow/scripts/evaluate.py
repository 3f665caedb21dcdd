"""Scores of methods: see `uqsonet_study.evaluation.evaluate`."""

from pathlib import Path

from uqsonet_study.config import EvaluationConfig
from uqsonet_study.evaluation import evaluate
from uqsonet_study.jobs import jobs

with jobs(snakemake) as each:
    for told, out in zip(each, snakemake.output, strict=True):
        evaluate(
            told["method"],
            told["evaluation"],
            EvaluationConfig.model_validate(told["config"]),
            told["noise_std"],
            told["seed"],
            Path(told["functions"]),
            Path(told["reference"]),
            Path(out),
            weights=[Path(path) for path in told["weights"]],
            **{key: told[key] for key in ("ensemble", "training", "cut_lines")},
        )
