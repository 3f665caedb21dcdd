"""Gaussian laws, principal components, posteriors, scores, seeds."""
