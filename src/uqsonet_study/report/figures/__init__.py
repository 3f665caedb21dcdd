"""Figures of a run: `draw(config, name, files)` of a module draws those of its layout.

It gets the name of a declared figure, or of a picture, and the files that the plan hands to it, by
kind. It raises `DataError` where these lack what is drawn or do not belong together.
"""
