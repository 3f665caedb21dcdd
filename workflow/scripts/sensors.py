"""Sensor layouts of an experiment: see `uqsonet_study.layouts.generate_layouts`."""

from pathlib import Path

import uqsonet_study.at_work  # noqa: F401 - takes the lock before torch is imported
from uqsonet_study.config import SensorsConfig
from uqsonet_study.jobs import job
from uqsonet_study.layouts import generate_layouts

with job(snakemake) as spec:
    generate_layouts(
        spec["problem"],
        SensorsConfig.model_validate(spec["config"]),
        spec["seed"],
        spec["validation"],
        spec["test"],
        Path(snakemake.output[0]),
        functions=next(iter(map(Path, snakemake.input)), None),
        side=spec.get("side", "input"),
    )
