"""Scores of trained models and baselines against reference posteriors."""

from uqsonet_study.evaluation.job import Scored, evaluate
from uqsonet_study.evaluation.scores import (
    Yardstick,
    load_yardstick,
    points_on,
    score_reference,
    score_set,
)

__all__ = [
    "Scored",
    "Yardstick",
    "evaluate",
    "load_yardstick",
    "points_on",
    "score_reference",
    "score_set",
]
