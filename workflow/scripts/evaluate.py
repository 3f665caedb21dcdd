"""Scores of methods: see `uqsonet_study.evaluation.evaluate`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import EvaluationConfig
from uqsonet_study.evaluation import Scored, evaluate
from uqsonet_study.jobs import jobs

with jobs(snakemake) as specs:
    for (name, spec), out in zip(specs.items(), snakemake.output, strict=True):
        files = snakemake.params.files[name]
        weights = [Path(path) for path in files["weights"]]
        evaluate(
            [Scored(spec["method"], weights, spec["ensemble"], spec["training"])],
            spec["label"],
            EvaluationConfig.model_validate(spec["config"]),
            spec["noise_std"],
            spec["seed"],
            Path(files["functions"]),
            Path(files["reference"]),
            Path(out),
            cut_lines=spec["cut_lines"],
        )
