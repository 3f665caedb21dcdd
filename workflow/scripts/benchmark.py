"""Scores beside published figures: see `uqsonet_study.benchmark.benchmark`."""

from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.benchmark import benchmark
from uqsonet_study.config import BenchmarkConfig, BenchmarkProblem
from uqsonet_study.jobs import job

with job(snakemake) as told:
    keys = set(BenchmarkProblem.model_fields) - {"pairs"}
    own = {key: value for key, value in told["config"].items() if key in keys}
    one = BenchmarkProblem.model_validate(own | {"pairs": [max(20, told["pairs"])]})
    shared = {key: value for key, value in told["config"].items() if key not in keys}
    name = told["name"]
    config = BenchmarkConfig.model_validate(shared | {"published": "", "problems": {name: one}})
    weights = [Path(path) for path in snakemake.input]
    found = benchmark(name, config, told["pairs"], told["seed"], *weights)
    text = found.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    write_text(Path(snakemake.output[0]), text)
