"""Scores of methods: see `uqsonet_study.evaluation.evaluate`."""

from pathlib import Path

from uqsonet_study.config import EvaluationConfig
from uqsonet_study.evaluation import Scored, evaluate
from uqsonet_study.jobs import jobs

with jobs(snakemake) as each:
    for told, out in zip(each, snakemake.output, strict=True):
        weights = [Path(path) for path in told["weights"]]
        evaluate(
            [Scored(told["method"], weights, told["ensemble"], told["training"])],
            told["evaluation"],
            EvaluationConfig.model_validate(told["config"]),
            told["noise_std"],
            told["seed"],
            Path(told["functions"]),
            Path(told["reference"]),
            Path(out),
            cut_lines=told["cut_lines"],
        )
