"""Scores of places: see `uqsonet_study.report.place_scores.place_scores`."""

from pathlib import Path

from uqsonet.files import write_text
from uqsonet_study.jobs import job
from uqsonet_study.report.place_scores import place_scores

with job(snakemake):
    found = place_scores([Path(path) for path in snakemake.input])
    text = found.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(Path(snakemake.output[0]), text)
