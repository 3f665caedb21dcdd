"""Sensors over time: a step learned from trajectories; filter, smoother and forecast with it."""
