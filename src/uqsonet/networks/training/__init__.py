"""Training: batches, the loop, checkpoints, validation by skill, progress."""
