"""Laws of the input beyond the paper's Gaussian fields: problems, exact laws, scores."""
