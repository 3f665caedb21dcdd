"""Training of the paper's networks: sensors in batches, gradients in blocks."""
