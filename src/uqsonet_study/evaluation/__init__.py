"""Scores of trained models and baselines against reference posteriors."""

from uqsonet_study.evaluation.job import Scored, evaluate
from uqsonet_study.evaluation.scores import (
    ScoringTargets,
    load_targets,
    points_on,
    score_reference,
    score_set,
)

__all__ = [
    "Scored",
    "ScoringTargets",
    "evaluate",
    "load_targets",
    "points_on",
    "score_reference",
    "score_set",
]
