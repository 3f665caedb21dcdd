"""Scores of laws of the input: see `uqsonet_study.report.law_scores.law_scores`."""

from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.config import load_config
from uqsonet_study.jobs import job
from uqsonet_study.report.law_scores import law_scores

with job(snakemake) as told:
    files = {case: [Path(path) for path in paths] for case, paths in told["files"].items()}
    found = law_scores(files, load_config(told["config"]))
    text = found.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(Path(snakemake.output[0]), text)
