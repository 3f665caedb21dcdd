"""Scores beside published figures: see `uqsonet_study.benchmark.benchmark`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet.files import write_text
from uqsonet_study.benchmark import benchmark
from uqsonet_study.config import BenchmarkConfig, BenchmarkProblem
from uqsonet_study.jobs import job

with job(snakemake) as spec:
    keys = set(BenchmarkProblem.model_fields) - {"pairs"}
    own = {key: value for key, value in spec["config"].items() if key in keys}
    one = BenchmarkProblem.model_validate(own | {"pairs": [max(20, spec["pairs"])]})
    shared = {key: value for key, value in spec["config"].items() if key not in keys}
    name = spec["name"]
    config = BenchmarkConfig.model_validate(shared | {"published": "", "problems": {name: one}})
    weights = [Path(path) for path in snakemake.input]
    found = benchmark(name, config, spec["pairs"], spec["seed"], *weights)
    text = found.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    write_text(Path(snakemake.output[0]), text)
