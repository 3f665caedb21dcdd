"""Sensors over time: problems whose answer is known exactly, or that others publish scores of."""
