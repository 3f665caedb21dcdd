"""Bulk solvers of the discretised equations; float64, batched, on any torch device."""
