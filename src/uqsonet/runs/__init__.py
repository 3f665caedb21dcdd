"""Runs of a simulator or an experiment, and the files that hold them."""
