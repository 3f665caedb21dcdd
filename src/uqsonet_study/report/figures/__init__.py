"""Figures of a run: `draw(study, name)` of a module draws the declared figures of its layout."""
