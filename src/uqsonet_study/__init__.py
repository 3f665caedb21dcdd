"""The study of the paper: its experiments, from configuration to tables, figures and page."""

BASELINES = ("sensor_free", "cokriging", "regression")
"""What needs no training and stands beside every learned method."""
