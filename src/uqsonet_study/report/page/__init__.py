"""The page of a run: every table and figure, its provenance, what differs from the paper."""
