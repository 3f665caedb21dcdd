"""Nine operators whose input has another law; `uqsonet_study.problems` finds them by name."""
