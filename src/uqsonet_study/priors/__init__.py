"""Laws of the inputs of the study: Gaussian fields, and others with exact posteriors."""
