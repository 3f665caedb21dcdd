"""Whole posteriors of two inverse problems, and their distance from references (PosteriorBench)."""
