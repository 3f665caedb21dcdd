"""Scores of trained models and baselines against reference posteriors."""

from uqsonet_study.evaluation.job import evaluate
from uqsonet_study.evaluation.scores import (
    Expansion,
    ScoringTargets,
    load_targets,
    points_on,
    score_reference,
    score_set,
)
