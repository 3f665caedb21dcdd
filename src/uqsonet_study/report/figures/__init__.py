"""Figures of the paper and pictures of every problem, drawn in one style."""
