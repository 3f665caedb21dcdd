"""Tables of a run: a module of each layout turns its inputs into panels and numbers.

It raises `DataError` where an input lacks a number or contradicts the configuration.
"""
