"""Learned operator models, a file for each architecture."""
